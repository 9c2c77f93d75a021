"""Leases on the rehearsal stage: nodes hear in time that somebody looks after them, and stop when nobody does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from broker.core.errors import Unreachable
from broker.core.events.outcomes import AttemptState, Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import IdleLimit
from broker.engines.runfolder.mailbox import LeaseGrant
from broker.reconciler.leases import Leases, NoNodeLimits
from broker.reconciler.worklist import Worklist
from tests.controllers import FixedLimits
from tests.reconciler.rehearsal import MINUTE, OpenPolicy, Stage, retrying, running

HOUR = timedelta(hours=1)


def test_rented_machines_hear_in_time_that_somebody_looks_after_them(stage: Stage) -> None:
    stage.policy = OpenPolicy(defaults=replace(stage.policy.defaults, max_unattended=HOUR))
    stage.restart()
    job = retrying(0).model_copy(update={"max_unattended": 2 * HOUR})
    stage.submit(job)
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time()
    leases = stage.mailbox.leases["j-1-1"]
    assert leases[-1].max_unattended == HOUR, "the shorter of job and policy"
    before = len(leases)
    stage.pass_time(MINUTE, times=60)
    assert 4 <= len(leases) - before <= 8, "renewed often enough, and not with every look"


def test_what_of_idleness_ends_a_job_is_in_its_lease_whoever_pays_and_changes_with_the_policy(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [IdleLimit(5.0, HOUR, "for 1h; the limit is 5% (t.yaml:3)")]
    stage.offers = [replace(o, money=MoneyKind.AMORTISED) for o in stage.offers]
    stage.begin(stage.place, stage.enforce, limits=FixedLimits(limits))
    stage.submit()
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time(MINUTE, times=5)
    leases = stage.mailbox.leases["j-1-1"]
    assert [lease.idle for lease in leases] == [tuple(limits)] * len(leases)
    before = len(leases)
    stage.pass_time(MINUTE, times=5)
    assert len(leases) == before, "the same limit is not told again"
    limits.clear()
    stage.pass_time(MINUTE)
    assert leases[-1].idle == ()


def test_what_is_paid_already_may_be_left_alone(stage: Stage) -> None:
    stage.offers = [replace(o, money=MoneyKind.AMORTISED) for o in stage.offers]
    stage.submit(retrying(0).model_copy(update={"max_unattended": HOUR}))
    stage.pass_time()
    assert stage.mailbox.leases["j-1-1"][-1].max_unattended is None


def test_who_was_left_alone_for_too_long_goes_on_when_somebody_is_back(stage: Stage) -> None:
    key = "j-1-1"
    stage.submit()
    stage.pass_time()
    stage.mailbox.starts(key)
    stage.pass_time()
    stage.mailbox.exits(key, Cause.UNATTENDED)
    stage.engine.cancel(key)
    stage.clock.advance(5 * HOUR)
    stage.restart()
    stage.pass_time(times=3)
    assert stage.view.attempts[0].cause is Cause.UNATTENDED
    assert stage.engine.submitted == [key, "j-1-2"]
    assert stage.view.failures == 0


def test_an_engine_that_does_not_answer_leaves_no_node_alone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.submit(retrying(0).model_copy(update={"max_unattended": HOUR}))
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time()

    def away(handles: object) -> object:
        raise Unreachable("nobody answers")

    monkeypatch.setattr(stage.engine, "observe", away)
    leases = stage.mailbox.leases["j-1-1"]
    before = len(leases)
    stage.pass_time(MINUTE, times=60)
    assert len(leases) - before >= 4, "the broker is there, and the node hears so"


def test_what_an_earlier_process_granted_is_read_beforehand_and_not_written_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of machines run when a broker starts; one store request after the other would take minutes."""
    stage.submit()
    stage.pass_time()
    written, asked = list(stage.mailbox.leases["j-1-1"]), list[str]()

    def lease(view: JobView, attempt: AttemptView) -> LeaseGrant | None:
        asked.append(attempt.key)
        if len(asked) == 1:
            raise Unreachable("time-out")
        return written[-1]

    monkeypatch.setattr(stage.mailbox, "lease", lease)
    worklist = Worklist(stage.store)
    (view,) = worklist.look()
    leases = Leases(stage.mailbox, worklist, NoNodeLimits())
    for _ in range(2):
        leases.find(view, view.attempts[0])
    leases.keep(view, view.attempts[0], stage.clock.now())
    leases.find(view, view.attempts[0])
    assert len(asked) == 2, "once it failed, once it was read, and then it is known"
    assert stage.mailbox.leases["j-1-1"] == written


IDLE = IdleLimit(5.0, HOUR, "for 1h; the limit is 5% (t.yaml:3)")


@dataclass
class Fleet:
    """Attempts that run on what is paid already, each with a lease that its node has."""

    stage: Stage
    views: list[JobView]
    limits: list[IdleLimit]
    leases: Leases
    order: int = 1

    @classmethod
    def of(cls, stage: Stage, count: int, *, longest: timedelta | None = None) -> Fleet:
        if longest is None:
            stage.offers = [replace(o, money=MoneyKind.AMORTISED) for o in stage.offers]
        running(stage)
        (view,), limits, worklist = Worklist(stage.store).look(), list[IdleLimit](), Worklist(stage.store)
        keys = [f"k-{number}" for number in range(count)]
        views = [replace(view, id=key, attempts=(replace(view.attempts[0], key=key),)) for key in keys]
        made = cls(stage, views, limits, Leases(stage.mailbox, worklist, FixedLimits(limits, longest)))
        stage.mailbox.leases = {key: [made.leases.granted(one, one.attempts[0], stage.clock.now())]
                                for key, one in zip(keys, views, strict=True)}  # fmt: skip
        return made

    def look(self, by: timedelta = timedelta(0)) -> int:
        """One look at all of them; how many leases were written with it."""
        self.stage.clock.advance(by)
        before = self.written
        self.leases.begin_tick()
        for view in self.views[:: self.order]:
            self.leases.keep(view, view.attempts[0], self.stage.clock.now())
        return self.written - before

    @property
    def written(self) -> int:
        return sum(len(leases) for leases in self.stage.mailbox.leases.values())

    def has(self, *idle: IdleLimit) -> bool:
        return all(leases[-1].idle == idle for leases in self.stage.mailbox.leases.values())


@pytest.mark.parametrize("order", [1, -1])
def test_of_thousands_that_learn_of_a_new_limit_some_hear_of_it_with_each_look(stage: Stage, order: int) -> None:
    """Written one after the other, while nothing else is observed. Also what an earlier process granted."""
    fleet = Fleet.of(stage, 250)
    fleet.limits.append(IDLE)
    fleet.order = order
    assert [fleet.look() for _ in range(4)] == [100, 100, 50, 0]
    assert fleet.has(IDLE)


def test_money_and_the_word_to_stop_do_not_wait_for_that(stage: Stage) -> None:
    fleet = Fleet.of(stage, 250)
    fleet.look()
    fleet.limits.append(IDLE)
    later = [replace(view, max_duration=view.max_duration + HOUR) for view in fleet.views[:120]]
    fleet.views[:120] = [replace(view, seq=view.seq + 1) for view in later]
    stopped = [replace(one.attempts[0], stop_requested=Cause.STOPPED_BY_POLICY) for one in fleet.views[-20:]]
    fleet.views[-20:] = [
        replace(view, seq=view.seq + 1, attempts=(one,)) for view, one in zip(fleet.views[-20:], stopped, strict=True)
    ]
    assert [fleet.look() for _ in range(3)] == [240, 10, 0]
    assert all(fleet.stage.mailbox.leases[view.id][-1].stop is Cause.STOPPED_BY_POLICY for view in fleet.views[-20:])


def test_renewals_of_thousands_are_spread_and_none_comes_too_late(stage: Stage) -> None:
    fleet = Fleet.of(stage, 350, longest=HOUR)
    assert fleet.look() == 350, "how old they are is not known"
    assert [fleet.look(16 * MINUTE), *(fleet.look() for _ in range(4))] == [100, 100, 100, 50, 0]
    assert fleet.look(31 * MINUTE) == 350, "at half the time they wait no longer"


def test_a_lease_follows_the_time_that_another_machine_of_the_job_takes(stage: Stage) -> None:
    """An older machine that nobody could end uses up the job's time as well: the end comes nearer while nothing else
    changes."""
    stage.offers = [stage.offers[1]]
    running(stage)
    view, now = stage.view, stage.clock.now()
    older = replace(view.attempts[0], state=AttemptState.LOST, cause=Cause.MACHINE_LOST, ended_at=now)
    newer = replace(view.attempts[0], number=2, key="j-1-2", up_since=now)
    two = replace(view, attempts=(older, newer))
    worklist = Worklist(stage.store)
    worklist.look()
    leases = Leases(stage.mailbox, worklist, NoNodeLimits())
    first, later = (leases.granted(two, newer, now + passed) for passed in (timedelta(0), 10 * MINUTE))
    assert first.ends_at is not None
    assert later.ends_at == first.ends_at - 10 * MINUTE
    alone = replace(two, attempts=(replace(older, gone=True, gone_at=now), newer))
    assert len({leases.granted(alone, newer, now + n * MINUTE) for n in range(3)}) == 1, "time alone changes nothing"


@pytest.mark.parametrize(("moved", "written"), [(4, False), (6, True), (600, True), (-6, True)])
def test_a_node_hears_of_more_or_less_money_but_not_of_a_rounding(stage: Stage, moved: int, written: bool) -> None:
    running(stage)
    (view,), worklist = Worklist(stage.store).look(), Worklist(stage.store)
    worklist.look()
    leases, now, attempt = Leases(stage.mailbox, worklist, NoNodeLimits()), stage.clock.now(), view.attempts[0]
    granted = leases.granted(view, attempt, now)
    assert granted.paid_until is not None
    before = replace(granted, paid_until=granted.paid_until - timedelta(seconds=moved))
    stage.mailbox.leases[attempt.key] = [before]
    leases.keep(view, attempt, now)
    assert (stage.mailbox.leases[attempt.key] == [before, granted]) is written
