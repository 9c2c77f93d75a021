"""When a controller is asked again; by hand."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from broker.core.errors import RetryLater
from broker.ledger.journal import NoLongerCurrent
from broker.reconciler.controller import (
    BACK_OFFS,
    Agenda,
    AtRest,
    BackOff,
    Controller,
    ControllerResult,
    DecideAnew,
    JobContext,
    NextLook,
    RetryReason,
    TryLater,
)
from tests.reconciler.settlement.test_charges import life

START, SECOND = datetime(2026, 3, 1, tzinfo=UTC), timedelta(seconds=1)
VIEW = life(closed=False)


@dataclass(eq=False)
class Scripted(Controller):
    """Answers what the test says."""

    answer: ControllerResult | Exception = field(default_factory=AtRest)
    by: Hashable | None = "same"
    asked: int = 0
    forgotten: list[str] = field(default_factory=list)

    def goes_by(self, about: JobContext) -> Hashable | None:
        assert about.view == VIEW
        return self.by

    def reconcile(self, about: JobContext) -> ControllerResult:
        assert about.view == VIEW
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def forget(self, key: str) -> None:
        self.forgotten.append(key)


@pytest.fixture
def controller() -> Scripted:
    return Scripted()


@pytest.fixture
def agenda() -> Agenda:
    return Agenda()


def asks(agenda: Agenda, controller: Scripted, seconds: float, attempt: int | None = None) -> bool:
    """Whether it is asked at that time."""
    before, of = controller.asked, None if attempt is None else VIEW.attempts[attempt]
    agenda.ask(controller, JobContext(VIEW, START + seconds * SECOND, attempt=of))
    return controller.asked > before


def test_at_rest_it_is_asked_again_only_where_what_it_goes_by_changes(agenda: Agenda, controller: Scripted) -> None:
    assert [asks(agenda, controller, at) for at in (0, 0, 10**6)] == [True, False, False]
    controller.by = "other"
    assert [asks(agenda, controller, 10**6) for _ in range(2)] == [True, False]


def test_a_rest_ends_in_its_time_and_where_the_clock_was_set_back(agenda: Agenda, controller: Scripted) -> None:
    controller.answer = AtRest(START + 10 * SECOND)
    assert [asks(agenda, controller, at) for at in (0, 9.9, 10, 10)] == [True, False, True, True]
    controller.answer = AtRest(START + 90 * SECOND)
    assert [asks(agenda, controller, at) for at in (20, 19, 89, 90)] == [True, True, False, True]


def test_what_is_no_concern_of_it_is_not_asked_and_begins_anew(agenda: Agenda, controller: Scripted) -> None:
    assert asks(agenda, controller, 0)
    controller.by = None
    assert not asks(agenda, controller, 0)
    controller.by = "same"
    assert asks(agenda, controller, 0)


@pytest.mark.parametrize(
    ("answer", "anew", "again"),
    [(NextLook(), False, True), (DecideAnew(), True, True), (DecideAnew(START + SECOND), True, False)],
)
def test_what_an_answer_means(
    agenda: Agenda, controller: Scripted, answer: ControllerResult, anew: bool, again: bool
) -> None:
    controller.answer = answer
    assert agenda.ask(controller, JobContext(VIEW, START)) is anew
    assert asks(agenda, controller, 0) is again


@pytest.mark.parametrize("trouble", RetryReason)
def test_each_trouble_has_its_own_back_off_and_a_success_ends_it(controller: Scripted, trouble: RetryReason) -> None:
    agenda, at = Agenda({**BACK_OFFS, trouble: BackOff(2 * SECOND, 7 * SECOND)}), 0.0
    defect = trouble is RetryReason.DEFECT

    def fails_for(wait: float) -> None:
        controller.answer = RuntimeError("a defect") if defect else TryLater(trouble)
        with pytest.raises(RuntimeError) if defect else nullcontext():
            assert asks(agenda, controller, at)
        assert not asks(agenda, controller, at + wait - 0.1)

    for wait in (2, 4, 7, 7):
        fails_for(wait)
        at += wait
    controller.answer = NextLook()
    assert asks(agenda, controller, at)
    fails_for(2)


def test_after_a_rest_the_first_failure_waits_least(controller: Scripted) -> None:
    agenda = Agenda({**BACK_OFFS, RetryReason.NO_PLACE: BackOff(2 * SECOND, 7 * SECOND)})
    controller.answer = AtRest(START + SECOND)
    assert asks(agenda, controller, 0)
    controller.answer = TryLater(RetryReason.NO_PLACE)
    assert [asks(agenda, controller, at) for at in (1, 2.9, 3)] == [True, False, True]


@pytest.mark.parametrize(
    ("trouble", "first", "longest"),
    [(RetryReason.NO_PLACE, 15, 15), (RetryReason.NOT_ENDED, 5, 300), (RetryReason.DEFECT, 5, 300)],
)
def test_how_long_each_trouble_waits(trouble: RetryReason, first: int, longest: int) -> None:
    waits = [BACK_OFFS[trouble].after(failures) / SECOND for failures in (1, 2, 7, 1000)]
    assert waits == [first, min(2 * first, longest), longest, longest]


@pytest.mark.parametrize("error", [RetryLater("time-out"), NoLongerCurrent("it has changed")])
def test_what_may_work_with_the_next_look_is_tried_then(agenda: Agenda, controller: Scripted, error: Exception) -> None:
    controller.answer = error
    for _ in range(2):
        with pytest.raises(type(error)):
            asks(agenda, controller, 0)
    assert controller.asked == 2


def test_jobs_and_attempts_rest_for_themselves_and_are_forgotten(agenda: Agenda, controller: Scripted) -> None:
    assert [asks(agenda, controller, 0, of) for of in (None, 0, None, 0)] == [True, True, False, False]
    agenda.forget("train-1")
    assert controller.forgotten == ["train-1"]
    assert [asks(agenda, controller, 0, of) for of in (None, 0)] == [False, True]


def test_what_is_no_concern_or_rests_changes_nothing_and_who_was_never_asked_is_forgotten(
    controller: Scripted,
) -> None:
    agenda, about = Agenda(), JobContext(VIEW, START)
    controller.by = None
    assert agenda.ask(controller, about) is agenda.ask(controller, about) is False
    controller.by, controller.answer = "same", DecideAnew(START + SECOND)
    assert agenda.ask(controller, about) is True
    assert agenda.ask(controller, about) is False, "it rests"
    agenda.forget("nobody")
    assert controller.forgotten == ["nobody"]
