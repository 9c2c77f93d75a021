"""Which leases are written with which look, with a few attempts: two may be written with a look for what can wait."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import IdleLimit
from broker.core.values.clock import ManualClock
from broker.reconciler import leases as module
from broker.reconciler.leases import Leases
from broker.reconciler.worklist import Worklist
from broker.store import Store
from tests.controllers import FixedLimits
from tests.reconciler.rehearsal import MINUTE, Stage, offer, running
from tests.reconciler.test_leases import Fleet

HOUR = timedelta(hours=1)
IDLE = IdleLimit(5.0, HOUR, "for 1h; the limit is 5% (t.yaml:3)")


@pytest.fixture
def stage(store: Store, clock: ManualClock) -> Stage:
    return Stage(store, clock)


@pytest.mark.parametrize("order", [1, -1])
def test_those_who_had_to_wait_come_first_and_no_look_writes_more(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, order: int
) -> None:
    monkeypatch.setattr(module, "_A_LOOK", 2)
    fleet = Fleet.of(stage, 5)
    fleet.limits.append(IDLE)
    fleet.order = order
    assert [fleet.look() for _ in range(4)] == [2, 2, 1, 0]
    assert fleet.has(IDLE)
    fleet.limits[:] = [replace(IDLE, below=6.0)]
    assert [fleet.look(), fleet.look()] == [2, 2]
    fleet.order = -order  # whoever waits is not overtaken
    assert [fleet.look(), fleet.look()] == [1, 0]


def test_who_waits_fills_a_look_and_whoever_comes_then_waits(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_A_LOOK", 2)
    fleet = Fleet.of(stage, 5)
    fleet.limits.append(IDLE)
    assert fleet.look() == 2
    fleet.limits[:] = [replace(IDLE, below=6.0)]  # news for those two as well
    assert [fleet.look() for _ in range(4)] == [2, 2, 1, 0]


def test_whoever_was_called_is_written_once_with_that_look(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_A_LOOK", 1)
    fleet = Fleet.of(stage, 2)
    fleet.limits.append(IDLE)
    assert fleet.look() == 1
    assert fleet.look() == 1  # the second, who was called
    fleet.limits[:] = [replace(IDLE, below=6.0)]
    (second,), before = fleet.views[1:], fleet.written
    fleet.leases.keep(second, second.attempts[0], stage.clock.now())
    assert fleet.written == before


def test_before_the_first_look_nobody_has_a_turn(stage: Stage) -> None:
    fleet = Fleet.of(stage, 1)
    (view,) = fleet.views
    fleet.leases.keep(view, view.attempts[0], stage.clock.now())
    fleet.limits.append(IDLE)
    before = fleet.written
    fleet.leases.keep(view, view.attempts[0], stage.clock.now())
    assert fleet.written == before
    fleet.leases.begin_look()
    fleet.leases.keep(view, view.attempts[0], stage.clock.now())
    assert fleet.written == before + 1


def kept(stage: Stage, longest: timedelta | None = None) -> tuple[Leases, Worklist, list[object]]:
    """The leases of a job that runs, and what was written since."""
    stage.offers = [offer(stage.clock.now(), "od", price="3")]
    running(stage)
    worklist = Worklist(stage.store)
    return Leases(stage.mailbox, worklist, FixedLimits((), longest)), worklist, list[object]()


@pytest.mark.parametrize(("a_look", "minutes"), [(100, 15), (0, 30)])
def test_a_node_hears_again_after_a_quarter_of_the_time_or_in_need_after_half(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, a_look: int, minutes: int
) -> None:
    monkeypatch.setattr(module, "_A_LOOK", a_look)
    leases, worklist, _ = kept(stage, HOUR)
    (view,), start = worklist.look(), stage.clock.now()
    leases.keep(view, view.attempts[0], start)
    written = len(stage.mailbox.leases["j-1-1"])
    for minute in range(1, minutes):
        leases.begin_look()
        leases.keep(view, view.attempts[0], start + minute * MINUTE)
        assert len(stage.mailbox.leases["j-1-1"]) == written, minute
    leases.begin_look()
    leases.keep(view, view.attempts[0], start + minutes * MINUTE)
    assert len(stage.mailbox.leases["j-1-1"]) == written + 1


def test_what_is_paid_for_otherwise_now_is_told_at_once(stage: Stage) -> None:
    leases, worklist, _ = kept(stage)
    (view,), now = worklist.look(), stage.clock.now()
    (attempt,) = view.attempts
    leases.keep(view, attempt, now)
    for seq, money in enumerate((MoneyKind.AMORTISED, MoneyKind.AMORTISED, MoneyKind.CASH), 1):
        paid = replace(attempt.placement, offer=replace(attempt.placement.offer, money=money))
        other = replace(attempt, placement=paid)
        leases.keep(replace(view, seq=view.seq + seq, attempts=(other,)), other, now)
    told = [lease.paid_until is None for lease in stage.mailbox.leases["j-1-1"]]
    assert told[-3:] == [False, True, False]


def test_what_is_forgotten_is_read_and_written_anew(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    leases, worklist, asked = kept(stage)
    (view,), now = worklist.look(), stage.clock.now()
    leases.forget("nobody")
    monkeypatch.setattr(stage.mailbox, "lease", lambda *about: asked.append(about))
    leases.keep(view, view.attempts[0], now)
    leases.keep(view, view.attempts[0], now)
    assert len(asked) == 1
    leases.find(view, view.attempts[0])
    assert len(asked) == 1, "that is known"
    leases.forget("j-1-1")
    leases.keep(view, view.attempts[0], now)
    assert len(asked) == 2


def test_what_was_found_beforehand_is_forgotten_too(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    leases, worklist, _ = kept(stage)
    (view,), now = worklist.look(), stage.clock.now()
    (attempt,) = view.attempts
    granted = leases.granted(view, attempt, now)
    written = list[object]()
    monkeypatch.setattr(stage.mailbox, "write_lease", lambda *about: written.append(about))
    monkeypatch.setattr(stage.mailbox, "lease", lambda *about: granted)
    leases.find(view, attempt)
    leases.forget(attempt.key)
    monkeypatch.setattr(stage.mailbox, "lease", lambda *about: None)
    leases.keep(view, attempt, now)
    assert written == [(view, attempt, granted)]
