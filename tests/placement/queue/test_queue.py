"""Many jobs at once: rounds that can be kept, rules that hold whatever the jobs, and how near the best there is."""

import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.job.jobs import Priority
from broker.placement.queue.queue import (
    TIERS,
    Free,
    QueueEntry,
    QueueOption,
    QueueRules,
    Turn,
    order_by_turn,
    total,
    weights,
)
from broker.placement.queue.search import Holds, Round, Search, place
from tests.counts import FULL
from tests.placement.queue.exact import place_exactly
from tests.steps import calls


def job(name: str = "a", hours: float = 4, price: float | None = 10, **changed: object) -> QueueEntry:
    """A job for the pool ``own`` or, at ``price`` USD an hour, for any machine elsewhere."""
    options = [QueueOption("own", "own", hours, 0.0, 0.0)]
    if price is not None:
        options.append(QueueOption("cloud", None, hours, price * hours, price * hours))
    fields = {"team": "t", "priority": Priority.NORMAL, "nodes": 1, "gpus": 8, "needs": hours}
    return QueueEntry(**{"id": name, "options": tuple(options), **fields, **changed})  # type: ignore[arg-type]  # any field


def started(turns: Sequence[Turn]) -> dict[str, tuple[str, float]]:
    return {turn.entry.id: (turn.option.name, turn.start) for turn in turns if turn.option}


def check_capacity(turns: Sequence[Turn], free: dict[str, Free]) -> None:
    """At no time does a pool give more than it has; a gang gets all of its machines at once, and in one place."""
    for pool, of in free.items():
        mine = [t for t in turns if t.option is not None and t.option.pool == pool]
        for at in sorted({t.start for t in mine} | {step for step, _ in of.steps}):
            busy = sum(t.entry.nodes for t in mine if t.start <= at + 1e-6 and at + 1e-6 < (t.finish or 0))
            have = [number for step, number in of.steps if step <= at + 1e-6][-1]
            assert busy <= have


@st.composite
def queues(draw: st.DrawFn) -> tuple[list[QueueEntry], dict[str, Free]]:
    chance = random.Random(draw(st.integers(0, 10**9)))
    return queue(chance, draw(st.integers(0, 12)), draw(st.booleans()))


def queue(chance: random.Random, number: int, elastic: bool = True) -> tuple[list[QueueEntry], dict[str, Free]]:
    """Jobs of some teams and priorities, a few small pools, machines elsewhere at a price (if ``elastic``)."""
    pools = {f"p{n}": Free.of(chance.randint(0, 3), [(chance.randint(1, 8), chance.randint(1, 3))]) for n in range(3)}
    entries = []
    for n in range(number):
        hours, nodes = chance.randint(1, 8), chance.choice((1, 1, 1, 2, 3))
        value = chance.choice((None, None, chance.uniform(0.1, 20)))

        def option(name: str, pool: str | None, takes: float, cost: float, value: float = value or 0.0) -> QueueOption:
            return QueueOption(name, pool, takes, cost, cost + value * takes)

        options = [
            option(pool, pool, max(round(hours * chance.choice((0.5, 1, 2))), 1), round(chance.random() * hours, 2))
            for pool in chance.sample(sorted(pools), chance.randint(1, 3))
            if pools[pool].steps[-1][1] >= nodes
        ]
        if elastic or not options:
            options.append(option("cloud", None, hours, hours * nodes * chance.uniform(2, 20)))
        entries.append(
            QueueEntry(
                id=f"j{n:04}",
                team=chance.choice("abc"),
                priority=chance.choice(TIERS),
                nodes=nodes,
                gpus=8 * nodes,
                options=tuple(options),
                deadline=chance.choice((None, None, hours + chance.randint(0, 12))),
                handed_in=-chance.random(),
                needs=hours,
                value_of_time=value,
            )
        )
    return entries, pools


class TestByHand:
    def test_who_would_pay_most_elsewhere_gets_what_is_ours(self) -> None:
        own = {"own": Free.of(1)}
        turns = started(place([job("a", price=0.5, hours=200), job("b", price=30, hours=200)], own))
        assert turns == {"a": ("cloud", 0), "b": ("own", 0)}

    def test_waiting_is_weighed_against_paying(self) -> None:
        own = {"own": Free.of(0, [(2, 1)])}
        assert started(place([job("a", price=10)], own)) == {"a": ("own", 2)}
        assert started(place([job("a", price=0.1)], own)) == {"a": ("cloud", 0)}
        assert started(place([job("a", price=10, priority=Priority.URGENT)], {"own": Free.of(0, [(3, 1)])})) == {
            "a": ("cloud", 0)
        }

    def test_a_deadline_is_kept_at_a_price(self) -> None:
        own = {"own": Free.of(0, [(2, 1)])}
        (turn,) = place([job("a", price=1000, deadline=5.0)], own)
        assert (turn.option and turn.option.name, turn.late) == ("cloud", False)
        (turn,) = place([job("a", price=None, deadline=5.0)], own)
        assert (turn.start, turn.late) == (2, True)

    def test_nothing_outweighs_being_late_not_even_a_long_wait_of_many(self) -> None:
        own = {"own": Free.of(1)}
        pressing = job("a", price=None, hours=10, deadline=10.0)
        large = [job(f"b{n}", price=None, hours=10, gpus=512, value_of_time=900.0) for n in range(3)]
        turns = place([pressing, *large], own)
        assert (started(turns)["a"], total(turns)[0]) == (("own", 0), 0)
        assert total(place_exactly([pressing, *large], own))[0] == 0

    def test_a_gang_gets_all_or_nothing(self) -> None:
        own = {"own": Free.of(2, [(3, 2)])}
        gang = job("gang", price=None, nodes=4, gpus=32)
        assert started(place([gang], own)) == {"gang": ("own", 3)}
        (turn,) = place([replace(gang, nodes=5)], own)
        assert turn.option is None

    def test_teams_take_turns(self) -> None:
        own = {"own": Free.of(1)}
        many = [job(f"a{n}", price=None, team="a", handed_in=-9.0) for n in range(5)]
        turns = place([*many, job("b", price=None, team="b")], own)
        assert started(turns)["b"][1] <= 4
        assert [entry.team for entry in order_by_turn([*many, job("b", team="b")])][:3] in (list("aba"), list("baa"))
        assert order_by_turn([*many, job("b", team="b")], {"a": 2})[0].team == "b"

    def test_what_would_soon_be_late_goes_before_fairness(self) -> None:
        pressing = [job(f"a{n}", team="a", deadline=5.0) for n in range(3)]
        assert [entry.id for entry in order_by_turn([job("b", team="b"), *pressing])] == ["a0", "a1", "a2", "b"]

    def test_a_free_gap_is_used(self) -> None:
        """A short job runs while a gang waits for its machines."""
        own = {"own": Free.of(1, [(4, 1)])}
        gang = job("gang", price=None, nodes=2, gpus=16, priority=Priority.HIGH)
        assert started(place([gang, job("short", price=None)], own)) == {"gang": ("own", 4), "short": ("own", 0)}


class TestRules:
    @given(queues())
    @settings(max_examples=200 if FULL else 12, deadline=None)
    def test_rounds_can_be_kept(self, known: tuple[list[QueueEntry], dict[str, Free]]) -> None:
        entries, free = known
        turns = place(entries, free, effort=2_000)
        assert sorted(t.entry.id for t in turns) == [e.id for e in entries]
        assert all(t.option is None or t.option in t.entry.options for t in turns)
        check_capacity(turns, free)

    @given(queues(), st.sampled_from(TIERS))
    @settings(max_examples=200 if FULL else 12, deadline=None)
    def test_lower_priorities_change_nothing_for_higher_ones(
        self, known: tuple[list[QueueEntry], dict[str, Free]], tier: Priority
    ) -> None:
        entries, free = known
        high = [entry for entry in entries if TIERS.index(entry.priority) <= TIERS.index(tier)]
        alone, among = place(high, free, effort=2_000), place(entries, free, effort=2_000)
        assert alone == [turn for turn in among if turn.entry in high]

    @given(queues())
    @settings(max_examples=200 if FULL else 12, deadline=None)
    def test_who_can_be_in_time_is(self, known: tuple[list[QueueEntry], dict[str, Free]]) -> None:
        entries, free = known
        for turn in place(entries, free, effort=2_000):
            elsewhere = [o for o in turn.entry.options if o.pool is None]
            if turn.entry.deadline is None or any(o.hours <= turn.entry.deadline for o in elsewhere):
                assert not turn.late

    @given(queues(), st.integers(0, 99))
    @settings(max_examples=60 if FULL else 5, deadline=None)
    def test_the_same_whatever_the_order_it_is_told_in(
        self, known: tuple[list[QueueEntry], dict[str, Free]], seed: int
    ) -> None:
        entries, free = known
        shuffled = random.Random(seed).sample(entries, len(entries))
        assert place(shuffled, free, effort=2_000) == place(entries, free, effort=2_000)

    def test_weights_fall_with_each_job_of_a_team(self) -> None:
        found = weights([job("a"), job("b"), job("c", team="u")], QueueRules(fairness=1.0))
        assert found == {"a": 1.0, "b": 0.5, "c": 1.0}


def _in_one(option: QueueOption) -> QueueOption:
    return option if option.pool is None else replace(option, pool="p0")


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["mixed", "one priority", "one pool"])
def test_near_the_best_there_is(kind: str) -> None:
    """On average within 1.02 of the exact optimum, on queues of up to twelve jobs."""
    ratios = []
    one_priority = kind != "mixed"
    for seed in range(12 if FULL else 1):
        chance = random.Random(seed)
        entries, free = queue(chance, chance.randint(4, 12))
        if one_priority:
            entries = [replace(entry, priority=Priority.NORMAL) for entry in entries]
        if kind == "one pool":
            free = {"p0": Free.of(2, [(3, 1)])}
            entries = [replace(entry, options=tuple(_in_one(o) for o in entry.options)) for entry in entries]
        exact, found = place_exactly(entries, free), place(entries, free)
        check_capacity(exact, free)
        (least_late, best), (late, ours) = total(exact), total(found)
        assert late == least_late
        if one_priority:
            assert ours >= best * (1 - 1e-6) - 1e-6
        ratios.append(ours / best if best > 1e-9 else 1.0)
    print(f"ratio to the optimum: mean {fmean(ratios):.4f}, worst {max(ratios):.4f}, {len(ratios)} queues")
    assert fmean(ratios) <= 1.02


def test_a_long_queue_takes_no_more_effort_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted are placements of single jobs; the first orders are tried whatever the effort."""
    tried, decode = [0], Search._decode

    def counted(search: Search, order: list[int], held_to: Holds) -> Round:
        tried[0] += len(order)
        return decode(search, order, held_to)

    monkeypatch.setattr(Search, "_decode", counted)
    entries, free = queue(random.Random(1), 500 if FULL else 100)
    turns = place(entries, free, effort=5_000)
    assert 5_000 < tried[0] < len(TIERS) * 5_000 + 10 * len(entries)
    check_capacity(turns, free)


def test_a_short_queue_is_placed_with_effort_to_spare() -> None:
    entries, free = queue(random.Random(1), 3)
    entries = [replace(entry, priority=Priority.NORMAL) for entry in entries]
    assert total(place(entries, free)) == pytest.approx(total(place_exactly(entries, free)))
    assert calls(lambda: place(entries, free)) < 200_000  # some 63,000; the whole effort is 1.2 million
