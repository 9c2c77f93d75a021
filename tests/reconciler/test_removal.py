"""An engine that fails to end a machine is asked again, ever more slowly; by hand."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.errors import RetryLater
from broker.core.events.outcomes import AttemptState
from broker.core.ports import Engine
from broker.reconciler.removal import Removals
from tests.reconciler.settlement.test_charges import UP, life

SECOND = timedelta(seconds=1)
ATTEMPT = life(closed=False).attempts[0]


class Cloud:
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
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
def removals(cloud: Cloud) -> Removals:
    return Removals(cloud.of)


def asks(removals: Removals, cloud: Cloud, seconds: float) -> bool:
    before = cloud.asked
    removals.remove(ATTEMPT, UP + seconds * SECOND)
    return cloud.asked > before


def test_what_was_never_launched_is_not_ended(removals: Removals, cloud: Cloud) -> None:
    cloud.trouble = RetryLater("time-out")
    assert removals.remove(replace(ATTEMPT, handle=None), UP) is None
    assert cloud.asked == 0


def test_what_an_engine_takes_is_not_told(removals: Removals, cloud: Cloud) -> None:
    assert removals.remove(ATTEMPT, UP) is None
    assert asks(removals, cloud, 0), "once more with each look, until the machine is gone"


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (RetryLater("time-out"), "time-out"),
        (RetryLater("no key", hint="log in"), "no key (log in)"),
        (TypeError("a defect"), "TypeError: a defect"),
    ],
)
def test_what_an_engine_says_against_it_is_told_and_logged(
    removals: Removals, cloud: Cloud, caplog: pytest.LogCaptureFixture, trouble: Exception, said: str
) -> None:
    cloud.trouble = trouble
    with caplog.at_level(logging.WARNING):
        assert removals.remove(ATTEMPT, UP) == said
    assert len(caplog.records) == 1
    assert removals.remove(ATTEMPT, UP + SECOND) is None, "it was not asked"
    assert cloud.asked == 1


def test_it_is_asked_again_after_ever_longer_up_to_five_minutes(removals: Removals, cloud: Cloud) -> None:
    cloud.trouble = RetryLater("time-out")
    at = 0.0
    assert asks(removals, cloud, at)
    for wait in (5, 10, 20, 40, 80, 160, 300, 300, *[300] * 20):
        assert not asks(removals, cloud, at + wait - 0.1)
        at += wait
        assert asks(removals, cloud, at)


def test_after_a_success_it_begins_anew(removals: Removals, cloud: Cloud) -> None:
    cloud.trouble = RetryLater("time-out")
    assert [asks(removals, cloud, at) for at in (0, 5)] == [True, True]
    cloud.trouble = None
    assert [asks(removals, cloud, at) for at in (15, 15)] == [True, True]
    cloud.trouble = RetryLater("time-out")
    assert [asks(removals, cloud, at) for at in (20, 24, 25)] == [True, False, True]


def test_each_attempt_waits_for_itself(removals: Removals, cloud: Cloud) -> None:
    cloud.trouble = RetryLater("time-out")
    assert asks(removals, cloud, 0)
    assert removals.remove(replace(ATTEMPT, key="train-2"), UP) == "time-out"


def test_a_clock_that_was_set_back_delays_nothing(removals: Removals, cloud: Cloud) -> None:
    cloud.trouble = RetryLater("time-out")
    assert asks(removals, cloud, 10_000)
    assert asks(removals, cloud, 0)
    assert not asks(removals, cloud, 9)
    assert asks(removals, cloud, 10)


def test_a_clock_that_is_five_minutes_behind_waits_no_longer_than_that(removals: Removals, cloud: Cloud) -> None:
    cloud.trouble = RetryLater("time-out")
    assert asks(removals, cloud, 300)
    assert not asks(removals, cloud, 5), "the next try is 300 seconds ahead"
    assert asks(removals, cloud, 4)


def test_the_grace_of_a_stop_counts_from_when_its_clock_was_set_back(removals: Removals) -> None:
    stopping = replace(ATTEMPT, state=AttemptState.STOPPING, claimed_at=UP)
    told, grace = replace(stopping, stop_requested_at=UP + 500_000 * SECOND), 120 * SECOND
    assert not removals.due(told, UP + 500_000 * SECOND, grace)
    assert [removals.due(told, UP + at * SECOND, grace) for at in (600, 720, 721)] == [False, False, True]
    assert not removals.due(told, UP + 60 * SECOND, grace), "set back once more"
    assert removals.due(told, UP + 181 * SECOND, grace)
    assert removals.due(replace(told, stop_requested_at=UP), UP + 121 * SECOND, grace)
    assert not removals.due(replace(told, stop_requested_at=None), UP + 600_000 * SECOND, grace)


def test_a_closed_job_is_forgotten(removals: Removals, cloud: Cloud) -> None:
    removals.forget("train-1")
    cloud.trouble = RetryLater("time-out")
    assert [asks(removals, cloud, at) for at in (0, 5)] == [True, True]
    removals.forget("train-1")
    assert [asks(removals, cloud, at) for at in (6, 10, 11)] == [True, False, True]
