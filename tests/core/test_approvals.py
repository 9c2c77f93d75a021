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
