"""The records of a judgment of the gate: the ledger entries of a hold, the decision, the event."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from broker.core.events import events as ev
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import MoneyRefused, MoneyTooLittle, NothingFits, PolicyDenies, WaitsForPaid
from broker.core.job.placements import Placement, Plan
from broker.core.job.reasons import Reason, Rejection, count_reasons
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import Decision, dump_inputs, seal
from broker.core.policy.policy import Answer, Facts, LiveAttempt
from broker.core.ports import PolicySet
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Balance, Entry, Movement, Tags, move, movements
from broker.placement.wait_for_reserved import WaitForReserved
from broker.reconciler.admission.admission import Admission, re_place
from broker.reconciler.admission.approvals import usable_balances
from broker.reconciler.admission.facts import facts_of
from broker.reconciler.progress import billed_time
from broker.reconciler.settlement.settlement import tags_of
from broker.store.jobs.reader import StoreReader

# The kinds of rules whose refusal for lack of money only a person can change. Other refusals may end without a person.
_MONEY_RULES = ("budget", "budget_required")


def attempt_key(job_id: str, number: int) -> str:
    """The key of an attempt, on which engine calls are idempotent."""
    return f"{job_id}-{number}"


def job_of(key: str) -> str:
    """The id of the job of an attempt's key."""
    return key.rpartition("-")[0]


def launch_request(
    job_id: str,
    number: int,
    placement: Placement,
    view: JobView | None = None,
    reason: str = "",
    standby_until: datetime | None = None,
) -> ev.LaunchRequested:
    """The intent to launch attempt ``number`` on this placement, to be resumed from the newest known checkpoint."""
    checkpoint = view.checkpoint if view else None
    return ev.LaunchRequested(
        key=attempt_key(job_id, number),
        engine=placement.offer.engine or "",
        placement=placement,
        resume_from=checkpoint.id if checkpoint else None,
        why=reason,
        standby_until=standby_until,
    )


def hold_entries(
    tags: Tags, held: Mapping[MoneyKind, Money], burns: Mapping[MoneyKind, Burn], movement: Movement, number: int
) -> list[Entry]:
    """The entries after which the job's hold is ``burns``, with their dates.

    ``held``: the usable hold before. An increase is posted as ``movement`` (hold or top-up), a decrease as a release.
    ``number``: the number of the job's movements so far (`movements_of`); it makes the new ids unique.
    """
    entries: list[Entry] = []
    for kind, burn in burns.items():
        held_before = held.get(kind, Money.ZERO)
        increase, decrease = max(burn.amount - held_before, Money.ZERO), max(held_before - burn.amount, Money.ZERO)
        for step, amount in ((Movement.RELEASE, decrease), (movement if increase else Movement.DATE, increase)):
            entries += move(
                step,
                amount,
                movement_id=f"{tags.job_id}/{step}/{number}/{kind}/dated",
                money=kind,
                at=burn.start,
                covers=(burn.start, burn.end),
                tags=tags,
                rate=None if step is Movement.RELEASE else burn.rate,
            )
    return entries


def movements_of(snapshot: StoreReader, job_id: str) -> int:
    """The number of the job's movements of money so far."""
    return movements(snapshot.sums((job_id,)).get(job_id, ()))


def held_of(balance: Mapping[MoneyKind, Balance]) -> dict[MoneyKind, Money]:
    return {kind: kind_balance.held for kind, kind_balance in balance.items()}


def decision_of(admission: Admission, plan: Plan, policy: PolicySet, facts: Facts) -> Decision:
    alternatives = [other for other in plan.placements if other is not admission.placement]
    inputs = dump_inputs(admission.action, facts, alternatives, counts_live=policy.counts_live)
    seen = {
        "offers_seen": plan.offers_seen,
        "rejections": {str(reason): count for reason, count in count_reasons(plan.rejections).items()},
        "expected_cost": admission.placement.expected_cost.as_json(),
        "money": {str(kind): amount.as_json() for kind, amount in admission.money.items()},
    }
    judged = (admission.action, admission.answer, admission.verdicts, policy.version)
    return seal(inputs, *judged, at=plan.made_at, seen=seen)


@dataclass(frozen=True, slots=True)
class JudgedStart:
    """The gate's answer, its record, the entries of the hold that it judged, and the running attempts it counted."""

    admission: Admission
    record: Decision
    hold: Sequence[Entry]
    live: Sequence[LiveAttempt]


def judge_start(
    tx: StoreReader,
    view: JobView,
    plan: Plan,
    policy: PolicySet,
    now: datetime,
    leaving: Collection[str] = (),
    by_owner: bool = False,
) -> JudgedStart:
    """Judge the best placement of the plan that the policies allow: see `re_place` and `facts_of`."""
    facts_for, balance = facts_of(tx, policy, now, leaving=leaving), usable_balances(view, tx.balance(view.id))
    admission = re_place(
        view, plan, policy, facts_for, balance, billed=billed_time(view, now), now=now, by_owner=by_owner
    )
    facts = facts_for(admission.action)
    number = movements_of(tx, view.id)
    hold = hold_entries(tags_of(view), held_of(balance), admission.burns, Movement.TOP_UP, number)
    record = replace(decision_of(admission, plan, policy, facts), job_id=view.id)
    return JudgedStart(admission, record, hold, facts.live)


def refusal_of(admission: Admission) -> ev.NothingFeasible | ev.Paused:
    """The event for a refusal: if money was refused or insufficient, the job is paused; after any other refusal it
    waits.
    """
    objections = tuple(verdict.objection for verdict in admission.objections)
    if admission.burns and any(verdict.rule in _MONEY_RULES for verdict in admission.objections):
        return ev.Paused(reason=MoneyRefused(objections=objections, more=bool(admission.money)))
    if admission.answer is not Answer.ALLOW:
        return ev.NothingFeasible(reason=PolicyDenies(objections=objections))
    assert admission.short_of is not None, "a launch that is allowed and paid for is not refused"
    instance_type = admission.placement.offer.instance_type
    return ev.Paused(reason=MoneyTooLittle(instance_type=instance_type, least=admission.short_of))


def nothing_fits(rejections: Sequence[Rejection]) -> NothingFits | PolicyDenies:
    """Why no offer is left: the objecting rules, if rules deny every offer that suits the job, unless the job waits for
    its turn on owned machines; else the counted rejections.
    """
    denied = {entry.objection for entry in rejections if entry.objection is not None}
    if not denied or any(entry.reason is Reason.TOO_FEW_MACHINES for entry in rejections):
        return NothingFits(counts={str(reason): count for reason, count in count_reasons(rejections).items()})
    if len(denied) > 1:  # the messages differ by placement
        denied = {replace(entry, message="") for entry in denied}
    objections = sorted(denied, key=lambda entry: (entry.source, entry.name, entry.code))
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
