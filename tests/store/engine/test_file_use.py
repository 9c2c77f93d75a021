"""Submissions use snapshots side by side; a deletion uses them alone."""

from __future__ import annotations

from broker.store import Store


def test_submissions_side_by_side_and_deletions_alone(store: Store) -> None:
    with store.using_snapshots(), store.using_snapshots(), store.deleting_snapshots(wait=0) as alone:
        assert not alone
    with store.deleting_snapshots(wait=0) as alone, store.deleting_snapshots(wait=0) as second:
        assert (alone, second) == (True, False)
    with store.deleting_snapshots(wait=0) as alone:
        assert alone, "given back"
