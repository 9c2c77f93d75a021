"""Cache of plans: for two seconds, a plan is used again for the next identical job (a class of jobs) on the same
market.

Many submissions at once are mostly of a few kinds, and planning takes longer than the rest of a submission. Every plan
is made outside the transaction that admits the job, from data that may be stale, and judged inside it with current
data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

from broker.app.jobs.pace import needs_conversion
from broker.app.jobs.preview import PlanBasis, Preview, planned
from broker.app.market.market import is_fresh, wants_sandbox
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.job.jobs import Job
from broker.core.policy.policy import Answer, LiveAttempt
from broker.core.ports import PolicySet
from broker.placement.wait_for_reserved import PAID
from broker.reconciler.admission.admission import Admission
from broker.store.market.plan_stamp import PlanStamp

_KEPT = timedelta(seconds=2)  # broker time; the times of a plan may be late by this much
# The number of newest plans kept, and of offers in a kept plan: if any machine serves, a plan has the whole market.
_CLASSES, _OFFERS = 16, 10_000


@dataclass(frozen=True, slots=True)
class _PlannedClass:
    """The plan of one job of a class, and what it depends on."""

    kind: Job
    by: Actor
    policy: PolicySet
    stamp: PlanStamp
    seen: Preview


_known: WeakKeyDictionary[Broker, Sequence[_PlannedClass]] = WeakKeyDictionary()


def planned_by_class(broker: Broker, job: Job, by: Actor, basis: PlanBasis) -> Preview:
    """As `planned`, but uses a kept plan for a job that differs in nothing that plans depend on, if offers, policies
    and occupied machines are unchanged. If only occupied machines changed, plans again from the same offers."""
    stamp, policy = basis.look.plan_stamp(), basis.policy
    # Recorded capacity begins and ends by the clock; a model's machines, and speeds by machine, depend on other jobs.
    if stamp.owns or job.model is not None or needs_conversion(job):
        return planned(broker, job, by, basis)
    kind, others = _kind(job, policy), _known.get(broker, ())
    known = next((one for one in others if one.stamp == stamp and _is_of(one, kind, by, policy)), None)
    if known is None or not _is_recent(known, basis.now):
        seen = planned(broker, job, by, basis)
    elif not _limited(known.seen, policy) or known.seen.occupied == basis.look.live_attempts():
        return replace(known.seen, job=job)
    else:
        seen = planned(broker, job, by, replace(basis, market=known.seen.market))
    kept = [one for one in others if one is not known and _is_recent(one, basis.now)][: _CLASSES - 1]
    # Jobs of other stores use a shared machine, too.
    keeps = len(seen.offers) <= _OFFERS and not any(offer.divided for offer in seen.offers)
    _known[broker] = (_PlannedClass(kind, by, policy, stamp, seen), *kept) if keeps else tuple(kept)
    return seen


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A kept plan for a job of the same class, and its policies. Valid while the plan stamp of the store is
    unchanged."""

    policy: PolicySet
    stamp: PlanStamp
    seen: Preview

    def is_outdated(self, admission: Admission, live: Sequence[LiveAttempt]) -> bool:
        """Whether a new plan could have a better result: attempts that ran at planning have ended, so that machines are
        free; or the admission lets the job wait, asks for approval or denies, and other attempts have started since.
        ``live``: the running attempts, oldest first."""
        if not _limited(self.seen, self.policy):
            return False
        settles = admission.answer is Answer.ALLOW and not self.seen.waits
        known = list(self.seen.occupied)
        return known != list(live[: len(known)]) or (not settles and len(known) != len(live))


def kept_plan(broker: Broker, job: Job, by: Actor) -> KeptPlan | None:
    """The newest kept plan for a job that differs in nothing that plans depend on; None if there is none, if nothing
    can start by it, or if a local source is due. Only the transaction that admits the job shows whether it is still
    valid."""
    now = broker.clock.now()
    if not is_fresh(broker, now, sandbox=wants_sandbox(job)):
        return None
    for one in _known.get(broker, ()):
        if _is_recent(one, now) and _is_of(one, _kind(job, one.policy), by, one.policy):
            seen = replace(one.seen, job=job)
            return KeptPlan(one.policy, one.stamp, seen) if seen.plan.placements and seen.needs is None else None
    return None


def _is_of(known: _PlannedClass, kind: Job, by: Actor, policy: PolicySet) -> bool:
    return known.by == by and known.policy.version == policy.version and known.kind == kind


def _is_recent(known: _PlannedClass, now: datetime) -> bool:
    return timedelta(0) <= now - known.seen.plan.made_at < _KEPT


def _kind(job: Job, policy: PolicySet) -> Job:
    """The job without the fields that no plan depends on: its secrets, and its name unless a condition may read it."""
    named = any(policy.when(rule.name) for rule in policy.rules)
    return job.model_copy(update={"seal": None, "name": job.name if named else ""})


def _limited(seen: Preview, policy: PolicySet) -> bool:
    """Whether a plan depends on which machines are occupied (`occupied_in`)."""
    return policy.counts_live or any(offer.slots is not None or offer.capacity_type in PAID for offer in seen.offers)
