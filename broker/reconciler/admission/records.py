"""The records of a judgment of the gate: the ledger entries of a hold, the decision, the event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from broker.core.events import events as ev
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import MoneyRefused, MoneyTooLittle, NothingFits, PolicyDenies, WaitsForPaid
from broker.core.job.placements import Placement, Plan
from broker.core.job.reasons import Reason, Rejection, count_reasons
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import Decision, sealed, written
from broker.core.policy.policy import Answer, Facts
from broker.core.ports import PolicySet
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Balance, Entry, Movement, Tags, move, movements
from broker.ledger.journal import Reading
from broker.placement.wait_for_reserved import WaitForReserved
from broker.reconciler.admission.admission import Admission

# The kinds of rules whose refusal for lack of money only a person can change. Other refusals may end without a person.
_ABOUT_MONEY = ("budget", "budget_required")


def attempt_key(job_id: str, number: int) -> str:
    """The key of an attempt, on which engine calls are idempotent."""
    return f"{job_id}-{number}"


def launch_request(
    job_id: str, number: int, placement: Placement, view: JobView | None = None, why: str = ""
) -> ev.LaunchRequested:
    """The intent to launch attempt ``number`` on this placement, to be resumed from the newest known checkpoint."""
    checkpoint = view.checkpoint if view else None
    return ev.LaunchRequested(
        key=attempt_key(job_id, number),
        engine=placement.offer.engine or "",
        placement=placement,
        resume_from=checkpoint.id if checkpoint else None,
        why=why,
    )


def hold_entries(
    tags: Tags, held: Mapping[MoneyKind, Money], burns: Mapping[MoneyKind, Burn], movement: Movement, number: int
) -> list[Entry]:
    """The entries after which the job's hold is ``burns``, with their dates.

    ``held``: the usable hold before. An increase is posted as ``movement`` (hold or top-up), a decrease as a release.
    ``number``: the number of the job's movements so far (`movements_of`); it makes the new ids unique.
    """
    found: list[Entry] = []
    for kind, burn in burns.items():
        before = held.get(kind, Money.ZERO)
        more, less = max(burn.amount - before, Money.ZERO), max(before - burn.amount, Money.ZERO)
        for what, amount in ((Movement.RELEASE, less), (movement if more else Movement.DATE, more)):
            found += move(
                what,
                amount,
                movement_id=f"{tags.job_id}/{what}/{number}/{kind}/dated",
                money=kind,
                at=burn.start,
                covers=(burn.start, burn.end),
                tags=tags,
                rate=None if what is Movement.RELEASE else burn.rate,
            )
    return found


def movements_of(look: Reading, job_id: str) -> int:
    """The number of the job's movements of money so far."""
    return movements(look.sums([job_id]).get(job_id, ()))


def held_of(balance: Mapping[MoneyKind, Balance]) -> dict[MoneyKind, Money]:
    """The hold of each kind of money."""
    return {kind: one.held for kind, one in balance.items()}


def decision_of(admission: Admission, plan: Plan, policy: PolicySet, facts: Facts) -> Decision:
    """The record of one judgment at the gate."""
    p, action = admission.placement, admission.action
    others = [other for other in plan.placements if other is not p]
    inputs = written(action, facts, others, counts_live=policy.counts_live)
    return Decision(
        at=plan.made_at,
        action=action.kind,
        user=action.user,
        job_name=action.job.name,
        answer=admission.answer,
        policy_version=policy.version,
        facts_hash=sealed(inputs, policy.version),
        pool=p.offer.pool,
        verdicts=admission.verdicts,
        seen={
            "offers_seen": plan.offers_seen,
            "rejections": {str(reason): count for reason, count in count_reasons(plan.rejections).items()},
            "expected_cost": p.expected_cost.as_json(),
            "money": {str(kind): amount.as_json() for kind, amount in admission.money.items()},
            "inputs": inputs,
        },
    )


def refusal_of(found: Admission) -> ev.NothingFeasible | ev.Paused:
    """The event for a refusal: if money was refused or insufficient, the job is paused; after any other refusal it
    waits.
    """
    objections = tuple(verdict.objection for verdict in found.objections)
    if found.burns and any(verdict.rule in _ABOUT_MONEY for verdict in found.objections):
        return ev.Paused(reason=MoneyRefused(objections=objections, more=bool(found.money)))
    if found.answer is not Answer.ALLOW:
        return ev.NothingFeasible(reason=PolicyDenies(objections=objections))
    assert found.short_of is not None, "a launch that is allowed and paid for is not refused"
    instance_type = found.placement.offer.instance_type
    return ev.Paused(reason=MoneyTooLittle(instance_type=instance_type, least=found.short_of))


def nothing_fits(rejections: Sequence[Rejection]) -> NothingFits | PolicyDenies:
    """Why no offer is left: the objecting rules, if rules deny every offer that suits the job, unless the job waits for
    its turn on owned machines; else the counted rejections.
    """
    denied = {one.objection for one in rejections if one.objection is not None}
    if not denied or any(one.reason is Reason.TOO_FEW_MACHINES for one in rejections):
        return NothingFits(counts={str(reason): count for reason, count in count_reasons(rejections).items()})
    if len(denied) > 1:  # the messages differ by placement
        denied = {replace(one, message="") for one in denied}
    objections = sorted(denied, key=lambda one: (one.source, one.name, one.code))
    return PolicyDenies(objections=tuple(objections), everywhere=True)


def waits_for_paid(waiting: WaitForReserved) -> WaitsForPaid:
    """The wait for prepaid capacity as a reason that events store."""
    offer = waiting.placement.offer
    return WaitsForPaid(
        pool=offer.pool,
        instance_type=offer.instance_type,
        capacity_type=offer.capacity_type,
        until=waiting.until,
        saves=waiting.saves,
        an_hour=waiting.burst.duration is None,
        rents_from=waiting.burst.offer.provider,
    )
