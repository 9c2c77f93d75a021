"""The strategy in the live reconciler: the decisions of `tests/lab` line by line, and deadlines that are kept."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.values.clock import ManualClock
from broker.placement.strategy.live import session_for
from broker.placement.strategy.situation import Situation, StrategyDecision, StrategySession, StrategyTask
from broker.reconciler.controllers.strategy_advice import LoggedDecision, Moving
from broker.store import Store, open_store
from tests.controllers import Asking
from tests.counts import FULL
from tests.empty_store import empty_store
from tests.lab.replay import PoolRecord, ReplayMarket, ReplayStep, replay
from tests.reconciler.rehearsal import Stage
from tests.reconciler.trace_stage import TraceStage, pool_name

HOUR = 3600.0
TICK = 600.0


def spells(*hours: float) -> list[bool]:
    """Up for so many hours, then down for so many, and so on."""
    return [i % 2 == 0 for i, length in enumerate(hours) for _ in range(round(length * HOUR / TICK))]


def market(*pools: list[bool], prices: tuple[float, ...] = (1.0, 1.1)) -> ReplayMarket:
    named = zip(("east", "west"), pools, prices, strict=False)
    made = tuple(PoolRecord(pool_name(zone), tuple(bits), (price,) * len(bits), 3.0) for zone, bits, price in named)
    return ReplayMarket("f", "m", TICK, made)


def course(recorded: ReplayMarket, start: int, task: StrategyTask) -> tuple[StrategySession, str]:
    family = (*recorded.pools, *recorded.kin)
    return session_for(
        task,
        sorted(pool.name for pool in recorded.pools),
        {pool.name: pool.available[:start] for pool in family},
        {pool.name: pool.price[:start] or pool.price[:1] for pool in family},
        gap=TICK,
        on_demand_price=recorded.on_demand_price,
    )


def line(now: Situation, decision: StrategyDecision) -> str:
    return (
        f"{now.elapsed / TICK:6.2f}  {now.work_left / HOUR:7.3f} h left  {now.mode} {now.pool or '-'}"
        f"  {now.changeover_left:5.0f} s to boot  {sorted(now.spot.items())}"
        f"  -> {decision.mode} {decision.pool or '-'} ({decision.why})"
    )


def live_log(said: list[LoggedDecision]) -> list[str]:
    """The first word of each tick: asked again within one, while it waits, the strategy says the same."""
    first = {now.situation.elapsed: now for now in reversed(said)}
    return [line(first[at].situation, first[at].decision) for at in sorted(first)]


def both(
    path: Path, clock: ManualClock, recorded: ReplayMarket, start: int, task: StrategyTask, *, restarts: bool = False
) -> tuple[list[str], list[str], str]:
    """The decision logs of the live broker and of the replay."""
    log: list[ReplayStep] = []
    made, why = course(recorded, start, task)
    outcome = replay(recorded, start, task, made, log)
    assert not outcome.missed
    store = open_store(empty_store(path / "store.db"), clock=clock)
    stage = TraceStage(store, clock, recorded, start, task)
    assert stage.play(restarts=restarts) is JobState.SUCCEEDED
    assert not stage.view.deadline_missed
    assert stage.view.ended_at is not None
    assert stage.view.ended_at - stage.begun == timedelta(seconds=outcome.finish or 0)
    store.close()
    return live_log(stage.said), [line(step.situation, step.decision) for step in log], why


PAST = [2.0, 0.5, 1.0, 1.5, 4.0, 1.0] * 10
NOW = [0.5, 0.5, 2.0, 1.0, 1.0 / 3, 2.0, 3.0, 0.5, 6.0, 3.0]


OF_OTHERS = "planned on the habits of other recorded pools: too few spells on record"


@pytest.mark.system
@pytest.mark.parametrize(("past", "reason"), [([*PAST, *PAST[:4]], "planned"), (PAST[:8], OF_OTHERS), ([], OF_OTHERS)])
def test_the_live_broker_decides_as_the_replay_did(
    tmp_path: Path, clock: ManualClock, past: list[float], reason: str
) -> None:
    history = spells(*past)
    recorded = market(history + spells(*NOW) + [True] * 100)
    live, replayed, why = both(tmp_path, clock, recorded, len(history), StrategyTask(4 * HOUR, 6 * HOUR, 720, TICK))
    assert why == reason
    assert live == replayed
    assert all(any(f"-> {mode}" in each for each in live) for mode in ("idle", "spot", "on_demand"))


def test_a_broker_that_is_started_anew_each_tick_decides_the_same(tmp_path: Path, clock: ManualClock) -> None:
    history = spells(*PAST[:24])
    recorded = market(history + spells(*NOW) + [True] * 100)
    job = StrategyTask(2 * HOUR, 3.5 * HOUR, 720, TICK)
    live, replayed, why = both(tmp_path, clock, recorded, len(history), job, restarts=True)
    assert why == OF_OTHERS
    assert live == replayed


@pytest.mark.system
@pytest.mark.parametrize(("past", "reason"), [(PAST, "planned"), ([], OF_OTHERS)])
def test_with_two_pools_too(tmp_path: Path, clock: ManualClock, past: list[float], reason: str) -> None:
    history = spells(*past)
    other = [not bit for bit in history]
    now = spells(*NOW)
    recorded = market(history + now + [True] * 100, other + [False] * 6 + now[: len(now) - 6] + [True] * 100)
    live, replayed, why = both(tmp_path, clock, recorded, len(history), StrategyTask(6 * HOUR, 8 * HOUR, 720, TICK))
    assert why == reason
    assert live == replayed


@pytest.mark.parametrize(
    ("value", "starts_after", "ran"),
    [
        pytest.param("1", 1.0, ["spot"], marks=pytest.mark.system),
        ("5", 0.0, ["on_demand", "spot"]),
        pytest.param("50", 0.0, ["on_demand"], marks=pytest.mark.system),
    ],
    ids=["waits for spot", "starts at once and moves", "starts at once and stays"],
)
def test_without_a_deadline_cost_is_traded_against_time(
    tmp_path: Path, clock: ManualClock, value: str, starts_after: float, ran: list[str]
) -> None:
    recorded = market([False] * 6 + [True] * 100)
    store = open_store(empty_store(tmp_path / "store.db"), clock=clock)
    stage = TraceStage(store, clock, recorded, 0, StrategyTask(4 * HOUR, 8 * HOUR, 720, TICK), value)
    assert stage.play() is JobState.SUCCEEDED
    first = stage.view.attempts[0]
    assert first.requested_at - stage.begun == timedelta(hours=starts_after)
    assert [attempt.placement.offer.capacity_type for attempt in stage.view.attempts] == ran
    store.close()


bits = st.lists(st.tuples(st.booleans(), st.integers(1, 12)), min_size=1, max_size=20).map(
    lambda runs: [up for up, length in runs for _ in range(length)]
)


@settings(max_examples=15 if FULL else 1, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(past=bits, now=bits, slack=st.floats(0.25, 3), changeover=st.sampled_from([60.0, 720.0, 900.0]))
@example(
    past=[False], now=[False] * 6 + [True] * 8, slack=2.125, changeover=720.0
)  # taken while it started, at the end
def test_no_deadline_is_missed_whatever_the_market_does(
    tmp_path_factory: pytest.TempPathFactory, past: list[bool], now: list[bool], slack: float, changeover: float
) -> None:
    task = StrategyTask(3 * HOUR, round(3 * HOUR + max(slack * HOUR, changeover)), changeover, TICK)
    recorded = market(past + (now * 60)[:60] + [False] * 60)
    clock = ManualClock(datetime(2026, 3, 2, 12, tzinfo=UTC))
    store = open_store(empty_store(tmp_path_factory.mktemp("live") / "store.db"), clock=clock)
    stage = TraceStage(store, clock, recorded, len(past), task)
    assert stage.play() is JobState.SUCCEEDED
    assert not stage.view.deadline_missed
    assert {attempt.cause for attempt in stage.view.attempts} <= {Cause.PREEMPTED, Cause.MOVED, Cause.COMPLETED}
    store.close()


class Undecided:
    """A strategy that never moves anything, and takes its time."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.seconds = 0.0

    def moves(self, view: JobView, plans: object, now: datetime) -> None:
        self.asked.append(view.id)
        self.seconds += 2.0

    def forget(self, job_id: str) -> None:
        pass


@pytest.mark.parametrize(("first", "restarts"), [(1.0, True), pytest.param(1.2, False, marks=pytest.mark.system)])
def test_more_pools_than_are_looked_at_do_not_cost_a_job_its_machine(
    tmp_path: Path, clock: ManualClock, first: float, restarts: bool
) -> None:
    """Eight pools are sold out; the ninth has capacity, and is dearer, or becomes so when the job is there."""
    past = spells(*PAST[:24])
    sold_out = (*past, *[False] * 200)
    pools = [PoolRecord(pool_name(f"z{i}"), sold_out, (1.1,) * len(sold_out), 3.0) for i in range(8)]
    price = (first,) * (len(past) + 3) + (1.2,) * 197
    pools.append(PoolRecord(pool_name("ninth"), (*past, *[True] * 200), price, 3.0))
    recorded, job = ReplayMarket("f", "m", TICK, tuple(pools)), StrategyTask(2 * HOUR, 4 * HOUR, 720, TICK)
    stage = TraceStage(open_store(empty_store(tmp_path / "s.db"), clock=clock), clock, recorded, len(past), job)
    assert stage.play(restarts=restarts) is JobState.SUCCEEDED
    assert [(a.placement.offer.pool, a.cause) for a in stage.view.attempts] == [(pool_name("ninth"), Cause.COMPLETED)]


def test_whose_turn_falls_into_the_rest_each_time_is_asked_all_the_same(store: Store, clock: ManualClock) -> None:
    stage, strategy = Stage(store, clock), Undecided()
    stage.submit()
    first = stage.pass_time()
    views = [first, replace(first, id="j-2"), replace(first, id="j-3"), replace(first, id="gone")]
    made = Moving(store, strategy, lambda view, now: None, rest=4.0, seconds=lambda: strategy.seconds)  # type: ignore[arg-type, return-value]  # as much of a strategy as is asked
    moving = Asking(made, clock.now)

    def look(views: list[JobView]) -> None:
        clock.advance(timedelta(minutes=10))
        strategy.seconds += 8.0
        assert not any(moving(view) for view in views)

    for _ in range(3):
        look(views)
    assert strategy.asked == ["j-1", "j-2", "j-3"]
    del views[-1]
    for _ in range(5):
        look(views)
    assert strategy.asked[3:] == ["j-1", "j-2", "j-3", "j-1"], "nobody waits for one that is gone, but for one look"
