"""What the terms of a lease are worked out from, and when they are worked out anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from broker.core.events.outcomes import AttemptState, Cause
from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import IdleLimit
from broker.core.values.clock import ManualClock
from broker.reconciler import leases as module
from broker.reconciler.leases import Leases
from broker.reconciler.settlement.funds import Funds, funds_of
from broker.reconciler.worklist import Worklist
from broker.runfolder.mailbox import LeaseGrant
from broker.store import Store
from tests.controllers import FixedLimits
from tests.reconciler.rehearsal import MINUTE, Stage, finish, offer, running

HOUR = timedelta(hours=1)


@dataclass
class NotedLimits(FixedLimits):
    """Notes of what it is asked."""

    asked: list[object] = field(default_factory=list)

    def idle_limits(self, view: JobView) -> Sequence[IdleLimit]:
        self.asked.append(view)
        return super().idle_limits(view)

    def max_unattended(self, job: Job) -> timedelta | None:
        self.asked.append(job)
        return super().max_unattended(job)

    def edges_ahead(self, view: JobView, kind: MoneyKind) -> Sequence[datetime]:
        self.asked.append((view, kind))
        return [view.submitted_at]


@dataclass
class Terms:
    """The leases of a job that runs on one machine for $3 an hour, fixed, or on another of the test's."""

    stage: Stage
    reckoned: list[tuple[object, ...]]
    limits: NotedLimits = field(default_factory=NotedLimits)

    def __post_init__(self) -> None:
        self.worklist = Worklist(self.stage.store)
        self.leases = Leases(self.stage.mailbox, self.worklist, self.limits)

    def look(self) -> JobView:
        (view,) = self.worklist.look()
        return view


@pytest.fixture
def stage(store: Store, clock: ManualClock) -> Stage:
    made = Stage(store, clock)
    made.offers = [offer(clock.now(), "od", price="3")]
    return made


@pytest.fixture
def terms(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Terms:
    reckoned: list[tuple[object, ...]] = []

    def noted(*about: object) -> Funds:
        reckoned.append(about)
        return funds_of(*about)  # type: ignore[arg-type]  # what it was given

    monkeypatch.setattr(module, "funds_of", noted)
    return Terms(stage, reckoned)


def test_they_are_worked_out_from_what_is_on_record_of_the_job(stage: Stage, terms: Terms) -> None:
    running(stage)
    stage.pass_time(MINUTE, times=3)
    view, now = terms.look(), stage.clock.now()
    terms.reckoned.clear()  # of the stage's own reconciler
    terms.leases.granted(view, view.attempts[0], now)
    assert terms.limits.asked[:2] == [view.job, view]
    (about,) = terms.reckoned
    with stage.store.reading() as look:
        sums, meter = look.sums(["j-1"])["j-1"], look.meters(["j-1"])["j-1"][1]
        judged = look.balance("j-1")[MoneyKind.CASH].burn
    assert judged is not None
    assert about[:-1] == (view, view.attempts[0], sums, terms.worklist.price_series, now, meter, judged)
    edges = about[-1]
    assert callable(edges)
    assert edges() == [view.submitted_at]
    assert terms.limits.asked[-1] == (view, MoneyKind.CASH)


def test_at_a_fixed_price_time_alone_changes_nothing_and_anything_else_does(stage: Stage, terms: Terms) -> None:
    running(stage)
    view = terms.look()

    def anew(view: JobView = view, after: timedelta = MINUTE) -> bool:
        before = len(terms.reckoned)
        terms.leases.granted(view, view.attempts[0], stage.clock.now() + after)
        return len(terms.reckoned) > before

    assert anew()
    assert not anew(after=2 * MINUTE)
    assert anew(replace(view, seq=view.seq + 1)), "something was recorded"
    assert anew()
    terms.limits.longest = HOUR
    assert anew()
    terms.limits.idle = (IdleLimit(5.0, HOUR, "for 1h"),)
    assert anew()
    assert not anew()
    stage.pass_time(MINUTE)  # settled
    assert anew(terms.look())
    terms.leases.forget(view.attempts[0].key)
    assert anew(terms.look())


def test_at_a_spot_price_and_before_the_machine_is_up_they_are_always_worked_out(stage: Stage, terms: Terms) -> None:
    stage.submit()
    waiting = terms.look()
    for n in (1, 2):
        terms.leases.granted(waiting, waiting.attempts[0], stage.clock.now())
        assert len(terms.reckoned) == n
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time()
    up = terms.look()
    assert up.attempts[0].up_since is not None
    spot = Stage(stage.store, stage.clock).offers[0]
    attempt = replace(up.attempts[0], placement=replace(up.attempts[0].placement, offer=spot))
    terms.reckoned.clear()
    for n in (1, 2):
        terms.leases.granted(replace(up, attempts=(attempt,)), attempt, stage.clock.now())
        assert len(terms.reckoned) == n


def test_the_end_of_the_money_is_that_of_the_attempt_that_runs(stage: Stage, terms: Terms) -> None:
    """$12 last four hours at $3, less the time that stopping takes."""
    stage.submit(hold="12")
    before = replace(terms.look(), attempts=())
    assert terms.leases.paid_until(before, stage.clock.now()) is None
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time()
    view, now = terms.look(), stage.clock.now()
    terms.reckoned.clear()
    found = [terms.leases.paid_until(view, now + n * MINUTE) for n in range(2)]
    assert found[0] == found[1]
    assert found[0] is not None
    assert found[0] == funds_of(*terms.reckoned[0]).paid_until  # type: ignore[arg-type]  # what it was given
    assert now + 3 * HOUR < found[0] < now + 4 * HOUR
    finish(stage, "j-1-1", Cause.EXIT_STATUS)
    with stage.store.reading() as look:
        over = look.job("j-1")
    assert over is not None
    assert terms.leases.paid_until(over, now) is None


def test_what_was_paid_before_has_no_end_of_its_money(stage: Stage, terms: Terms) -> None:
    stage.offers = [replace(one, money=MoneyKind.AMORTISED) for one in stage.offers]
    running(stage)
    view = terms.look()
    assert terms.leases.paid_until(view, stage.clock.now()) is None
    assert terms.leases.granted(view, view.attempts[0], stage.clock.now()).paid_until is None


def test_what_has_ended_is_told_to_stop_whatever_it_was_granted(stage: Stage, terms: Terms) -> None:
    running(stage)
    view = terms.look()
    (attempt,) = view.attempts
    over = replace(attempt, state=AttemptState.FAILED, cause=Cause.EXIT_STATUS)
    after = replace(view, attempts=(over,))
    terms.leases.keep(after, over, stage.clock.now())
    assert stage.mailbox.leases["j-1-1"][-1] == LeaseGrant(stop=Cause.EXIT_STATUS)
    fenced = replace(attempt, key="j-1-9")
    terms.leases.withdraw(view, fenced, stage.clock.now())
    assert stage.mailbox.leases["j-1-9"] == [LeaseGrant(stop=Cause.FENCED)]
    terms.leases.withdraw(view, replace(attempt, key="j-1-8"), stage.clock.now(), Cause.MAX_DURATION)
    assert stage.mailbox.leases["j-1-8"] == [LeaseGrant(stop=Cause.MAX_DURATION)]
    terms.leases.withdraw(view, replace(over, key="j-1-7"), stage.clock.now(), Cause.MAX_DURATION)
    assert stage.mailbox.leases["j-1-7"] == [LeaseGrant(stop=Cause.EXIT_STATUS)], "it had ended by itself"


def test_the_word_to_stop_is_written_for_its_own_job(
    stage: Stage, terms: Terms, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(stage)
    view, now, written = terms.look(), stage.clock.now(), list[object]()
    over = replace(view.attempts[0], state=AttemptState.FAILED, cause=Cause.EXIT_STATUS)
    after = replace(view, attempts=(over,))
    monkeypatch.setattr(stage.mailbox, "write_lease", lambda *about: written.append(about))
    terms.leases.keep(after, over, now)
    assert written == [(after, over, LeaseGrant(stop=Cause.EXIT_STATUS))]


@pytest.mark.parametrize(
    ("there", "longest", "reads", "writes"),
    [
        ("same", None, 1, 0),  # written by an earlier process
        ("nothing", None, 1, 1),
        ("unattended", None, 1, 1),  # nobody knows when that was written
        ("same", HOUR, 0, 1),  # nor how long ago the node heard of anybody
    ],
)
def test_what_an_earlier_process_wrote_stands_where_its_age_makes_no_difference(
    stage: Stage, terms: Terms, monkeypatch: pytest.MonkeyPatch, there: str, longest: timedelta | None, reads: int,
    writes: int,
) -> None:  # fmt: skip
    running(stage)
    view, now, terms.limits.longest = terms.look(), stage.clock.now(), longest
    (attempt,) = view.attempts
    granted = terms.leases.granted(view, attempt, now)
    found = {"same": granted, "nothing": None, "unattended": replace(granted, max_unattended=HOUR)}[there]
    asked, written = list[object](), list[object]()

    def lease(*about: object) -> LeaseGrant | None:
        asked.append(about)
        return found

    monkeypatch.setattr(stage.mailbox, "lease", lease)
    monkeypatch.setattr(stage.mailbox, "write_lease", lambda *about: written.append(about))
    terms.leases.keep(view, attempt, now)
    assert asked == [(view, attempt)] * reads
    assert written == [(view, attempt, granted)] * writes
    terms.leases.keep(view, attempt, now)
    assert (len(asked), len(written)) == (reads, writes), "now it is known"


def test_a_lease_is_looked_for_where_its_attempt_runs(
    stage: Stage, terms: Terms, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(stage)
    view, asked = terms.look(), list[object]()
    monkeypatch.setattr(stage.mailbox, "lease", lambda *about: asked.append(about))
    terms.leases.find(view, view.attempts[0])
    assert asked == [(view, view.attempts[0])]
