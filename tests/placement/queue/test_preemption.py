"""Who gives way: the least work lost of all possible choices, and nobody who is protected, not needed, or not worth
it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import chain, combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.job.jobs import Priority
from broker.core.market.shares import MachineShare
from broker.core.ports import PreemptionRight
from broker.core.values.money import Money
from broker.placement.queue.preemption import Preemption, RunningJob, least_lost, preemptions
from broker.placement.queue.queue import Free, QueueEntry, QueueOption, QueueRules
from broker.placement.queue.search import place

HOUR = timedelta(hours=1)
RIGHTS = {Priority.URGENT: PreemptionRight(Priority.URGENT, timedelta(minutes=30), 2)}


def runs(name: str, lost: str = "1", machines: int = 1, **changed: Any) -> RunningJob:
    job = RunningJob(name, 1, Priority.LOW, "own", machines, Money.usd(lost), HOUR)
    return replace(job, **changed)


def asker(name: str = "u", nodes: int = 1, **changed: object) -> QueueEntry:
    """A job that waits for machines of the pool, at $16 an hour."""
    fields = {"team": "t", "priority": Priority.URGENT, "nodes": nodes, "gpus": 8, "needs": 4.0}
    return QueueEntry(**{"id": name, "options": (QueueOption("own@x", "own", 4, 0, 0),), **fields, **changed})  # type: ignore[arg-type]


def taken(
    waiting: Sequence[QueueEntry], running: Sequence[RunningJob], free: int = 0, returns: float = 10.0
) -> dict[str, Preemption]:
    """The places that could be taken. What runs leaves after so many hours."""
    pools = {"own": Free.of(free, [(returns, sum(int(str(job.amount)) for job in running))])}
    rules = QueueRules()
    return preemptions(place(waiting, pools, rules), pools, running, RIGHTS, rules)


SHARES = st.builds(
    lambda cpus, mib, gpus: MachineShare(cpus * 1000, mib * 1024, (("H100", gpus),) if gpus else ()),
    st.integers(0, 4), st.integers(0, 4), st.integers(0, 2),
)  # fmt: skip
COSTS = st.integers(0, 5)


@given(st.data())
def test_no_other_choice_loses_less(data: st.DataObject) -> None:
    amounts = data.draw(st.sampled_from([st.integers(1, 4), SHARES]))
    jobs = [
        runs(f"j{i}", f"0.{cost}", amount=amount)
        for i, (amount, cost) in enumerate(data.draw(st.lists(st.tuples(amounts, COSTS), max_size=8)))
    ]
    missing: Any = data.draw(st.integers(1, 12) if amounts is not SHARES else SHARES)

    def value(chosen: Sequence[RunningJob]) -> tuple[int, int]:
        return sum(job.lost.micros for job in chosen), len(chosen)

    def frees(chosen: Sequence[RunningJob]) -> bool:
        total = missing - missing
        for job in chosen:
            total += job.amount
        return bool(total >= missing)

    every = chain.from_iterable(combinations(jobs, size) for size in range(len(jobs) + 1))
    best = min((value(chosen) for chosen in every if frees(chosen)), default=None)
    chosen = least_lost(jobs, missing)
    assert (None if chosen is None else value(chosen)) == best
    assert chosen is None or frees(chosen)


def test_of_equal_losses_the_fewest_jobs() -> None:
    jobs = [runs("a", "1"), runs("b", "1"), runs("c", "2", machines=2)]
    assert [job.id for job in least_lost(jobs, 2) or ()] == ["c"]


def test_it_takes_the_place_of_the_one_that_loses_least() -> None:
    found = taken([asker()], [runs("a", "9"), runs("b", "2"), runs("c", "5")])["u"]
    assert [job.id for job in found.jobs] == ["b"]
    assert (found.lost, found.worth, found.pays) == (Money.usd(2), Money.usd("158.4"), True)


def test_a_wait_that_costs_less_than_the_work_is_waited_for() -> None:
    assert not taken([asker()], [runs("a", "158.4")])["u"].pays
    assert taken([asker()], [runs("a", "158.39")])["u"].pays
    assert taken([asker()], [runs("a", "0")], returns=0.1) == {}, "it is stopping already"


@pytest.mark.parametrize(
    "protected",
    [
        {"priority": Priority.URGENT},
        {"ran": timedelta(minutes=29)},
        {"gave_way": 2},
        {"pool": "other"},
    ],
)
def test_others_stay(protected: dict[str, Any]) -> None:
    assert taken([asker()], [runs("a", **protected)]) == {}
    assert [job.id for job in taken([asker()], [runs("a", **protected), runs("b", "7")])["u"].jobs] == ["b"]


@pytest.mark.parametrize("at_the_edge", [{"ran": timedelta(minutes=30)}, {"gave_way": 1}, {"priority": Priority.HIGH}])
def test_protection_ends(at_the_edge: dict[str, Any]) -> None:
    assert taken([asker()], [runs("a", **at_the_edge)])["u"].pays


def test_nobody_stops_in_vain() -> None:
    jobs = [runs("a", machines=2), runs("b", "5", ran=timedelta(0))]
    assert taken([asker(nodes=3)], jobs) == {}, "two machines would not be enough"
    assert [job.id for job in taken([asker(nodes=3)], jobs, free=1)["u"].jobs] == ["a"]


def test_without_the_right_to_it_a_job_waits() -> None:
    assert taken([asker(priority=Priority.HIGH)], [runs("a")]) == {}


def test_only_the_first_in_line_takes_a_place() -> None:
    first = asker("first", handed_in=-2.0)
    found = taken([asker("second", handed_in=-1.0), first], [runs("a"), runs("b")])
    assert {name: [job.id for job in one.jobs] for name, one in found.items()} == {"first": ["a"]}


def test_of_several_pools_the_one_with_the_least_loss() -> None:
    options = (QueueOption("own@x", "own", 4, 0, 0), QueueOption("far@x", "far", 4, 0, 3.0))
    free = {pool: Free.of(0, [(10.0, 1)]) for pool in ("own", "far")}
    turns, rules = place([asker(options=options)], free), QueueRules()
    for lost, pool in (("4", "own"), ("6", "far")):
        running = [runs("a", lost), runs("b", "2", pool="far")]
        assert [job.pool for job in preemptions(turns, free, running, RIGHTS, rules)["u"].jobs] == [pool]
