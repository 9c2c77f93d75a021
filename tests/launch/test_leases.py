"""Leases on the rehearsal stage: nodes hear in time that somebody looks after them, and stop when nobody does."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.clock import ManualClock
from broker.core.errors import Unreachable
from broker.core.offers import MoneyKind
from broker.core.outcomes import Cause
from broker.core.policy import IdleLimit
from broker.core.views import AttemptView, JobView
from broker.launch.leases import Leases
from broker.launch.mailbox import Lease
from broker.launch.worklist import Worklist
from broker.store import Store
from tests.launch.rehearsal import MINUTE, Stage, retrying

HOUR = timedelta(hours=1)


@pytest.fixture
def stage(store: Store, clock: ManualClock) -> Stage:
    return Stage(store, clock)


def test_rented_machines_hear_in_time_that_somebody_looks_after_them(stage: Stage) -> None:
    stage.policy = replace(stage.policy, defaults=replace(stage.policy.defaults, max_unattended=HOUR))
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
    monkeypatch.setattr(stage.reconciler._leases, "_idle_limits", lambda view: limits)
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

    def lease(view: JobView, attempt: AttemptView) -> Lease | None:
        asked.append(attempt.key)
        if len(asked) == 1:
            raise Unreachable("time-out")
        return written[-1]

    monkeypatch.setattr(stage.mailbox, "lease", lease)
    worklist = Worklist(stage.store)
    (view,) = worklist.look()
    leases = Leases(stage.mailbox, worklist, lambda job: None)
    for _ in range(2):
        leases.find(view, view.attempts[0])
    leases.keep(view, view.attempts[0], stage.clock.now())
    leases.find(view, view.attempts[0])
    assert len(asked) == 2, "once it failed, once it was read, and then it is known"
    assert stage.mailbox.leases["j-1-1"] == written
