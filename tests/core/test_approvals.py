"""Whom somebody may ask."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from broker.core.approvals import Asked, Question


@pytest.mark.parametrize(
    ("approvers", "own", "whom"),
    [
        (("alice", "bob"), False, "bob"),
        (("alice", "bob"), True, "alice or bob"),
        (("lead-*",), False, "lead-*"),
        (("alice",), False, "alice"),  # nobody else is named, and saying so is what the answer is for
    ],
)
def test_nobody_is_told_to_ask_themselves(approvers: tuple[str, ...], own: bool, whom: str) -> None:
    question = Question(rule="dear", approvers=approvers, because="dear", own_requests=own)
    asked = Asked(datetime(2026, 11, 21, tzinfo=UTC), (question,))
    assert asked.whom("alice") == whom


def test_where_several_must_say_yes_all_of_them_are_named() -> None:
    rules = {"dear": ("bob", "alice"), "big": ("carl", "bob"), "long": ("bob",)}
    asked = Asked(datetime(2026, 11, 21, tzinfo=UTC), tuple(Question(rule=r, approvers=a) for r, a in rules.items()))
    assert asked.whom("alice") == "bob, and bob or carl"
    assert asked.answered("bob", ["dear"]).whom("alice") == "bob or carl, and bob"
    assert asked.answered("bob", ["dear", "big"]).whom("dora") == "bob"
