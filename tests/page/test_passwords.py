"""Invitations and passwords, for teams without an identity provider. Numbers are those of OWASP ASVS 5.0.0."""

from __future__ import annotations

from datetime import timedelta

import pytest

from broker.app.access import passwords, people
from broker.app.access.passwords import WrongPassword, accept, change, invite, sign_in
from broker.app.wiring import Broker
from broker.core.access.passwords import wait_after
from broker.core.errors import InvalidInput, NotAllowed
from broker.core.values.clock import ManualClock
from broker.settings import SignInSettings
from tests.actors import ROOT, person, with_clock
from tests.page.browsing import Site
from tests.server.world import Company

GOOD, OTHER = "seven green boats at noon", "another row of plain words"
WHERE = "page 127.0.0.1"


@pytest.fixture(autouse=True)
def _cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Argon2id as it is, with less memory: the real cost is half a second a password."""
    from argon2 import PasswordHasher

    cheap = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
    monkeypatch.setattr(passwords, "_hasher", lambda: cheap)


@pytest.fixture
def world(site: Site) -> Company:
    return site.world


@pytest.fixture
def timed(world: Company) -> tuple[Broker, ManualClock]:
    clock = ManualClock(world.broker.clock.now())
    return with_clock(world.broker, clock), clock


def chosen(broker: Broker, name: str = "mia", password: str = GOOD) -> None:
    accept(broker, invite(broker, name, by=ROOT).secret, password, origin=WHERE)


def test_an_invitation_works_once_and_not_for_ever(timed: tuple[Broker, ManualClock]) -> None:
    """6.4.1"""
    broker, clock = timed
    first, second = (invite(broker, "mia", by=ROOT).secret for _ in range(2))
    for secret in (first, "guessed", ""):
        with pytest.raises(NotAllowed, match="accepted or replaced, or has expired"):
            accept(broker, secret, GOOD, origin=WHERE)
    assert accept(broker, second, GOOD, origin=WHERE) == "mia"
    with pytest.raises(NotAllowed):
        accept(broker, second, OTHER, origin=WHERE)
    late = invite(broker, "mia", by=ROOT).secret
    clock.advance(timedelta(days=3))
    with pytest.raises(NotAllowed):
        accept(broker, late, OTHER, origin=WHERE)
    assert sign_in(broker, "mia", GOOD, origin=WHERE)


def test_only_administrators_invite_and_only_people(world: Company) -> None:
    with pytest.raises(NotAllowed):
        invite(world.broker, "mia", by=person("tara"))
    people.add(world.broker, "robot", by=ROOT, service=True)
    with pytest.raises(InvalidInput, match="service account"):
        invite(world.broker, "robot", by=ROOT)


def test_nobody_is_invited_where_the_link_would_lead_nowhere(world: Company) -> None:
    at = SignInSettings(issuer="https://login.example.org", client_id="gpubroker")
    known = world.broker
    with_provider = Broker(
        known.settings.model_copy(update={"sign_in": at}), known.registries, known.account, store=known.store
    )
    with pytest.raises(InvalidInput, match="identity provider"):
        invite(with_provider, "mia", by=ROOT)


@pytest.mark.parametrize("password", ["short", "a" * 14, "a" * 40, "x" * 129, "Mia has a long password"])
def test_what_is_easy_to_guess_is_not_chosen(world: Company, password: str) -> None:
    """6.2.1, 6.2.5, 6.2.9: length counts, up to 128 characters, and no rule of composition"""
    with pytest.raises(InvalidInput) as refused:
        chosen(world.broker, password=password)
    assert password not in str(refused.value)
    chosen(world.broker, password="ünïcode 💥 " + "long " * 20)


def test_the_store_has_an_argon2id_hash_alone(world: Company) -> None:
    """11.4.2"""
    chosen(world.broker)
    with world.broker.store.access.reading() as look:
        stored = look.password("mia")
        log = " ".join(str(line) for _, line in look.audit(limit=50))
    assert stored is not None
    assert stored.digest.startswith("$argon2id$")
    assert GOOD not in log + stored.digest


def test_guessing_is_slowed_down_for_each_person(timed: tuple[Broker, ManualClock]) -> None:
    """6.3.1: and whoever has waited gets in"""
    broker, clock = timed
    chosen(broker)
    for _ in range(5):
        with pytest.raises(WrongPassword):
            sign_in(broker, "mia", OTHER, origin=WHERE)
    with pytest.raises(WrongPassword):
        sign_in(broker, "mia", GOOD, origin=WHERE)
    clock.advance(wait_after(5))
    assert sign_in(broker, "mia", GOOD, origin=WHERE)
    with pytest.raises(WrongPassword):
        sign_in(broker, "mia", OTHER, origin=WHERE)
    assert sign_in(broker, "mia", GOOD, origin=WHERE), "a right one begins anew"
    waits = [wait_after(number) for number in range(4, 20)]
    assert waits == sorted(waits)
    assert waits[-1] == timedelta(hours=1)


def test_who_guesses_elsewhere_keeps_nobody_waiting_where_they_have_signed_in(
    timed: tuple[Broker, ManualClock],
) -> None:
    """And guesses no more often for it, nor when the person signs in meanwhile; a month later the address is new."""
    broker, clock = timed
    chosen(broker)
    at_home, elsewhere = "page 192.0.2.7", "page 203.0.113.9"
    assert sign_in(broker, "mia", GOOD, origin=at_home)
    for _ in range(5):
        with pytest.raises(WrongPassword):
            sign_in(broker, "mia", OTHER, origin=elsewhere)
    assert sign_in(broker, "mia", GOOD, origin=at_home)
    for origin in (elsewhere, "page 198.51.100.1"):
        with pytest.raises(WrongPassword):
            sign_in(broker, "mia", GOOD, origin=origin)
    for _ in range(5):
        with pytest.raises(WrongPassword):
            sign_in(broker, "mia", OTHER, origin=at_home)
    with pytest.raises(WrongPassword):
        sign_in(broker, "mia", GOOD, origin=at_home)
    clock.advance(wait_after(5))
    assert sign_in(broker, "mia", GOOD, origin=at_home)
    clock.advance(timedelta(days=30))
    for _ in range(5):
        with pytest.raises(WrongPassword):
            sign_in(broker, "mia", OTHER, origin=elsewhere)
    with pytest.raises(WrongPassword):
        sign_in(broker, "mia", GOOD, origin=at_home)


def test_a_person_has_signed_in_from_ten_addresses_at_most(timed: tuple[Broker, ManualClock]) -> None:
    broker, clock = timed
    chosen(broker)
    for number in range(11):
        assert sign_in(broker, "mia", GOOD, origin=f"page {number}")
        clock.advance(timedelta(seconds=1))
    with broker.store.access.reading() as look:
        known = [number for number in range(11) if look.password_origin("mia", f"page {number}") is not None]
    assert known == list(range(1, 11))
    accept(broker, invite(broker, "mia", by=ROOT).secret, OTHER, origin="page 9")
    with broker.store.access.reading() as look:
        assert look.password_origin("mia", "page 9") is None, "another password begins anew"


def test_many_tries_at_once_are_no_way_around_the_wait(world: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(world.broker)
    verified = passwords._verified

    def others_try_meanwhile(digest: str, password: str) -> bool:
        monkeypatch.setattr(passwords, "_verified", verified)
        for _ in range(5):
            with pytest.raises(WrongPassword):
                sign_in(world.broker, "mia", OTHER, origin=WHERE)
        return verified(digest, password)

    monkeypatch.setattr(passwords, "_verified", others_try_meanwhile)
    with pytest.raises(WrongPassword):
        sign_in(world.broker, "mia", GOOD, origin=WHERE)


@pytest.mark.parametrize("name", ["mia", "vic", "nobody", ""])
def test_nobody_learns_who_has_a_password(world: Company, name: str) -> None:
    """6.3.8"""
    chosen(world.broker)
    with pytest.raises(WrongPassword) as refused:
        sign_in(world.broker, name, OTHER, origin=WHERE)
    assert refused.value.message == WrongPassword().message


def test_a_change_needs_the_present_one_and_ends_other_sessions(world: Company) -> None:
    """6.2.2, 6.2.3, 7.4.3"""
    from broker.app.access.sessions import resume

    chosen(world.broker)
    stolen = sign_in(world.broker, "mia", GOOD, origin="page elsewhere")
    with pytest.raises(WrongPassword):
        change(world.broker, "mia", OTHER, "a third row of plain words", origin=WHERE)
    mine = change(world.broker, "mia", GOOD, OTHER, origin=WHERE)
    assert resume(world.broker, stolen) is None
    with world.broker.store.access.reading() as look:
        assert look.password_origin("mia", "page elsewhere") is None, "nor is it known as an address of hers"
    entrant = resume(world.broker, mine)
    assert entrant is not None
    assert entrant.access.person.name == "mia"
    people.disable(world.broker, "mia", by=ROOT)
    with pytest.raises(WrongPassword):
        sign_in(world.broker, "mia", OTHER, origin=WHERE)


def test_the_page_takes_an_invitation_a_password_and_a_change(site: Site) -> None:
    browser = site.browser()
    link = f"/invitation/{invite(site.world.broker, 'mia', by=ROOT).secret}"
    assert 'autocomplete="new-password"' in browser.get(link).text
    assert browser.post(link, {"password": GOOD, "again": OTHER}).status_code == 422
    foreign = browser.post(link, {"password": GOOD, "again": GOOD}, {"Origin": "https://evil.example"})
    assert foreign.status_code == 403
    done = browser.post(link, {"password": GOOD, "again": GOOD})
    assert (done.status_code, done.headers["location"]) == (303, "/")
    assert "HttpOnly" in done.headers["set-cookie"]
    assert browser.get(link).status_code == 404, "it is used up"
    assert "mia" in browser.get("/me").text
    filled = {"old": GOOD, "password": OTHER, "again": OTHER}
    assert browser.send_form("/me", "/me/password", **filled).status_code == 303
    other = site.browser()
    asked = {"name": "mia", "password": GOOD, "next": "//evil.example"}
    assert other.post("/sign-in/password", asked).status_code == 401
    entered = other.post("/sign-in/password", asked | {"password": OTHER})
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    assert other.post("/sign-in/password", asked, {"Origin": "https://evil.example"}).status_code == 403


def test_who_guesses_names_keeps_nobody_out_who_was_in(site: Site) -> None:
    chosen(site.world.broker)
    chosen(site.world.broker, "tara", OTHER)
    mia, guesser = {"name": "mia", "password": GOOD}, site.browser()
    assert guesser.post("/sign-in/password", mia).status_code == 303
    answers = [guesser.post("/sign-in/password", {"name": f"guess{number}", "password": OTHER}) for number in range(21)]
    assert [one.status_code for one in answers] == [401] * 20 + [429]
    assert guesser.post("/sign-in/password", {"name": "tara", "password": OTHER}).status_code == 429
    assert site.browser().post("/sign-in/password", mia).status_code == 303, "behind a proxy all have one address"
