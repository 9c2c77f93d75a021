"""Two processes that look after the jobs of one store at once, killed again and again: nothing is launched twice, no
budget is passed, every job ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.replicas.play import ReplicaPlay, play

pytestmark = [pytest.mark.long, pytest.mark.system, pytest.mark.timeout(400)]


def test_killed_again_and_again(tmp_path: Path, new_postgres: Callable[[], str]) -> None:
    # A job holds its max_cost, $0.50, until it has ended: the budget is for some of those that are open at once.
    found = play(tmp_path, new_postgres(), ReplicaPlay(jobs=150, kill_every=4.0, amount=30))
    print(found)
    assert found.problems == []
    assert found.kills >= 2
    assert found.refused, "the budget was never in question"
    assert found.submitted == 150, "money came back"
