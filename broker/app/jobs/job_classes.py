"""Identical jobs are planned once per market: for a moment, a plan serves the next job of its class.

Many submissions at once are mostly of few kinds, and a plan costs more than all that follows it. It is made outside the
transaction that admits the job, from data that may be stale, and judged in it with current data, whoever made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

from broker.app.jobs.pace import needs_conversion
from broker.app.jobs.preview import PlanBasis, Preview, planned
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.job.jobs import Job
from broker.core.ports import PolicySet
from broker.placement.wait_for_reserved import PAID
from broker.store.market.plan_stamp import PlanStamp

_KEPT = timedelta(seconds=2)  # broker time: by so much a plan's times may be behind
# Plans kept, the newest, and offers of one that is kept: where any machine would do, a plan has the whole market.
_CLASSES, _OFFERS = 16, 10_000


@dataclass(frozen=True, slots=True)
class _PlannedClass:
    """The plan of one job of a class, and what it depends on."""

    kind: Job
    by: Actor
    policy: str
    stamp: PlanStamp
    seen: Preview


_known: WeakKeyDictionary[Broker, Sequence[_PlannedClass]] = WeakKeyDictionary()


def planned_by_class(broker: Broker, job: Job, by: Actor, basis: PlanBasis) -> Preview:
    """As `planned`; by a plan of the last seconds for a job that differs in nothing that plans depend on, if offers,
    policies and occupied machines are as they were then. If only these changed, from the same offers."""
    stamp, policy = basis.look.plan_stamp(), basis.policy
    # Recorded capacity begins and ends by the clock; a model's machines, and speeds by machine, follow from other jobs.
    if stamp.owns or job.model is not None or needs_conversion(job):
        return planned(broker, job, by, basis)
    kind, asked, others = _kind(job, policy), (by, policy.version, stamp), _known.get(broker, ())
    known = next((one for one in others if (one.by, one.policy, one.stamp) == asked and one.kind == kind), None)
    if known is None or not _is_recent(known, basis.now):
        seen = planned(broker, job, by, basis)
    elif not _limited(known.seen, policy) or known.seen.occupied == basis.look.live_attempts():
        return replace(known.seen, job=job)
    else:
        seen = planned(broker, job, by, replace(basis, market=known.seen.market))
    kept = [one for one in others if one is not known and _is_recent(one, basis.now)][: _CLASSES - 1]
    # Other stores, too, use a machine that is divided.
    keeps = len(seen.offers) <= _OFFERS and not any(offer.divided for offer in seen.offers)
    _known[broker] = (_PlannedClass(kind, *asked, seen), *kept) if keeps else tuple(kept)
    return seen


def _is_recent(known: _PlannedClass, now: datetime) -> bool:
    return timedelta(0) <= now - known.seen.plan.made_at < _KEPT


def _kind(job: Job, policy: PolicySet) -> Job:
    """The job without what no plan depends on: its secrets, and its name unless a condition may read it."""
    named = any(policy.when(rule.name) for rule in policy.rules)
    return job.model_copy(update={"seal": None, "name": job.name if named else ""})


def _limited(seen: Preview, policy: PolicySet) -> bool:
    """Whether plans depend on the machines that jobs occupy (`occupied_in`)."""
    return policy.counts_live or any(offer.slots is not None or offer.capacity_type in PAID for offer in seen.offers)
