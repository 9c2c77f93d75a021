"""A plan before submission: the placements, the verdict of the policies, and the first step of a submission."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from broker.app.assumptions import active_assumptions
from broker.app.jobs import arrays, predecessors
from broker.app.jobs.alternatives import (
    cached_reading,
    denial_error,
    max_cost_error,
    max_duration_error,
    no_placement_error,
    submission_alternatives,
)
from broker.app.jobs.queue import MachineUse, hypothetical_views, machine_use
from broker.app.jobs.sealed_secrets import missing_secrets_notes
from broker.app.jobs.unknown_names import unknown_name_warnings
from broker.app.market.market import fresh_reading, market_for, wants_sandbox
from broker.app.market.offer_rows import unknown_providers
from broker.app.market.recorded_capacity import ANY_ENGINE, is_recorded, recorded_offers, unreached_capacity_notes
from broker.app.market.strategy_history import record_market
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import Alternative, BrokerError, InvalidInput, NotAllowed, unknown_team_text
from broker.core.events import events as ev
from broker.core.job.jobs import Job
from broker.core.job.pitfalls import pitfalls
from broker.core.job.placements import Placement, Plan
from broker.core.job.reasons import MISSING_SETUP, Origin, Reason
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.policy.policy import Action, ActionKind, Answer, LiveAttempt
from broker.core.ports import BudgetSpec, PolicySet
from broker.ledger.budgets import BudgetShare, budget_shares
from broker.placement.feasibility import PreparedJob
from broker.placement.notes import never_done, time_limit
from broker.placement.planner import Deny, PlanInputs, make_plan
from broker.placement.pricing.conditions import Conditions
from broker.placement.pricing.time_value import is_start_flexible
from broker.placement.remedies import NEAREST_LAST, matching_otherwise, remedy, without_exclusion
from broker.placement.wait_for_reserved import WaitForReserved
from broker.reconciler.admission.admission import Admission, admit, as_if_unoccupied, denials, subtract_occupied
from broker.reconciler.admission.facts import facts_of, occupied_in, wait_for_paid
from broker.reconciler.controllers.placement import PlacementController
from broker.reconciler.controllers.strategy_advice import Strategist

if TYPE_CHECKING:
    from broker.app.advise.model_job import Sizing
    from broker.store.jobs.reader import StoreReader


class NothingToJudge(BrokerError):
    """No offer can serve the job, so no rule has anything to judge (exit 4)."""

    exit_code = 4


class NoFeasibleCapacity(BrokerError):
    """No offer can serve the job (exit 4). ``preview``: the plan with every rejection."""

    exit_code = 4

    def __init__(self, preview: Preview) -> None:
        hint, nearest = "see `gpubroker prices status`", max(preview.counts, key=NEAREST_LAST.index, default=None)
        if nearest is not None:
            ids = {rejection.offer_id for rejection in preview.plan.rejections if rejection.reason is nearest}
            offers = preview.alone.get(nearest) or [offer for offer in preview.offers if offer.id in ids]
            engines = preview.market.conditions.engines if preview.market else {}
            hint = f"{nearest.text}: {remedy(nearest, preview.job, offers, engines)}"
        super().__init__("no offer can serve this job", hint=hint)
        self.preview = preview


@dataclass(frozen=True, slots=True)
class FirstMove:
    """The first step after a submission. ``placement``: where the first attempt would be tried; None if the job would
    wait first. ``why``: the strategy's reason; empty if no strategy decides."""

    placement: Placement | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class PlanBasis:
    """The inputs of a plan: the policies, one view of the store, and the time (UTC). ``elsewhere``: another tool
    launches, so that the engines set up here and the reach of the run folders do not matter. ``market``: the offers and
    conditions for the job, if known already."""

    policy: PolicySet
    look: StoreReader
    now: datetime
    elsewhere: bool = False
    market: PlanInputs | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """The plan of a job for the person ``by``, and the verdict of the policies.

    ``left_out``: offers that the store's own filter rejected. ``admission``: the verdict; None if no placement is left
    to judge. ``waits``: the job fits only capacity that jobs of this store occupy, so it would be queued. ``offers``:
    the offers that the plan was made from. ``sizing``: how machines were chosen for a job that names a model.
    ``waiting``: the reserved or owned capacity that the job should wait for although it could rent now. ``budgets``:
    the budgets that the job counts against. ``alternatives``: similar requests that the policies would allow, if they
    refuse this one. ``estimate``: if nothing can start because setup is missing, the plan with every engine installed
    and reference prices allowed. ``machines``: what is free on owned machines that jobs share. ``first``: the first
    step after submission; None if it was not determined, or if the job would be queued. ``occupied``, ``market``: the
    running attempts, and the inputs about offers, that the plan took into account. ``alone``: for a job without
    placements, the offers that one of its limits alone excludes. ``array_refusal``: why an array cannot begin although
    one task of it could.
    """

    job: Job
    by: Actor
    plan: Plan
    left_out: Mapping[Reason, int]
    admission: Admission | None
    max_duration: timedelta
    waits: bool = False
    offers: Sequence[Offer] = ()
    sizing: Sizing | None = None
    waiting: WaitForReserved | None = None
    budgets: Sequence[BudgetSpec] = ()
    occupied: Sequence[LiveAttempt] = ()
    market: PlanInputs | None = None
    alternatives: Sequence[Alternative] | None = None
    estimate: Plan | None = None
    machines: tuple[MachineUse, ...] = ()
    first: FirstMove | None = None
    alone: Mapping[Reason, Sequence[Offer]] = field(default_factory=dict)
    array_refusal: NotAllowed | None = None

    @property
    def in_order(self) -> tuple[Placement, ...]:
        """The placements as ranked, but with that of the first attempt before the others."""
        first = self.first.placement if self.first is not None else None
        if first is None:
            return self.plan.placements
        leading = [placement for placement in self.plan.placements if placement.offer.id == first.offer.id] or [first]
        return (*leading, *(placement for placement in self.plan.placements if placement.offer.id != first.offer.id))

    @property
    def needs(self) -> timedelta | None:
        """The shortest time in which the work can be done, if the job's own `max_duration` is shorter; else None."""
        return never_done(self.job, self.plan.placements)

    @property
    def shares(self) -> list[BudgetShare]:
        """How the money to be held is divided among budget periods, as the policies judged it."""
        return budget_shares(self.budgets, self.admission.burns) if self.admission else []

    @property
    def counts(self) -> dict[Reason, int]:
        """The number of rejected offers by reason, most frequent first; ``left_out`` included."""
        counts = Counter(self.left_out)
        counts.update(rejection.reason for rejection in self.plan.rejections)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def over_max_cost(self) -> int:
        """The number of placements with an expected cost above the job's max_cost, at which the job would be paused."""
        limit = self.job.max_cost
        known = (
            placement
            for placement in self.plan.placements
            if placement.duration is not None and placement.money is not MoneyKind.AMORTISED
        )
        return sum(limit is not None and placement.expected_cost > limit for placement in known)

    @property
    def exit_code(self) -> int:
        """0: can be submitted. Otherwise 2: the job's own limits; 3: a policy; 4: the market; 6: approval needed."""
        if self.admission is None:
            # If a policy rejected an otherwise feasible offer, the policy is the reason.
            return 3 if any(r.origin is Origin.POLICY for r in self.plan.reasons()) else 4
        if self.admission.short_of is not None or self.needs is not None:
            return 2
        if self.array_refusal is not None:
            return 3
        return {Answer.ALLOW: 0, Answer.DENY: 3, Answer.ASK: 6}[self.admission.answer]

    def with_notes(self, *notes: str) -> Preview:
        """The preview with more notes on its plan, which are more important than those that it has."""
        return replace(self, plan=replace(self.plan, notes=(*notes, *self.plan.notes)))


def preview(
    broker: Broker,
    job: Job,
    policy: PolicySet | None = None,
    *,
    by: Actor,
    by_carbon: bool = False,
    sends_secrets: bool = True,
) -> Preview:
    """The effect of a submission of the job by ``by`` now. Holds no money. ``policy`` (default: the active one) and
    ``by_carbon`` (rank placements by emissions) are for what-if questions only. ``sends_secrets``: a submission takes
    the job's secrets from the environment of this process. Raises `InvalidInput` for a job that cannot be planned,
    `StoreProblem`."""
    with fresh_reading(broker, sandbox=wants_sandbox(job)) as reader:
        basis = PlanBasis(policy or broker.policy(reader), reader, broker.clock.now())
        if job.team is not None and basis.policy.teams and job.team not in basis.policy.teams:
            raise InvalidInput(unknown_team_text(job.team, basis.policy.teams), where="team")
        result = plan_job(broker, job, by, basis, by_carbon=by_carbon)
        result = result.with_notes(*unknown_name_warnings(broker, basis.policy, result.budgets, job))
        if holdings := reader.holdings():
            result = result.with_notes(
                *unreached_capacity_notes(result.job, holdings, result.offers, basis.now, active_assumptions(reader))
            )
        if sends_secrets:
            result = result.with_notes(*missing_secrets_notes(job))
        result = result.with_notes(*pitfalls(job))
        if not result.plan.placements:
            result = replace(result, alone=_excluded_alone(broker, result, basis))
            return result.with_notes(*unknown_providers(broker, job))
        facts_for = facts_of(reader, basis.policy, basis.now, occupied_in(reader, basis.policy, ()))
        admission = admit(
            result.job,
            by.identity,
            result.plan,
            basis.policy,
            facts_for,
            max_duration=result.max_duration,
            now=basis.now,
        )
        if admission.answer is Answer.DENY:
            result = replace(result, alternatives=passing_alternatives(broker, result, admission, basis))
    result = result.with_notes(*(f"rule {v.name} {v.message} ({v.source})" for v in admission.verdicts if v.warns))
    if job.after:
        result = result.with_notes(predecessors.predecessors_note(job))
    if job.array is not None:
        note = arrays.outlook_note(job.array, result.job, result.plan, admission, result.max_duration)
        result = result.with_notes(note)
        if admission.answer is Answer.ASK:
            result = replace(result, array_refusal=arrays.too_many(0, admission, job))
        elif admission.answer is Answer.ALLOW and not result.waits and not job.after:
            first = submission(result, basis.now)
            refused = arrays.rehearse(broker.store, first, result.plan, basis.policy, basis.now)
            result = replace(result, array_refusal=refused)
    result = _add_first_move(broker, result, admission, basis.policy, by_carbon=by_carbon)
    if admission.short_of is not None:
        result = result.with_notes(max_cost_error(admission).message)
    elif (shortest := result.needs) is not None:
        result = result.with_notes(max_duration_error(result.job, shortest).message)
    return replace(result, admission=admission)


def refusal(job_preview: Preview) -> BrokerError:
    """Why the job of a preview cannot be submitted, or not without approval. Its ``exit_code`` must not be 0."""
    if job_preview.exit_code == 4:
        return NoFeasibleCapacity(job_preview)
    if job_preview.array_refusal is not None:
        return job_preview.array_refusal
    if job_preview.needs is not None:
        return max_duration_error(job_preview.job, job_preview.needs)
    return (
        no_placement_error(job_preview.plan, job_preview.offers)
        if job_preview.admission is None
        else denial_error(job_preview.admission, job_preview.alternatives)
    )


def submission(preview: Preview, now: datetime) -> ev.Submitted:
    """The first event of the job that a preview shows."""
    return ev.Submitted(
        job=preview.job,
        user=preview.by.identity,
        deadline=preview.job.deadline_at(now),
        max_duration_seconds=preview.max_duration.total_seconds(),
        work_seconds=preview.plan.remaining.total_seconds() if preview.plan.remaining else None,
        on_demand=_baseline(preview.plan),
    )


def _baseline(plan: Plan) -> ev.Baseline | None:
    """The cheapest on-demand placement, against which savings are measured."""
    cheapest = plan.cheapest(CapacityType.ON_DEMAND)
    if cheapest is None:
        return None
    return ev.Baseline(pool=cheapest.offer.pool, rate=cheapest.rate, throughput=cheapest.throughput)


def plan_job(broker: Broker, job: Job, by: Actor, basis: PlanBasis, *, by_carbon: bool = False) -> Preview:
    """The plan, before the policies judge it as a whole (``admission`` is None). Raises as `preview`."""
    job, sizing = _resolve_machines(job, basis.look, basis.now)
    market = basis.market or market_for(broker, job, basis.policy, by_carbon=by_carbon, reader=basis.look)
    if holdings := basis.look.holdings():
        accelerators = {machine.accelerator for machine in job.resources if machine.accelerator}
        if accelerators:
            rules = active_assumptions(basis.look)
            recorded_capacity = recorded_offers(holdings, market.offers, basis.now, rules, accelerators)
            market = replace(market, offers=[*market.offers, *recorded_capacity])
    if basis.elsewhere:
        market = replace(market, conditions=_conditions_with_all_engines(job, market))
    result = _place(job, by, market, basis)
    if sizing is None:
        return result
    return replace(result, sizing=sizing, plan=replace(result.plan, notes=(*sizing.notes, *result.plan.notes)))


def passing_alternatives(
    broker: Broker, job_preview: Preview, denial: Admission, basis: PlanBasis
) -> list[Alternative]:
    """Requests similar to the refused one that the policies would allow. Raises as `preview`."""
    basis = replace(basis, look=cached_reading(basis.look))
    facts_for = facts_of(basis.look, basis.policy, basis.now, occupied_in(basis.look, basis.policy, ()))
    return submission_alternatives(
        denial, job_preview.plan, basis.policy, facts_for, max_duration=job_preview.max_duration, now=basis.now,
        plan_job=lambda job: plan_job(broker, job, job_preview.by, basis).plan,
    )  # fmt: skip


def _excluded_alone(broker: Broker, seen: Preview, basis: PlanBasis) -> dict[Reason, Sequence[Offer]]:
    """The offers that the job excludes for one reason alone. The store leaves such offers out, so it is asked again."""
    found: dict[Reason, Sequence[Offer]] = {}
    for reason in seen.counts:
        if (relaxed := without_exclusion(reason, seen.job)) is None:
            continue
        market = market_for(broker, relaxed, basis.policy, reader=basis.look)
        prepared = PreparedJob.of(seen.job, market.conditions, basis.now)
        if alone := matching_otherwise(reason, prepared, market.offers):
            found[reason] = alone
    return found


def plan_without_policies(broker: Broker, job_preview: Preview) -> Plan:
    """The plan without the policies because of which ``job_preview`` has no placement: first without their rules, then
    also with reference prices allowed. Keeps the rejections of ``job_preview``."""
    with broker.store.reading() as reader:
        market, now = market_for(broker, job_preview.job, reader=reader), broker.clock.now()
    plans = (
        make_plan(job_preview.job, market.offers, now=now, submitted_at=now, conditions=conditions)
        for conditions in (market.conditions, replace(market.conditions, allow_reference_prices=True))
    )
    open_plan = next((plan for plan in plans if plan.placements), Plan(now, (), (), 0, None, None))
    return replace(open_plan, rejections=job_preview.plan.rejections, offers_seen=job_preview.plan.offers_seen)


def strategy_decides(job_preview: Preview, policy: PolicySet) -> bool:
    """Whether the reconciler asks the strategy where and when the job starts."""
    return is_start_flexible(job_preview.job, job_preview.plan, job_preview.offers, policy.defaults.value_of_time)


def _add_first_move(
    broker: Broker, result: Preview, admission: Admission, policy: PolicySet, *, by_carbon: bool
) -> Preview:
    """The preview with what `submit` and the reconciler would do first."""
    if result.waits or by_carbon:
        return result
    move = FirstMove(admission.placement)
    if admission.answer is Answer.ALLOW and strategy_decides(result, policy):
        move = first_move(broker, result.job, policy, by=result.by) or move
    if move.placement is None:
        result = result.with_notes(f"it waits first: {move.why}")
    elif move.why and move.placement.offer.id != result.plan.placements[0].offer.id:
        result = result.with_notes(f"it starts on {move.placement.offer.pool}, which is not the cheapest: {move.why}")
    return replace(result, first=move)


def _resolve_machines(job: Job, reader: StoreReader, now: datetime) -> tuple[Job, Sizing | None]:
    """For a job that names a model instead of machines: the job with machines, by the rules of thumb of the active
    policies, and the speeds that finished runs measured. Raises `InvalidInput`."""
    if job.model is None or job.resources:
        return job, None
    from broker.app.advise.model_job import size_job
    from broker.app.assumptions import with_measurements  # most jobs name their machines

    rules = active_assumptions(reader)
    return size_job(job, with_measurements(reader, rules, now) if job.work is None else rules)


def _place(job: Job, by: Actor, market: PlanInputs, basis: PlanBasis) -> Preview:
    policy, reader, now = basis.policy, basis.look, basis.now
    max_duration = job.max_duration or policy.defaults.max_duration
    action = Action(ActionKind.LAUNCH, job, by.identity, window=(now, now + max_duration))
    live = occupied_in(reader, policy, market.offers)
    facts = facts_of(reader, policy, now, live)(action)
    deny = denials(policy, action, facts)

    def plan(offers: Sequence[Offer]) -> Plan:
        return make_plan(job, offers, now=now, submitted_at=now, conditions=market.conditions, deny=deny)

    def plan_when_free(extra_offers: Sequence[Offer] = ()) -> Plan:
        """The plan as if no job of this store ran; ``extra_offers``: offers to add."""
        return plan([*as_if_unoccupied(market.offers), *extra_offers])

    best_plan, waits = plan(subtract_occupied(market.offers, live)), False
    if not best_plan.placements and Reason.TOO_FEW_MACHINES in best_plan.reasons():
        free_plan = plan_when_free()
        waits, best_plan = bool(free_plan.placements), free_plan if free_plan.placements else best_plan
    waiting = wait_for_paid(
        reader, market, live, best_plan, plan_when_free, now=now, since=now, longest=policy.defaults.wait_for_paid
    )
    if waiting is not None:
        free_plan = plan_when_free([offer for offer, _ in market.coming])
        waits, best_plan = True, replace(free_plan, notes=(*free_plan.notes, f"it {waiting.why}"))
    estimate = _estimate(job, best_plan, market, now, denials(policy, action, facts, for_estimate=True))
    if estimate is not None and not estimate.placements:
        if Reason.DENIED_BY_POLICY in estimate.reasons():  # no setup helps then
            best_plan = replace(best_plan, rejections=estimate.rejections)
        estimate = None
    best_plan = replace(best_plan, offers_seen=best_plan.offers_seen + sum(market.left_out.values()))
    return Preview(
        job=job,
        by=by,
        plan=best_plan,
        left_out=market.left_out,
        admission=None,
        max_duration=time_limit(job, best_plan.placements, policy.defaults.max_duration),
        waits=waits,
        offers=market.offers,
        waiting=waiting,
        budgets=policy.budgets(job, by.identity),
        occupied=live,
        market=market,
        estimate=estimate,
        machines=machine_use(market.offers, live),
    )


def _estimate(job: Job, actual_plan: Plan, market: PlanInputs, now: datetime, deny: Deny | None) -> Plan | None:
    """The plan with every engine installed and in reach of the run folders, an engine for recorded capacity, and
    reference prices allowed, without what the policies ``deny``; None if the lack of them does not matter."""
    if actual_plan.placements or not (actual_plan.reasons() & MISSING_SETUP or any(map(is_recorded, market.offers))):
        return None
    reachable_offers = [replace(offer, engine=ANY_ENGINE) if is_recorded(offer) else offer for offer in market.offers]
    conditions = _conditions_with_all_engines(job, replace(market, offers=reachable_offers))
    open_conditions = replace(conditions, allow_reference_prices=True)
    return make_plan(job, reachable_offers, now=now, submitted_at=now, conditions=open_conditions, deny=deny)


def _conditions_with_all_engines(job: Job, market: PlanInputs) -> Conditions:
    """The conditions with every engine set up, and the run folders in reach of all machines."""
    engines = {offer.engine: job.needs for offer in market.offers if offer.engine is not None}
    return replace(market.conditions, engines=engines, out_of_reach=frozenset())


def first_move(broker: Broker, job: Job, policy: PolicySet, *, by: Actor) -> FirstMove | None:
    """The strategy's first decision if the job were submitted now; None: the plan's ranking applies. Changes
    nothing."""
    (view,), now = hypothetical_views(broker, [job], by=by), broker.clock.now()
    placing = PlacementController(
        broker.store, lambda market_job: market_for(broker, market_job, policy), lambda: policy
    )
    advice = Strategist(partial(record_market, broker.store)).place(view, placing.plans(view, policy, now), now)
    if advice is None:
        return None
    return FirstMove(advice.placements[0] if advice.placements else None, advice.why)
