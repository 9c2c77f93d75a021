"""Second factors beside a password. Numbers are those of OWASP ASVS 5.0.0."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

from broker.app.access import passwords, people, second_factors
from broker.app.access.passwords import WrongPassword, accept, invite, sign_in
from broker.app.access.sessions import resume
from broker.app.wiring import Broker
from broker.core.access.audit import AuditOutcome, AuditRecord
from broker.core.access.people import Person, TeamRole
from broker.core.access.permissions import Permission
from broker.core.access.second_factors import RECOVERY_CODES, STEP, UNCONFIRMED, SecondFactorFor, step_of
from broker.core.actors import Role
from broker.core.errors import InvalidInput, NotAllowed, StoreProblem
from broker.core.values.clock import ManualClock
from tests.actors import ROOT, person, with_clock
from tests.page.browsing import Browser, FormFields, Site, answering
from tests.server.world import Company

GOOD, WHERE = "seven green boats at noon", "page 127.0.0.1"
KEY = b"12345678901234567890"


@pytest.fixture(autouse=True)
def _cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Argon2id as it is, with less memory: the real cost is half a second a password."""
    from argon2 import PasswordHasher

    cheap = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
    monkeypatch.setattr(passwords, "_hasher", lambda: cheap)


@pytest.fixture
def timed(site: Site) -> tuple[Broker, ManualClock]:
    """The company's broker, whose people have passwords, at a time that can be set."""
    clock = ManualClock(site.world.broker.clock.now())
    broker = with_clock(site.world.broker, clock)
    for name in ("apple", "adam"):
        accept(broker, invite(broker, name, by=ROOT).secret, GOOD, origin=WHERE)
    return broker, clock


def code_at(letters: str, at: datetime) -> str:
    """What an app shows."""
    return TOTP(base64.b32decode(letters), 6, SHA1(), 30).generate(int(at.timestamp())).decode()


def broker_log(broker: Broker) -> Sequence[tuple[int, AuditRecord]]:
    with broker.store.access.reading() as look:
        return look.audit(limit=50)


def set_up(broker: Broker, name: str = "apple") -> tuple[str, list[str]]:
    """The letters of a second factor that is asked for, and its recovery codes."""
    new = second_factors.begin(broker, name, origin=WHERE)
    return new.letters, list(
        second_factors.confirm(broker, name, code_at(new.letters, broker.clock.now()), origin=WHERE)
    )


@pytest.mark.parametrize(("seconds", "code"), [(1111111109, "081804"), (1234567890, "005924"), (2000000000, "279037")])
def test_codes_are_those_of_rfc_6238_one_step_around_and_none_twice(seconds: int, code: str) -> None:
    """6.5.1, 6.5.5: each counts once, and no longer than a wrong clock needs"""
    at, step = datetime.fromtimestamp(seconds, UTC), seconds // 30
    assert step_of(f"{code[:3]} {code[3:]}", KEY, at, 0) == step
    for around in (-STEP, STEP):
        assert step_of(code, KEY, at + around, 0) == step
    for late in (-2 * STEP, 2 * STEP):
        assert step_of(code, KEY, at + late, 0) is None
    assert step_of(code, KEY, at, step) is None, "it was taken"
    for wrong in ("", "000000", code + "0", "ünïcode", "\0" * 6, "\udcff12345"):
        assert step_of(wrong, KEY, at, 0) is None


def test_without_the_code_of_now_the_password_lets_nobody_in(timed: tuple[Broker, ManualClock]) -> None:
    """6.3.3, 6.5.1: beside the password, each code once"""
    broker, clock = timed
    letters, _ = set_up(broker)
    clock.advance(2 * STEP)
    code = code_at(letters, clock.now())
    for wrong in ("", "123456", code_at(letters, clock.now() - timedelta(hours=1))):
        with pytest.raises(WrongPassword):
            sign_in(broker, "apple", GOOD, wrong, origin=WHERE)
    assert sign_in(broker, "apple", GOOD, code, origin=WHERE)
    with pytest.raises(WrongPassword):
        sign_in(broker, "apple", GOOD, code, origin=WHERE)
    assert sign_in(broker, "adam", GOOD, origin=WHERE), "whoever has none is not asked"
    refused = [line for _, line in broker_log(broker) if line.outcome is AuditOutcome.REFUSED]
    assert [line.reason for line in refused] == ["wrong_code"] * 4, "16.3.1: the password was right"


def test_a_password_is_not_changed_without_the_code(timed: tuple[Broker, ManualClock]) -> None:
    """6.3.3: a session that began with a token would be followed by one with the rights of a password"""
    broker, clock = timed
    letters, codes = set_up(broker)
    clock.advance(STEP)
    for wrong in ("", "123456"):
        with pytest.raises(WrongPassword):
            passwords.change(broker, "apple", GOOD, GOOD + "s", wrong, origin=WHERE)
    assert passwords.change(broker, "apple", GOOD, GOOD + "s", code_at(letters, clock.now()), origin=WHERE)
    assert passwords.change(broker, "apple", GOOD + "s", GOOD, codes[0], origin=WHERE)
    (used,) = [line for _, line in broker_log(broker) if line.action == "second_factor.recovery_code"]
    assert used.origin == WHERE


def test_wrong_codes_are_counted_like_wrong_passwords(timed: tuple[Broker, ManualClock]) -> None:
    """6.3.1, 6.6.3: nobody tries all codes"""
    broker, clock = timed
    letters, _ = set_up(broker)
    clock.advance(STEP)
    for _ in range(5):
        with pytest.raises(WrongPassword):
            sign_in(broker, "apple", GOOD, "123456", origin="page 10.0.0.9")
        with suppress(WrongPassword):  # a password without a code does not begin the count anew
            passwords.confirm(broker, "apple", GOOD, origin="page 10.0.0.9")
    with pytest.raises(WrongPassword):
        sign_in(broker, "apple", GOOD, code_at(letters, clock.now()), origin="page 10.0.0.9")


def test_a_recovery_code_counts_once_and_only_hashes_are_stored(timed: tuple[Broker, ManualClock]) -> None:
    """6.5.1, 6.5.2, 6.5.4"""
    broker, _ = timed
    letters, codes = set_up(broker)
    assert len(set(codes)) == RECOVERY_CODES
    assert all(re.fullmatch(r"([A-Z2-7]{4}-){5}[A-Z2-7]{4}", one) for one in codes), "120 bits"
    assert sign_in(broker, "apple", GOOD, codes[3].lower().replace("-", " "), origin=WHERE)
    with pytest.raises(WrongPassword):
        sign_in(broker, "apple", GOOD, codes[3], origin=WHERE)
    with broker.store.access.reading() as look:
        stored, log = look.second_factor("apple"), " ".join(str(line) for _, line in look.audit(limit=50))
    assert stored is not None
    kept = f"{stored.sealed} {stored.recovery} {log}"
    assert not [one for one in (letters, *codes) if one in kept or one.replace("-", "") in kept]
    assert "9 left" in log
    key = broker.settings.home / "secrets.key"
    key.unlink()
    with pytest.raises(StoreProblem, match="cannot be opened"):
        sign_in(broker, "apple", GOOD, "123456", origin=WHERE)


def test_one_is_set_up_by_its_first_code_and_replaced_by_nobody_else(timed: tuple[Broker, ManualClock]) -> None:
    broker, clock = timed
    assert second_factors.second_factor(broker, "apple") is None
    first = second_factors.begin(broker, "apple", origin=WHERE).letters
    assert sign_in(broker, "apple", GOOD, origin=WHERE), "it is not asked for yet"
    clock.advance(UNCONFIRMED)
    with pytest.raises(InvalidInput, match="waits for its first code"):
        second_factors.confirm(broker, "apple", code_at(first, clock.now()), origin=WHERE)
    second = second_factors.begin(broker, "apple", origin=WHERE).letters
    with pytest.raises(second_factors.WrongCode):
        second_factors.confirm(broker, "apple", code_at(first, clock.now()), origin=WHERE)
    session = sign_in(broker, "apple", GOOD, origin=WHERE)
    second_factors.confirm(broker, "apple", code_at(second, clock.now()), origin=WHERE)
    assert resume(broker, session) is None, "7.4.3: whoever came in without it is out"
    with pytest.raises(WrongPassword):
        sign_in(broker, "apple", GOOD, code_at(second, clock.now()), origin=WHERE)  # 6.5.1: it has counted
    clock.advance(STEP)
    session = sign_in(broker, "apple", GOOD, code_at(second, clock.now()), origin=WHERE)
    with pytest.raises(InvalidInput, match="has a second factor"):
        second_factors.begin(broker, "apple", origin=WHERE)
    with pytest.raises(InvalidInput, match="waits for its first code"):
        second_factors.confirm(broker, "apple", code_at(second, clock.now()), origin=WHERE)
    with pytest.raises(InvalidInput, match="does not sign in with a password"):
        second_factors.begin(broker, "mia", origin=WHERE)
    for change in (second_factors.begin, second_factors.remove):
        with pytest.raises(NotAllowed):
            change(broker, "apple", origin=WHERE, by=person("tara"))
    second_factors.remove(broker, "apple", origin=WHERE, by=ROOT)
    assert resume(broker, session) is None, "7.4.3: so is whoever has the lost phone"
    second_factors.remove(broker, "apple", origin=WHERE, by=ROOT)
    assert sign_in(broker, "apple", GOOD, origin=WHERE)


@pytest.mark.parametrize(
    ("roles", "teams", "asked"),
    [
        ({Role.ADMINISTRATOR}, {}, (False, True, True)),
        (set(), {"nlp": TeamRole.APPROVER}, (False, True, True)),
        (set(), {"nlp": TeamRole.TEAM_ADMINISTRATOR}, (False, True, True)),
        ({Role.FINOPS}, {"nlp": TeamRole.MEMBER}, (False, False, True)),
    ],
)
def test_who_has_to_set_one_up(roles: set[Role], teams: dict[str, TeamRole], asked: tuple[bool, ...]) -> None:
    one = Person("x", datetime(2026, 1, 1, tzinfo=UTC), roles=frozenset(roles), teams=teams)
    assert tuple(whom.asks(one) for whom in SecondFactorFor) == asked


def asking_approvers(known: Broker, clock: ManualClock) -> tuple[Broker, ManualClock]:
    serve = known.settings.serve.model_copy(update={"second_factor_for": SecondFactorFor.APPROVERS})
    settings = known.settings.model_copy(update={"serve": serve})
    return with_clock(Broker(settings, known.registries, known.account, store=known.store), clock), clock


def test_who_becomes_an_approver_does_not_go_on_without_one(timed: tuple[Broker, ManualClock]) -> None:
    """6.3.3: a session that began before would approve"""
    broker, _ = asking_approvers(*timed)
    accept(broker, invite(broker, "mia", by=ROOT).secret, GOOD, origin=WHERE)
    session = sign_in(broker, "mia", GOOD, origin=WHERE)
    people.give_role(broker, "mia", TeamRole.VIEWER, "vision", by=ROOT)
    assert resume(broker, session), "nothing is required of a viewer"
    people.give_role(broker, "mia", TeamRole.APPROVER, "nlp", by=ROOT)
    assert resume(broker, session) is None


def test_who_has_to_set_one_up_only_looks_until_then(timed: tuple[Broker, ManualClock]) -> None:
    """6.3.3, 8.3.1: approvers and administrators, where the setting says so"""
    broker, clock = asking_approvers(*timed)
    entrant = resume(broker, sign_in(broker, "apple", GOOD, origin=WHERE))
    assert entrant is not None
    assert entrant.access.anywhere(Permission.SEE_JOBS)
    for permission in (Permission.APPROVE, Permission.SUBMIT, Permission.CHANGE_OWN_JOBS, Permission.BUY):
        assert not entrant.access.anywhere(permission)
    letters, _ = set_up(broker)
    clock.advance(STEP)
    entrant = resume(broker, sign_in(broker, "apple", GOOD, code_at(letters, clock.now()), origin=WHERE))
    assert entrant is not None
    assert entrant.access.may(Permission.APPROVE, "nlp")


def entered(site: Site, name: str, code: str = "") -> tuple[Browser, int]:
    browser = site.browser()
    form = {"name": name, "password": GOOD, "code": code, "next": "/"}
    return browser, browser.post("/sign-in/password", form).status_code


def test_one_is_set_up_used_and_removed_on_the_page(site: Site, timed: tuple[Broker, ManualClock]) -> None:
    broker, clock = timed
    there = Site(Company(broker, site.world.wrong, "", "", "", ""), answering(broker))
    browser, _ = entered(there, "apple")
    begun = browser.send_form("/me", "/me/second-factor", again="not my password")
    assert begun.status_code == 403
    page = browser.send_form("/me", "/me/second-factor", again=GOOD).text
    found = re.search(r"<code>([A-Z2-7 ]+)</code>", page)
    assert found
    letters = found[1].replace(" ", "")
    assert 'class="qr"' in page
    form = FormFields(page).forms["/me/second-factor/confirm"]
    assert browser.post("/me/second-factor/confirm", form | {"code": "123456"}).status_code == 422
    kept = browser.post("/me/second-factor/confirm", form | {"code": code_at(letters, clock.now())}).text
    codes = re.findall(r"<li><code>([A-Z2-7-]+)</code>", kept)
    assert len(codes) == RECOVERY_CODES
    assert browser.get("/me").status_code == 303, "the session has ended"

    clock.advance(STEP)
    assert entered(there, "apple")[1] == 401
    browser, status = entered(there, "apple", code_at(letters, clock.now()))
    assert status == 303
    assert "10 recovery codes left" in browser.get("/me").text
    secret = invite(broker, "apple", by=ROOT).secret
    path = f"/invitation/{secret}"
    taken = there.browser().post(path, {"password": GOOD + "s", "again": GOOD + "s"})
    assert (taken.status_code, taken.headers["location"]) == (303, "/sign-in"), "a link does not do without it"
    accept(broker, invite(broker, "apple", by=ROOT).secret, GOOD, origin=WHERE)

    browser, _ = entered(there, "apple", codes[0])
    changed = {"old": GOOD, "password": GOOD + "s", "again": GOOD + "s"}
    assert browser.send_form("/me", "/me/password", **changed).status_code != 303
    assert browser.send_form("/me", "/me/password", **changed, code=codes[2]).status_code == 303
    accept(broker, invite(broker, "apple", by=ROOT).secret, GOOD, origin=WHERE)

    browser, _ = entered(there, "apple", codes[3])
    refused = browser.send_form("/me", "/me/second-factor/remove", again=GOOD, code="123456")
    assert refused.status_code == 403
    assert browser.send_form("/me", "/me/second-factor/remove", again=GOOD, code=codes[1]).status_code == 303
    assert entered(there, "apple")[1] == 303


def test_nobody_tries_first_codes_from_a_session(site: Site, timed: tuple[Broker, ManualClock]) -> None:
    """6.3.1: whoever has only the session would get the recovery codes"""
    broker, _ = timed
    there = Site(Company(broker, site.world.wrong, "", "", "", ""), answering(broker))
    browser, _ = entered(there, "apple")
    page = browser.send_form("/me", "/me/second-factor", again=GOOD).text
    form = FormFields(page).forms["/me/second-factor/confirm"]
    tried = [browser.post("/me/second-factor/confirm", form | {"code": "123456"}).status_code for _ in range(11)]
    assert tried == [422] * 10 + [429]


def test_an_administrator_without_one_changes_nobody_where_it_is_asked_for(
    site: Site, timed: tuple[Broker, ManualClock]
) -> None:
    known, clock = timed
    serve = known.settings.serve.model_copy(update={"second_factor_for": SecondFactorFor.EVERYBODY})
    settings = known.settings.model_copy(update={"serve": serve})
    broker = with_clock(Broker(settings, known.registries, known.account, store=known.store), clock)
    there = Site(Company(broker, site.world.wrong, "", "", "", ""), answering(broker))
    browser, _ = entered(there, "adam")
    refused = browser.send_form("/people", "/people", name="eve", again=GOOD)
    assert (refused.status_code, "second factor" in refused.text) == (403, True)
    assert "may only look" in browser.get("/me").text
    assert "eve" not in {one.name for one in people.people(broker)}


def test_an_administrator_with_one_changes_people_with_a_code(site: Site, timed: tuple[Broker, ManualClock]) -> None:
    """A session may have begun with a token: neither that nor a stolen password makes anybody an administrator."""
    broker, clock = timed
    letters, _ = set_up(broker, "adam")
    clock.advance(STEP)
    there = Site(Company(broker, site.world.wrong, "", "", "", ""), answering(broker))
    browser, _ = entered(there, "adam", code_at(letters, clock.now()))
    assert 'name="code"' in browser.get("/people").text
    assert 'name="code"' in browser.get("/people/apple").text
    clock.advance(2 * STEP)
    for code in ("", "000000"):
        refused = browser.send_form("/people", "/people", name="eve", again=GOOD, code=code)
        assert (refused.status_code, "eve" in {one.name for one in people.people(broker)}) == (403, False)
    clock.advance(timedelta(hours=1))  # wrong codes make wait
    added = browser.send_form("/people", "/people", name="eve", again=GOOD, code=code_at(letters, clock.now()))
    assert (added.status_code, "eve" in {one.name for one in people.people(broker)}) == (303, True)
