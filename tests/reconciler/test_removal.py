"""An engine that fails to end a machine is asked again, ever more slowly; by hand."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from broker.core.errors import RetryLater
from broker.core.events import events as ev
from broker.core.events.outcomes import AttemptState, Cause
from broker.core.events.views import AttemptView
from broker.core.ports import Engine
from broker.core.values.clock import ManualClock
from broker.reconciler.controller import Agenda, JobContext, NextLook
from broker.reconciler.engine_calls import EngineCalls, Purpose
from broker.reconciler.ports import ReconcilerPorts
from broker.reconciler.removal import Removals
from broker.store import Store
from tests.reconciler.rehearsal import StageMailbox
from tests.reconciler.settlement.test_charges import UP, life, placement

SECOND = timedelta(seconds=1)
VIEW = life(closed=False)
ATTEMPT = VIEW.attempts[0]


class RemovalEngine:
    """An engine that ends machines, or fails with ``trouble``."""

    def __init__(self) -> None:
        self.trouble: Exception | None = None
        self.asked = 0

    def of(self, name: str) -> Engine:
        assert name == "x"
        return self  # type: ignore[return-value]  # of an engine, only `cancel` is needed

    def cancel(self, handle: str) -> None:
        assert handle == "h"
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble


@pytest.fixture
def cloud() -> RemovalEngine:
    return RemovalEngine()


@dataclass
class Ending:
    """The end of machines, asked for as the reconciler does."""

    removals: Removals
    agenda: Agenda = field(default_factory=Agenda)

    def ask(self, at: datetime, attempt: AttemptView = ATTEMPT) -> None:
        assert not self.agenda.ask(self.removals, JobContext(VIEW, at, attempt=attempt))

    def due(self, attempt: AttemptView, now: datetime, grace: timedelta) -> bool:
        return self.removals.due(attempt, now, grace)


@pytest.fixture
def removals(cloud: RemovalEngine, store: Store, clock: ManualClock) -> Ending:
    return Ending(Removals(ReconcilerPorts(store, cloud.of, StageMailbox(clock), clock)))


def asks(removals: Ending, cloud: RemovalEngine, seconds: float, attempt: AttemptView = ATTEMPT) -> bool:
    before = cloud.asked
    removals.ask(UP + seconds * SECOND, attempt)
    return cloud.asked > before


def test_what_was_never_launched_is_not_ended(removals: Ending, cloud: RemovalEngine) -> None:
    assert not asks(removals, cloud, 0, replace(ATTEMPT, handle=None))


def test_what_an_engine_takes_is_ended_again_until_it_is_gone(removals: Ending, cloud: RemovalEngine) -> None:
    assert asks(removals, cloud, 0)
    assert asks(removals, cloud, 0), "once more with each look, until the machine is gone"


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (RetryLater("time-out"), "time-out"),
        (RetryLater("no key", hint="log in"), "no key (log in)"),
        (TypeError("a defect"), "TypeError: a defect"),
    ],
)
def test_what_an_engine_says_against_it_is_logged(
    removals: Ending, cloud: RemovalEngine, caplog: pytest.LogCaptureFixture, trouble: Exception, said: str
) -> None:
    cloud.trouble = trouble
    with caplog.at_level(logging.WARNING):
        removals.ask(UP)
    (record,) = caplog.records
    assert said in f"{record.getMessage()}{record.exc_info or ''}".replace("TypeError('a defect')", said)
    assert not asks(removals, cloud, 1)


def test_it_is_asked_again_after_ever_longer_up_to_five_minutes(removals: Ending, cloud: RemovalEngine) -> None:
    cloud.trouble = RetryLater("time-out")
    at = 0.0
    assert asks(removals, cloud, at)
    for wait in (5, 10, 20, 40, 80, 160, 300, 300, *[300] * 20):
        assert not asks(removals, cloud, at + wait - 0.1)
        at += wait
        assert asks(removals, cloud, at)


def test_after_a_success_it_begins_anew(removals: Ending, cloud: RemovalEngine) -> None:
    cloud.trouble = RetryLater("time-out")
    assert [asks(removals, cloud, at) for at in (0, 5)] == [True, True]
    cloud.trouble = None
    assert [asks(removals, cloud, at) for at in (15, 15)] == [True, True]
    cloud.trouble = RetryLater("time-out")
    assert [asks(removals, cloud, at) for at in (20, 24, 25)] == [True, False, True]


def test_each_attempt_waits_for_itself(removals: Ending, cloud: RemovalEngine) -> None:
    cloud.trouble = RetryLater("time-out")
    assert asks(removals, cloud, 0)
    assert asks(removals, cloud, 0, replace(ATTEMPT, key="train-2"))


def test_a_clock_that_was_set_back_delays_nothing(removals: Ending, cloud: RemovalEngine) -> None:
    cloud.trouble = RetryLater("time-out")
    assert asks(removals, cloud, 10_000)
    assert asks(removals, cloud, 0)
    assert not asks(removals, cloud, 9)
    assert asks(removals, cloud, 10)


def test_the_grace_of_a_stop_counts_from_when_its_clock_was_set_back(removals: Ending) -> None:
    stopping = replace(ATTEMPT, state=AttemptState.STOPPING, claimed_at=UP)
    told, grace = replace(stopping, stop_requested_at=UP + 500_000 * SECOND), 120 * SECOND
    assert not removals.due(told, UP + 500_000 * SECOND, grace)
    assert [removals.due(told, UP + at * SECOND, grace) for at in (600, 720, 721)] == [False, False, True]
    assert not removals.due(told, UP + 500_000 * SECOND, grace), "its clock is right again"
    assert not removals.due(told, UP + 60 * SECOND, grace), "set back once more"
    assert removals.due(told, UP + 181 * SECOND, grace)
    assert removals.due(replace(told, stop_requested_at=UP), UP + 121 * SECOND, grace)
    assert not removals.due(replace(told, stop_requested_at=None), UP + 600_000 * SECOND, grace)


def test_a_closed_job_is_forgotten(removals: Ending, cloud: RemovalEngine) -> None:
    removals.agenda.forget("train-1")
    cloud.trouble = RetryLater("time-out")
    assert [asks(removals, cloud, at) for at in (0, 5)] == [True, True]
    removals.agenda.forget("train-1")
    assert [asks(removals, cloud, at) for at in (6, 10, 11)] == [True, False, True]


def recorded(store: Store, *more: tuple[int | None, ev.EventBody]) -> None:
    """The job is on the store's record as `VIEW` has it, and what came after."""
    submitted = ev.Submitted(job=VIEW.job, user="ann", max_duration_seconds=86400)
    asked = ev.LaunchRequested(key="train-1", engine="x", placement=placement())
    with store.writing() as tx:
        tx.append("train", [(None, submitted), (1, asked), (1, ev.Launched(handle="h")), *more], UP)


def told(store: Store) -> list[tuple[str, int | None, str, datetime]]:
    """Of which attempt, why and when a delay is on record."""
    with store.reading() as look:
        return [
            (one.job_id, one.attempt, one.body.because, one.at)
            for one in look.events("train")
            if isinstance(one.body, ev.RemovalDelayed)
        ]


@pytest.mark.parametrize(
    ("trouble", "because"), [(RetryLater("time-out"), "time-out"), (TypeError("a defect"), "TypeError: a defect")]
)
def test_why_a_machine_cannot_be_ended_is_told_once_whoever_asks_again(
    removals: Ending, cloud: RemovalEngine, store: Store, trouble: Exception, because: str
) -> None:
    recorded(store)
    cloud.trouble = trouble
    removals.ask(UP + SECOND)
    assert told(store) == [("train", 1, because, UP + SECOND)]
    removals.ask(UP + 60 * SECOND)
    assert len(told(store)) == 1, "though the job was read before the first was told"


def test_nothing_is_told_of_what_is_over_nor_of_what_was_told(
    removals: Ending, cloud: RemovalEngine, store: Store
) -> None:
    recorded(store)
    cloud.trouble = RetryLater("time-out")
    removals.ask(UP, replace(ATTEMPT, removal_delayed=True))
    removals.ask(UP, replace(ATTEMPT, number=7, key="train-7"))
    with store.writing() as tx:
        over = ev.AttemptEnded(cause=Cause.COMPLETED), ev.MachineGone(gone_at=UP)
        tx.append("train", [(1, one) for one in over], UP)
    removals.ask(UP + 60 * SECOND)
    assert cloud.asked == 3
    assert told(store) == []


class LaterCalls(EngineCalls):
    """Calls of which nothing is known yet; what for is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, str, Purpose]] = []

    def make(self, lane: str, key: str, purpose: Purpose, call: object) -> None:
        self.made.append((lane, key, purpose))


def test_a_call_that_takes_long_is_waited_for(cloud: RemovalEngine, store: Store, clock: ManualClock) -> None:
    calls = LaterCalls()
    controller = Removals(ReconcilerPorts(store, cloud.of, StageMailbox(clock), clock, calls=calls))
    assert controller.reconcile(JobContext(VIEW, UP, attempt=ATTEMPT)) == NextLook()
    assert calls.made == [("x", "train-1", Purpose.END)]
    assert controller.goes_by(JobContext(VIEW, UP)) is None


def test_of_a_closed_job_nothing_is_kept_of_how_far_its_clock_was_set_back(removals: Ending) -> None:
    late = replace(ATTEMPT, state=AttemptState.STOPPING, claimed_at=UP, stop_requested_at=UP + 5000 * SECOND)
    assert not removals.due(late, UP, 120 * SECOND)
    removals.removals.forget("train-1")
    assert not removals.due(late, UP + 600 * SECOND, 120 * SECOND)
    assert removals.due(late, UP + 721 * SECOND, 120 * SECOND)
