"""Several processes share the jobs of one PostgreSQL store: each part has one owner, and none is left alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import combinations

import pytest

from broker.core.errors import InvalidInput
from broker.core.values.clock import ManualClock
from broker.store import Store, open_store
from broker.store.engine.job_shares import PARTS, JobShare, part_of
from tests.store.engine.test_leader import end_all_others


def renewed(*shares: JobShare) -> list[frozenset[int]]:
    """Their parts, once each could take what others have given back."""
    for _ in range(2):
        for share in shares:
            share.renew(set)
    return [share.parts for share in shares]


def entered(stack: ExitStack, store: Store) -> JobShare:
    share = stack.enter_context(store.share())
    assert share is not None
    return share


def test_the_part_of_a_job_stays_what_it_is() -> None:
    """Processes of two versions may look after one store while it is upgraded."""
    assert [part_of(job_id) for job_id in ("train-abc123", "train-abc124", "sweep-k2")] == [13, 14, 8]


def test_a_sqlite_store_is_not_shared(tmp_path: object, clock: ManualClock) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db", clock=clock)
    with pytest.raises(InvalidInput, match="cannot be shared"), store.share():
        pass
    store.close()


@pytest.mark.system
def test_parts_move_as_processes_come_and_go(new_postgres_store: Callable[[], str], clock: ManualClock) -> None:
    url = new_postgres_store()
    stores = [open_store(url, clock=clock) for _ in range(3)]
    with ExitStack() as first, ExitStack() as others:
        one = entered(first, stores[0])
        assert renewed(one) == [frozenset(range(PARTS))]
        assert one.first
        two, three = (entered(others, store) for store in stores[1:])
        parts = renewed(one, two, three)
        assert frozenset().union(*parts) == frozenset(range(PARTS))
        assert not any(mine & others for mine, others in combinations(parts, 2))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert sum(share.first for share in (one, two, three)) == 1
        with stores[2].lead() as alone:
            assert alone is None, "nobody leads alone beside them"
        assert stores[2].is_led()
        others.close()
        assert renewed(one) == [frozenset(range(PARTS))]
    with stores[1].lead() as alone:
        assert alone is not None
        with stores[2].share() as share:
            assert share is None, "nobody shares beside one that leads alone"
    for store in stores:
        store.close()


@pytest.mark.system
def test_a_part_with_a_launch_under_way_is_kept(new_postgres_store: Callable[[], str], clock: ManualClock) -> None:
    url = new_postgres_store()
    stores = [open_store(url, clock=clock) for _ in range(2)]
    with ExitStack() as stack:
        one, two = entered(stack, stores[0]), entered(stack, stores[1])
        one.renew(set)  # sees two, and takes its half
        mine = one.parts
        third = open_store(url, clock=clock)
        with third.share():
            busy = [job for job in (f"job-{n}" for n in range(1_000)) if part_of(job) in mine]
            one.renew(lambda: busy)
            assert one.parts == mine
            one.renew(set)
            assert len(one.parts) < len(mine)
        third.close()
        two.renew(set)
        assert not one.parts & two.parts
    for store in stores:
        store.close()


@pytest.mark.system
def test_who_lost_its_connection_has_no_part(new_postgres: Callable[[], str], clock: ManualClock) -> None:
    url = new_postgres()
    one, other = open_store(url, clock=clock), open_store(url, clock=clock)
    with one.share() as share:
        assert share is not None
        share.renew(set)
        end_all_others(url)
        share.renew(set)
        assert not share.parts
        assert not share.still()
        with other.share() as second:
            assert second is not None
            second.renew(set)
            assert second.parts == frozenset(range(PARTS))
            assert not share.still()
    one.close()
    other.close()
