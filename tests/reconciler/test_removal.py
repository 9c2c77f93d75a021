"""An engine that fails to end a machine is asked again, ever more slowly; by hand."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from broker.core.errors import RetryLater
from broker.core.events.outcomes import AttemptState
from broker.core.events.views import AttemptView
from broker.core.ports import Engine
from broker.core.values.clock import ManualClock
from broker.reconciler.controller import Agenda, JobContext
from broker.reconciler.ports import ReconcilerPorts
from broker.reconciler.removal import Removals
from broker.store import Store
from tests.reconciler.rehearsal import StageMailbox
from tests.reconciler.settlement.test_charges import UP, life

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
