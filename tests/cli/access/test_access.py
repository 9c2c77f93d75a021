"""`gpubroker people`, `tokens` and `audit`."""

from __future__ import annotations

import re
from base64 import b32decode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

from broker.core.access.passwords import StoredPassword
from broker.core.values.clock import SystemClock
from broker.store import open_store
from tests.actors import ANN, BOB
from tests.cli.conftest import Gpubroker
from tests.cli.documents import check


@pytest.fixture
def team(gpubroker: Gpubroker) -> Gpubroker:
    """Ann administers; bob is a member of nlp."""
    assert gpubroker("people", "add", "ann", "--administrator", by=ANN).code == 0
    assert gpubroker("people", "add", "bob", by=ANN).code == 0
    assert gpubroker("people", "grant", "bob", "member", "--team", "nlp", by=ANN).code == 0
    return gpubroker


def test_people_tokens_and_the_log_are_as_their_schemas_say(team: Gpubroker) -> None:
    people = team("people", "list", "--json").json
    check("people-list", people)
    assert [(one["name"], one["roles"], one["teams"]) for one in people["people"]] == [
        ("ann", ["administrator"], {}),
        ("bob", [], {"nlp": "member"}),
    ]
    made = team("tokens", "create", "bob", "--scope", "read", "--scope", "jobs", "--json", by=ANN).json
    check("tokens-create", made)
    assert made["token"].startswith(f"gpb_{made['id']}_")
    listed = team("tokens", "list", "--person", "bob", "--json")
    check("tokens-list", listed.json)
    assert made["token"] not in listed.out, "shown once"
    gone = team("tokens", "revoke", made["id"], "--json", by=ANN).json
    check("token", gone)
    assert not gone["good"]
    person = team("people", "disable", "bob", "--json", by=ANN).json
    check("person", person)
    log = team("audit", "--json", by=ANN)
    check("audit", log.json)
    assert [line["action"] for line in log.json["lines"]][:3] == ["people.disable", "tokens.revoke", "tokens.create"]
    assert made["token"] not in log.out
    team("people", "enable", "bob", by=ANN)
    invited = team("people", "invite", "bob", "--json", by=ANN).json
    check("people-invite", invited)
    assert invited["link"].startswith("http://127.0.0.1:9464/invitation/")


def test_a_second_factor_is_set_up_and_removed_by_command(team: Gpubroker, home: Path) -> None:
    refused = team("people", "second-factor", "bob", by=ANN)
    assert (refused.code, "does not sign in with a password" in refused.err) == (2, True)
    store, now = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock()), SystemClock().now()
    with store.access.writing() as tx:
        tx.keep_password(StoredPassword("bob", "a hash", now))
    store.close()
    begun = team("people", "second-factor", "bob", "--json", by=ANN).json
    check("people-second-factor", begun)
    assert begun["letters"] in begun["uri"]
    code = TOTP(b32decode(begun["letters"]), 6, SHA1(), 30).generate(int(now.timestamp())).decode()
    assert team("people", "second-factor", "bob", "--code", "1", by=ANN).code != 0
    confirmed = team("people", "second-factor", "bob", "--code", code, "--json", by=ANN).json
    check("people-second-factor", confirmed)
    assert len(confirmed["recovery_codes"]) == 10
    assert team("people", "second-factor", "bob", "--remove", by=BOB).code == 3
    assert "leave one" in team("people", "second-factor", "bob", "--code", code, "--remove", by=ANN).err
    assert "without a second factor" in team("people", "second-factor", "bob", "--remove", by=ANN).out


def test_the_token_alone_goes_to_stdout(team: Gpubroker) -> None:
    made = team("tokens", "create", "bob", by=ANN)
    assert re.fullmatch(r"gpb_[0-9a-f]{12}_[0-9a-f]{64}\n", made.out)
    assert "shown only once" in made.err
    assert made.out.strip() not in made.err


def test_tables_tell_roles_and_states(team: Gpubroker) -> None:
    made = team("tokens", "create", "bob", "--label", "laptop", "--json", by=ANN).json
    assert "nlp:member" in team("people", "list").out
    assert "valid" in team("tokens", "list").out
    team("tokens", "revoke", made["id"], by=ANN)
    assert "revoked" in team("tokens", "list").out
    assert "tokens.revoke" in team("audit", by=ANN).out
    assert team("people", "enable", "bob", by=ANN).out == "bob: nlp:member\n"
    assert team("people", "withdraw", "bob", "--team", "nlp", by=ANN).out == "bob: no role\n"


def test_others_are_told_whom_to_ask(team: Gpubroker) -> None:
    for command in (["people", "add", "eve"], ["tokens", "create", "bob"], ["audit"]):
        refused = team(*command, by=BOB)
        assert refused.code == 3
        assert "ask ann" in refused.err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["people", "grant", "bob", "membre", "--team", "nlp"], "did you mean 'member'"),
        (["people", "withdraw", "bob", "--role", "member"], "unknown global role"),
        (["people", "withdraw", "bob"], "--role or --team"),
        (["people", "add", "a b"], "no name of a person"),
        (["tokens", "create", "bob", "--scope", "reed"], "did you mean 'read'"),
        (["tokens", "create", "bob", "--expires", "1y"], "--expires"),
        (["tokens", "create", "bob", "--expires", "91d"], "at most 90d"),
        (["tokens", "revoke", "0"], "unknown token"),
    ],
)
def test_mistakes_are_told_with_what_to_do(team: Gpubroker, command: list[str], says: str) -> None:
    wrong = team(*command, by=ANN)
    assert wrong.code == 2
    assert says in wrong.err
