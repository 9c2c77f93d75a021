"""Cache of plans: for two seconds, a plan is used again for the next identical job (a class of jobs) on the same
market.

Many submissions at once are mostly of a few kinds, and planning takes longer than the rest of a submission. Every plan
is made outside the transaction that admits the job, from data that may be stale, and judged inside it with current
data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

from broker.app.jobs.preview import PlanBasis, Preview, plan_job
from broker.app.market.experience import needs_conversion
from broker.app.market.market import is_fresh, wants_sandbox
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.job.jobs import Job
from broker.core.market.offers import BOUGHT
from broker.core.policy.policy import Answer, LiveAttempt
from broker.core.ports import PolicySet
from broker.reconciler.admission.admission import Admission
from broker.store.market.market import PlanStamp

_LIFETIME = timedelta(seconds=2)  # broker time; the times of a plan may be late by this much
# The number of newest plans kept, and of offers in a kept plan: if any machine serves, a plan has the whole market.
_CLASSES, _OFFERS = 16, 10_000


@dataclass(frozen=True, slots=True)
class _CacheEntry:
    """The plan of one job of a class, and what it depends on."""

    kind: Job
    by: Actor
    policy: PolicySet
    stamp: PlanStamp
    seen: Preview


_cache: WeakKeyDictionary[Broker, Sequence[_CacheEntry]] = WeakKeyDictionary()


def plan_by_class(broker: Broker, job: Job, by: Actor, basis: PlanBasis) -> Preview:
    """As `plan_job`, but uses a kept plan for a job that differs in nothing that plans depend on, if offers, policies
    and occupied machines are unchanged. If only occupied machines changed, plans again from the same offers."""
    stamp, policy = basis.look.plan_stamp(), basis.policy
    # Recorded capacity begins and ends by the clock; a model's machines, and speeds by machine, depend on other jobs.
    if stamp.owns or job.model is not None or needs_conversion(job):
        return plan_job(broker, job, by, basis)
    kind, entries = _job_class(job, policy), _cache.get(broker, ())
    entry = next(
        (candidate for candidate in entries if candidate.stamp == stamp and _matches(candidate, kind, by, policy)), None
    )
    if entry is None or not _is_recent(entry, basis.now):
        preview = plan_job(broker, job, by, basis)
    elif not _depends_on_occupancy(entry.seen, policy) or entry.seen.occupied == basis.look.live_attempts():
        return replace(entry.seen, job=job)
    else:
        preview = plan_job(broker, job, by, replace(basis, market=entry.seen.market))
    recent_entries = [
        candidate for candidate in entries if candidate is not entry and _is_recent(candidate, basis.now)
    ][: _CLASSES - 1]
    # Jobs of other stores use a shared machine, too.
    is_cacheable = len(preview.offers) <= _OFFERS and not any(offer.divided for offer in preview.offers)
    _cache[broker] = (
        (_CacheEntry(kind, by, policy, stamp, preview), *recent_entries) if is_cacheable else tuple(recent_entries)
    )
    return preview


@dataclass(frozen=True, slots=True)
class ReusablePlan:
    """A kept plan for a job of the same class, and its policies. Valid while the plan stamp of the store is
    unchanged."""

    policy: PolicySet
    stamp: PlanStamp
    seen: Preview

    def is_outdated(self, admission: Admission, live: Sequence[LiveAttempt]) -> bool:
        """Whether a new plan could have a better result: attempts that ran at planning have ended, so that machines are
        free; or the admission lets the job wait, asks for approval or denies, and other attempts have started since.
        ``live``: the running attempts, oldest first."""
        if not _depends_on_occupancy(self.seen, self.policy):
            return False
        can_start = admission.answer is Answer.ALLOW and not self.seen.waits
        occupied = list(self.seen.occupied)
        return occupied != list(live[: len(occupied)]) or (not can_start and len(occupied) != len(live))


def reusable_plan(broker: Broker, job: Job, by: Actor) -> ReusablePlan | None:
    """The newest kept plan for a job that differs in nothing that plans depend on; None if there is none, if nothing
    can start by it, or if a local source is due. Only the transaction that admits the job shows whether it is still
    valid."""
    now = broker.clock.now()
    if not is_fresh(broker, now, sandbox=wants_sandbox(job)):
        return None
    for entry in _cache.get(broker, ()):
        if _is_recent(entry, now) and _matches(entry, _job_class(job, entry.policy), by, entry.policy):
            preview = replace(entry.seen, job=job)
            return (
                ReusablePlan(entry.policy, entry.stamp, preview)
                if preview.plan.placements and preview.needs is None
                else None
            )
    return None


def _matches(entry: _CacheEntry, kind: Job, by: Actor, policy: PolicySet) -> bool:
    return entry.by == by and entry.policy.version == policy.version and entry.kind == kind


def _is_recent(entry: _CacheEntry, now: datetime) -> bool:
    return timedelta(0) <= now - entry.seen.plan.made_at < _LIFETIME


def _job_class(job: Job, policy: PolicySet) -> Job:
    """The job without the fields that no plan depends on: its secrets, and its name unless a condition may read it."""
    reads_name = any(policy.when(rule.name) for rule in policy.rules)
    return job.model_copy(update={"seal": None, "name": job.name if reads_name else ""})


def _depends_on_occupancy(preview: Preview, policy: PolicySet) -> bool:
    """Whether a plan depends on which machines are occupied (`occupied_in`)."""
    return policy.counts_live or any(
        offer.slots is not None or offer.capacity_type in BOUGHT for offer in preview.offers
    )
