"""The text of tokens."""

from datetime import UTC, datetime, timedelta

import pytest

from broker.core.access.api_tokens import ApiToken, digest_of, id_of, new_text
from broker.core.access.people import check_name, check_team
from broker.core.errors import InvalidInput

TEXT = f"gpb_{'a' * 12}_{'b' * 64}"  # of the form of a token
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_a_token_is_found_by_its_id_and_known_by_its_hash() -> None:
    text = new_text()
    id = id_of(text)
    assert id is not None
    token = ApiToken(id, "ann", "", frozenset(), digest_of(text), NOW, "ann", NOW + timedelta(days=1))
    assert token.has_text(text)
    assert not token.has_text(new_text())
    assert text not in repr(token), "what is kept does not tell the token"
    assert text.rpartition("_")[2] not in repr(token)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gpb_",
        "gpb_0_1",
        "Bearer x",
        TEXT + "0",
        TEXT[:-1],
        TEXT.upper(),
        TEXT + "\n",
        "é" * 81,
    ],
)
def test_what_cannot_be_a_token_is_not_looked_up(text: str) -> None:
    assert id_of(text) is None


def test_it_is_good_until_the_moment_it_expires() -> None:
    token = ApiToken("0", "ann", "", frozenset(), "", NOW, "ann", NOW + timedelta(days=1))
    assert token.good(NOW + timedelta(days=1) - timedelta(microseconds=1))
    assert not token.good(NOW + timedelta(days=1))


@pytest.mark.parametrize("name", ["", "a b", "-x", "ann\n", "<script>", "a" * 65, "ann/../bob"])
def test_names_cannot_be_taken_for_something_else(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_name(name)
    with pytest.raises(InvalidInput):
        check_team(name)


def test_teams_are_no_patterns() -> None:
    with pytest.raises(InvalidInput):
        check_team("nlp*")
    assert check_name("ann@example.org") == "ann@example.org"
