"""Submissions use snapshots side by side; a deletion uses them alone."""

from __future__ import annotations

from contextlib import ExitStack

from broker.store import Store
from broker.store.engine.leader import LeaderRole


def test_submissions_side_by_side_and_deletions_alone(store: Store) -> None:
    with store.using_snapshots(), store.using_snapshots(), store.deleting_snapshots(wait=0) as alone:
        assert not alone
    with store.deleting_snapshots(wait=0) as alone, store.deleting_snapshots(wait=0) as second:
        assert (alone, second) == (True, False)
    with store.deleting_snapshots(wait=0) as alone:
        assert alone, "given back"


def test_a_service_with_all_its_duties_keeps_no_submission_waiting(store: Store) -> None:
    with ExitStack() as duties:
        for duty in LeaderRole:
            assert duties.enter_context(store.lead(duty)) is not None
        with store.deleting_snapshots(wait=0) as alone:
            assert alone
