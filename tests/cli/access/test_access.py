"""`gpubroker people`, `tokens` and `audit`."""

import re
import sqlite3
from pathlib import Path

import pytest

from tests.actors import ANN, BOB
from tests.cli.conftest import Gpubroker
from tests.cli.documents import check


@pytest.fixture
def team(gpubroker: Gpubroker) -> Gpubroker:
    """Ann administers; bob is a member of nlp."""
    assert gpubroker("people", "invite", "ann", "--administrator", by=ANN).code == 0
    assert gpubroker("people", "invite", "bob", by=ANN).code == 0
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
    team("people", "disable", "bob", "--undo", by=ANN)
    invited = team("people", "invite", "bob", "--json", by=ANN).json
    check("people-invite", invited)


def test_a_log_that_was_changed_in_the_database_is_told(team: Gpubroker, home: Path) -> None:
    holds = team("audit", "--verify", by=ANN)
    assert (holds.code, holds.out.startswith("5 lines hold. The hash of the last one is ")) == (0, True)
    noted = holds.out.split()[-1].rstrip(".")
    assert team("audit", "--noted", noted, by=ANN).code == 0
    garbled = team("audit", "--noted", "xyz", by=ANN)
    assert (garbled.code, "64 hexadecimal digits" in garbled.err) == (2, True)
    never = team("audit", "--verify", "--noted", "f" * 64, by=ANN)
    assert (never.code, "NO LINE HAS THE HASH fff" in never.out) == (1, True)
    with sqlite3.connect(home / "gpubroker.db") as database:
        database.execute("DROP TRIGGER audit_log_no_update")
        database.execute("UPDATE audit_log SET person = 'bob' WHERE number = 2")
    broken = team("audit", "--verify", by=ANN)
    assert (broken.code, "LINE 2 WAS CHANGED OR REMOVED" in broken.out) == (1, True)
    assert broken.out.startswith("1 line holds. ")
    document = team("audit", "--verify", "--json", by=ANN)
    check("audit-verify", document.json)
    assert (document.code, document.json["lines"], document.json["intact"]) == (1, 1, False)
    assert team("audit", "--verify", by=BOB).code == 3


def test_whoever_is_invited_is_on_record_and_gets_a_link(team: Gpubroker) -> None:
    invited = team("people", "invite", "eve", by=ANN)
    assert re.fullmatch(r"http://127\.0\.0\.1:9464/link/[\w-]{43}\n", invited.out)
    assert "eve signs in there, once, until" in invited.err
    assert team("people", "invite", "bob", "--url", "https://gpus.example.org/", by=ANN).out.startswith(
        "https://gpus.example.org/link/"
    )
    assert "eve" in team("people", "list").out
    log = team("audit", "--subject", "eve", "--json", by=ANN)
    assert [line["action"] for line in log.json["lines"]] == ["people.invite", "people.add"]
    assert invited.out.strip()[-43:] not in log.out


def test_a_service_account_comes_with_its_token(team: Gpubroker) -> None:
    made = team("tokens", "create", "ci", "--service", "--json", by=ANN).json
    assert made["person"] == "ci"
    assert [one["service"] for one in team("people", "list", "--json").json["people"]] == [False, False, True]
    assert team("tokens", "create", "ci", "--service", by=ANN).code == 0


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
    assert team("people", "disable", "bob", "--undo", by=ANN).out == "bob: nlp:member\n"
    assert team("people", "withdraw", "bob", "--team", "nlp", by=ANN).out == "bob: no role\n"


def test_others_are_told_whom_to_ask(team: Gpubroker) -> None:
    for command in (["people", "invite", "eve"], ["tokens", "create", "bob"], ["audit"]):
        refused = team(*command, by=BOB)
        assert refused.code == 3
        assert "ask ann" in refused.err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["people", "grant", "bob", "membre", "--team", "nlp"], "did you mean 'member'"),
        (["people", "withdraw", "bob", "--role", "member"], "unknown global role"),
        (["people", "withdraw", "bob"], "--role or --team"),
        (["people", "add", "eve"], "`gpubroker people add` is now `gpubroker people invite`"),
        (["people", "invite", "a b"], "not a valid name of a person"),
        (["people", "invite", "bob", "--administrator"], "people grant bob administrator"),
        (["people", "invite", "bob", "--expires", "8d"], "at most 7d"),
        (["people", "invite", "bob", "--subject", "x"], "no identity provider"),
        (["tokens", "create", "bob", "--service"], "bob is a person"),
        (["tokens", "create", "bob", "--label", "sign-in"], "means a session of the web UI"),
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
