"""Who may change people and tokens, whom a token lets in, and what the audit log tells of it."""

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from broker.app.access import device_logins, people, tokens
from broker.app.wiring import Broker
from broker.core.access.api_tokens import MAX_VALIDITY
from broker.core.access.people import Access, Permission, TeamRole, TokenScope
from broker.core.actors import Actor, Role
from broker.core.errors import InvalidInput, NotAllowed, UnknownName
from broker.core.values.clock import ManualClock
from tests.actors import ANN, BOB, ROOT, with_clock

READ = [TokenScope.READ]
DAY = timedelta(days=1)


@pytest.fixture
def broker(new_broker: Callable[[], Broker], clock: ManualClock) -> Broker:
    """A store with ann, its administrator, and bob, a member of nlp."""
    made = with_clock(new_broker(), clock)
    people.add(made, "ann", by=ANN, administrator=True)
    people.add(made, "bob", by=ANN)
    people.give_role(made, "bob", TeamRole.MEMBER, "nlp", by=ANN)
    return made


def text_for(broker: Broker, person: str = "bob", expires: timedelta = DAY) -> str:
    return tokens.create(broker, person, "", READ, expires, by=ANN).text


def test_the_first_person_is_an_administrator(new_broker: Callable[[], Broker]) -> None:
    broker = new_broker()
    with pytest.raises(NotAllowed, match="only an administrator") as refused:
        people.add(broker, "ann", by=ANN)
    assert "people invite ann --administrator" in refused.value.hint
    assert people.add(broker, "ann", by=ANN, administrator=True).roles == {Role.ADMINISTRATOR}
    with pytest.raises(InvalidInput, match="ann exists already") as taken:
        people.add(broker, "ann", by=ANN, administrator=True)
    assert taken.value.hint == "`gpubroker people list`"
    with pytest.raises(NotAllowed, match="bob is none") as refused:
        people.add(broker, "bob", by=BOB, administrator=True)
    assert refused.value.hint == "ask ann"
    with broker.store.access.reading() as look, pytest.raises(NotAllowed, match="only a gate or an administrator"):
        people.require_permission(look, BOB, Permission.JUDGE_LAUNCHES)


def test_the_logins_of_programs_end_when_the_roles_change(broker: Broker, clock: ManualClock) -> None:
    """A login has the scopes of an earlier session; a token that an administrator gave is theirs to revoke."""

    def logged_in(name: str) -> str:
        with broker.store.access.writing() as tx:
            owner = tx.person(name)
            assert owner is not None
            return tokens.issue_token(tx, owner, "laptop", READ, DAY, by=Actor(name), now=clock.now()).text

    given = text_for(broker)
    changes: list[Callable[[], object]] = [
        lambda: people.give_role(broker, "bob", TeamRole.APPROVER, "nlp", by=ANN),
        lambda: people.give_role(broker, "bob", TeamRole.VIEWER, "nlp", by=ANN),
        lambda: people.take_role(broker, "bob", team="nlp", by=ANN),
    ]
    for change in changes:
        own = logged_in("bob")
        people.disable(broker, "bob", by=ANN)
        people.enable(broker, "bob", by=ANN)
        assert tokens.authenticate(broker, own), "the roles are the same"
        change()
        assert tokens.authenticate(broker, own) is None
    assert tokens.authenticate(broker, given)
    of_ann = logged_in("ann")
    people.give_role(broker, "ann", TeamRole.MEMBER, "nlp", by=ANN)
    assert tokens.authenticate(broker, of_ann), "an administrator may do no more by that"


def test_a_login_granted_before_the_roles_changed_is_not_collected_after(broker: Broker) -> None:
    def granted(name: str) -> str:
        codes = device_logins.begin_login(broker, "laptop", frozenset(READ), address="127.0.0.1")
        with broker.store.access.reading() as look:
            owner = people.get_person(look, name)
        access = Access(owner, frozenset(READ))
        device_logins.decide_login(broker, codes.user_code, access, grant=True, by=Actor(name))
        return codes.device_code

    early, of_ann = granted("bob"), granted("ann")
    people.give_role(broker, "bob", TeamRole.APPROVER, "nlp", by=ANN)
    assert device_logins.collect_token(broker, early) is device_logins.DeviceAnswer.UNKNOWN
    assert isinstance(device_logins.collect_token(broker, of_ann), tokens.NewToken)
    assert isinstance(device_logins.collect_token(broker, granted("bob")), tokens.NewToken)


CHANGES: dict[str, Callable[[Broker, Actor], object]] = {
    "add": lambda broker, by: people.add(broker, "eve", by=by),
    "grant": lambda broker, by: people.give_role(broker, "bob", Role.ADMINISTRATOR, by=by),
    "withdraw": lambda broker, by: people.take_role(broker, "bob", team="nlp", by=by),
    "disable": lambda broker, by: people.disable(broker, "bob", by=by),
    "enable": lambda broker, by: people.enable(broker, "bob", by=by),
    "create": lambda broker, by: tokens.create(broker, "bob", "", READ, DAY, by=by),
    "revoke": lambda broker, by: tokens.revoke(broker, tokens.tokens(broker)[0].id, by=by),
    "audit": lambda broker, by: people.audit_log(broker, by=by, limit=5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_only_administrators_change_people_and_tokens(broker: Broker, change: str) -> None:
    text_for(broker)
    people.add(broker, "fay", by=ANN)
    people.give_role(broker, "fay", Role.FINOPS, by=ANN)
    people.give_role(broker, "fay", TeamRole.TEAM_ADMINISTRATOR, "nlp", by=ANN)
    before = people.people(broker), tokens.tokens(broker)
    for nobody in (BOB, Actor("fay"), Actor("stranger")):
        with pytest.raises(NotAllowed):
            CHANGES[change](broker, nobody)
    assert (people.people(broker), tokens.tokens(broker)) == before
    CHANGES[change](broker, ROOT)


def test_an_administrator_who_is_disabled_is_none(broker: Broker) -> None:
    people.give_role(broker, "bob", Role.ADMINISTRATOR, by=ANN)
    people.disable(broker, "ann", by=BOB)
    with pytest.raises(NotAllowed):
        people.enable(broker, "ann", by=ANN)


def test_the_last_administrator_stays(broker: Broker) -> None:
    with pytest.raises(InvalidInput, match="last administrator"):
        people.disable(broker, "ann", by=ANN)
    with pytest.raises(InvalidInput, match="last administrator"):
        people.take_role(broker, "ann", Role.ADMINISTRATOR, by=ANN)
    people.give_role(broker, "bob", Role.ADMINISTRATOR, by=ANN)
    assert people.take_role(broker, "ann", Role.ADMINISTRATOR, by=ANN).roles == frozenset()


def test_a_program_is_no_administrator(broker: Broker) -> None:
    with pytest.raises(InvalidInput):
        people.add(broker, "ci", by=ANN, service=True, administrator=True)
    people.add(broker, "ci", by=ANN, service=True)
    with pytest.raises(InvalidInput, match="service account"):
        people.give_role(broker, "ci", Role.ADMINISTRATOR, by=ANN)


def test_roles_say_where_they_hold(broker: Broker) -> None:
    with pytest.raises(InvalidInput, match="role in a team"):
        people.give_role(broker, "bob", TeamRole.MEMBER, by=ANN)
    with pytest.raises(InvalidInput, match="is a global role"):
        people.give_role(broker, "bob", Role.FINOPS, "nlp", by=ANN)
    with pytest.raises(UnknownName, match="did you mean 'bob'"):
        people.give_role(broker, "bop", Role.FINOPS, by=ANN)


def test_a_token_ends_at_once_in_every_process(
    broker: Broker, new_broker: Callable[[], Broker], clock: ManualClock
) -> None:
    other = with_clock(new_broker(), clock)
    text = text_for(broker)
    assert tokens.authenticate(other, text)
    tokens.revoke(broker, tokens.tokens(broker)[0].id, by=ANN)
    assert tokens.authenticate(other, text) is None
    second = text_for(broker)
    people.disable(broker, "bob", by=ANN)
    assert tokens.authenticate(other, second) is None
    people.enable(broker, "bob", by=ANN)
    assert tokens.authenticate(other, second)
    assert tokens.authenticate(other, text) is None, "revoked is for ever"


@pytest.mark.parametrize("expires", [timedelta(0), -DAY, MAX_VALIDITY + timedelta(seconds=1)])
def test_no_token_is_good_for_ever(broker: Broker, expires: timedelta) -> None:
    with pytest.raises(InvalidInput, match="at most 90d"):
        text_for(broker, expires=expires)


def test_only_a_hash_is_kept_and_the_log_tells_no_secret(broker: Broker, tmp_path: Path) -> None:
    text = text_for(broker)
    secret = text.rpartition("_")[2]
    with sqlite3.connect(tmp_path / "store.db") as database:
        dump = "\n".join(database.iterdump())
    database.close()
    assert tokens.tokens(broker)[0].id in dump
    assert secret not in dump


def test_a_token_is_revoked_by_its_id_or_its_whole_text_which_is_never_told(broker: Broker) -> None:
    one, other = (tokens.create(broker, "bob", "", {TokenScope.READ}, DAY, by=ANN) for _ in range(2))
    assert tokens.revoke(broker, one.text, by=ANN).id == one.token.id
    assert tokens.revoke(broker, f"gpb_{other.token.id}", by=ANN).revoked_by == "ann"
    secret = one.text.rsplit("_", 1)[1]
    for wrong in (f"gpb_{'0' * 12}_{secret}", secret, f"{one.token.id}{secret}x"):
        with pytest.raises(UnknownName) as told:
            tokens.revoke(broker, wrong, by=ANN)
        assert secret[16:] not in f"{told.value} {told.value.hint}"


def test_a_program_never_approves(broker: Broker) -> None:
    people.add(broker, "nightly", service=True, by=ANN)
    for role in (TeamRole.APPROVER, TeamRole.TEAM_ADMINISTRATOR):
        with pytest.raises(InvalidInput, match="is a service account and cannot be"):
            people.give_role(broker, "nightly", role, "nlp", by=ANN)
    with pytest.raises(InvalidInput, match="never approves"):
        tokens.create(broker, "nightly", "", {TokenScope.APPROVALS}, DAY, by=ANN)


def test_the_audit_log_tells_who_changed_what(broker: Broker) -> None:
    people.give_role(broker, "bob", TeamRole.APPROVER, "nlp", by=ANN)
    people.give_role(broker, "bob", TeamRole.APPROVER, "nlp", by=ANN)  # changes nothing, so there is nothing to tell
    told = [(line.person, line.action, line.subject, line.before, line.after)
            for _, line in people.audit_log(broker, by=ANN, limit=10)]  # fmt: skip
    assert told == [
        ("ann", "people.role", "bob", "nlp:member", "nlp:approver"),
        ("ann", "people.role", "bob", "no role", "nlp:member"),
        ("ann", "people.add", "bob", "", "no role"),
        ("ann", "people.add", "ann", "", "administrator"),
    ]
    assert len(people.audit_log(broker, by=ANN, limit=10, subject="ann")) == 1
