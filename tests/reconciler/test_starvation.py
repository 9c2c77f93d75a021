"""Pools that fail do not starve a job: one that works is reached, however many fail, however and how slowly they do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from broker.core.errors import (
    AskAPerson,
    GiveUp,
    NoCapacity,
    OutcomeUnknown,
    QuotaExceeded,
    RetryLater,
    Throttled,
    Unreachable,
)
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.wait_reasons import AttemptStopped, LaunchesFailed
from broker.core.job.jobs import Job, Retry, Work
from broker.core.market.offers import CapacityType
from broker.core.ports import EngineState, Launch, Observation
from tests.reconciler.rehearsal import MINUTE, Stage, StageEngine, offer, retrying

HOURS = timedelta(hours=1)
ERRORS: dict[str, Callable[[], Exception]] = {
    "sold out": lambda: NoCapacity("sold out"),
    "no quota": lambda: QuotaExceeded("0 of 8"),
    "refused": lambda: GiveUp("no such image"),
    "no login": lambda: AskAPerson("no login"),
    "a defect": lambda: KeyError("zone"),
}


_PASSING: dict[str, Callable[[], Exception]] = {
    "busy": lambda: RetryLater("never heard of"),
    "full": lambda: Throttled("no more jobs"),
    "cut off": lambda: OutcomeUnknown("the connection was lost"),
}


@dataclass
class Failing(StageEngine):
    """Every launch fails but those in the zone ``good``: at once, or ``later``, once it has been accepted. ``takes``:
    how long each takes to fail."""

    good: str = "good"
    errors: Sequence[Callable[[], Exception]] = ()
    later: bool = False
    takes: timedelta = timedelta(0)
    tried: list[str] = field(default_factory=list)

    def submit(self, launch: Launch) -> str:
        zone = launch.placement.offer.zone or ""
        self.tried.append(zone)
        if zone != self.good and not self.later:
            self.clock.advance(self.takes)
            raise self.errors[sum(zone.encode()) % len(self.errors)]()  # each pool fails in its own way
        return super().submit(launch)

    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        return {handle: self._seen(handle) for handle in handles}

    def _seen(self, handle: str) -> Observation:
        machine, now = self.machines[handle], self.clock.now()
        if machine.launch.placement.offer.zone == self.good:
            return self.look(handle)
        if now - machine.since < self.takes:
            return Observation(EngineState.PENDING)
        return Observation(EngineState.GONE, gone_at=now, evidence="sold out", no_capacity=True)


def failing(stage: Stage, pools: int, **how: object) -> Failing:
    """So many cheap pools that fail, and one that is ten times as expensive and works."""
    stage.engine = engine = Failing(stage.clock, **how)  # type: ignore[arg-type]
    stage.restart()
    now = stage.clock.now()
    bad = [offer(now, f"bad-{n:02}", CapacityType.SPOT, f"1.{n:02}") for n in range(pools)]
    stage.offers = [*bad, offer(now, engine.good, price="30")]
    return engine


def until_launched(stage: Stage, engine: Failing, longest: timedelta, every: timedelta) -> None:
    until = stage.clock.now() + longest
    while engine.good not in engine.tried and stage.clock.now() < until:
        stage.pass_time(every)


KINDS = [*ERRORS, "all kinds", "sold out later"]


@pytest.mark.parametrize(
    ("pools", "kind", "takes"),
    [(1, kind, 0) for kind in KINDS[:-2]]
    + [(9, KINDS[-2], 0), (3, KINDS[-1], 3)]
    + [pytest.param(k, kind, t, marks=pytest.mark.system) for k in (20, 50) for kind in KINDS[-2:] for t in (0, 3)],
)
def test_with_k_failing_pools_the_good_one_is_reached_within_k_and_one_launches(
    stage: Stage, pools: int, kind: str, takes: int
) -> None:
    errors = [ERRORS[kind]] if kind in ERRORS else list(ERRORS.values())
    engine = failing(stage, pools, errors=errors, later=kind == "sold out later", takes=takes * MINUTE)
    began = stage.clock.now()
    stage.submit(Job(name="j", run="x", work=Work(duration=2 * HOURS), max_duration=24 * HOURS), hold="1000")
    until_launched(stage, engine, 24 * HOURS, every=timedelta(seconds=30))
    assert engine.tried[-1] == engine.good
    assert len(engine.tried) <= pools + 1
    assert stage.clock.now() - began <= (pools + 1) * (takes * MINUTE + MINUTE), "the job itself waits for nothing"


def test_what_failed_before_the_job_last_ran_is_not_put_last(stage: Stage) -> None:
    """A cheap pool that was sold out before the job ran elsewhere is the first choice again after its rest."""
    engine = failing(stage, 1, errors=[ERRORS["sold out"]])
    stage.submit(retrying(1), hold="1000")
    until_launched(stage, engine, HOURS, every=MINUTE)
    key = engine.submitted[-1]
    stage.mailbox.starts(key)
    stage.pass_time(11 * MINUTE)
    stage.mailbox.exits(key, Cause.EXIT_STATUS, 1)
    engine.good = "bad-00"
    stage.pass_time(MINUTE, times=2)
    assert engine.tried[-1] == "bad-00"


def test_a_pool_that_refused_for_good_is_not_tried_again_and_the_job_goes_on(stage: Stage) -> None:
    engine = failing(stage, 1, errors=[ERRORS["refused"]])
    stage.submit(retrying(1), hold="1000")
    until_launched(stage, engine, HOURS, every=MINUTE)
    key = engine.submitted[-1]
    stage.mailbox.starts(key)
    stage.pass_time(3 * HOURS)
    stage.mailbox.exits(key, Cause.EXIT_STATUS, 1)
    stage.pass_time(MINUTE, times=2)
    assert engine.tried == ["bad-00", "good", "good"]
    with stage.store.writing() as tx:
        tx.append("j-1", [(None, ev.Extended(by="ann"))], stage.clock.now())
    assert [rest.pool for rest in stage.view.rests if rest.banned] == [], "a person may have mended it"


def test_a_job_that_every_pool_refused_for_good_ends_with_the_last_evidence(stage: Stage) -> None:
    engine = failing(stage, 3, errors=[ERRORS["refused"]])
    engine.good = "nowhere"
    stage.submit()
    stage.pass_time(MINUTE, times=2)
    view = stage.view
    assert (view.state, len(engine.tried)) == (JobState.FAILED, 4)
    assert isinstance(view.ending, AttemptStopped)
    assert (view.ending.cause, view.ending.evidence) == (Cause.LAUNCH_REFUSED, "no such image")


def test_a_job_that_is_refused_here_and_finds_no_capacity_there_waits(stage: Stage) -> None:
    engine = failing(stage, 3, errors=[ERRORS["refused"], ERRORS["sold out"]])
    engine.good = "nowhere"
    stage.submit()
    stage.pass_time(MINUTE, times=120)
    assert stage.view.state is JobState.INTERRUPTED
    times = [engine.tried.count(zone) for zone in ("bad-00", "bad-01", "bad-02")]
    assert sorted(set(times)) == [1, 4], "refused for good; sold out, and again after 10, 20 and 40 minutes"


@pytest.mark.parametrize("broken", [*ERRORS, "busy", "full", "cut off"])
@pytest.mark.parametrize("asleep", [0, 4], ids=["found at once", "found when it can be asked again"])
def test_an_engine_that_accepts_and_then_fails_never_has_two_attempts(stage: Stage, broken: str, asleep: int) -> None:
    """The engine made the machine and failed to say so: it is found, and nothing else is launched."""

    class Mute(StageEngine):
        def submit(self, launch: Launch) -> str:
            super().submit(launch)
            self.failing["find"] = [Unreachable("time-out")] * asleep
            raise {**ERRORS, **_PASSING}[broken]()

    stage.engine = Mute(stage.clock)
    stage.restart()
    stage.submit()
    stage.pass_time(MINUTE, times=asleep + 3)
    assert stage.view.attempts[0].handle == "j-1-1"
    assert stage.engine.submitted == ["j-1-1"]
    assert stage.view.attempt_count == 1


def test_launches_that_fail_again_and_again_wait_for_a_person(stage: Stage) -> None:
    engine = failing(stage, 1, errors=[ERRORS["a defect"]])
    engine.good = "nowhere"
    stage.submit(retrying(0).model_copy(update={"retry": Retry(launches=3)}))
    stage.pass_time(5 * MINUTE, times=120)
    assert stage.view.state is JobState.PAUSED_BUDGET
    assert isinstance(stage.view.waiting, LaunchesFailed)
    assert len(engine.tried) == 5, "the first in each pool cost nothing and does not count"
