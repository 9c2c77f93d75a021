"""A plan before submission: the placements, the verdict of the policies, and the first step of a submission."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from broker.app.advise.assumptions import in_force
from broker.app.jobs import after, arrays
from broker.app.jobs.nearest import denied, denied_everywhere, for_submission, once, too_little, too_short
from broker.app.jobs.queue import MachineUse, as_if_submitted, machine_use
from broker.app.jobs.recorded_capacity import ANY, is_recorded, recorded_offers, unreached
from broker.app.jobs.sealed_secrets import note_of_missing_secrets
from broker.app.market.market import fresh_look, market_for, wants_sandbox
from broker.app.market.offer_rows import unknown_providers
from broker.app.market.strategy_history import record
from broker.app.policy.unknown_names import unknown_team
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import Alternative, BrokerError
from broker.core.job.jobs import Job
from broker.core.job.pitfalls import pitfalls
from broker.core.job.placements import Placement, Plan
from broker.core.job.reasons import MISSING_SETUP, Origin, Reason
from broker.core.market.offers import Offer
from broker.core.policy.policy import Action, ActionKind, Answer, LiveAttempt
from broker.core.ports import BudgetSpec, PolicySet
from broker.ledger.shares import BudgetShare, budget_shares
from broker.placement.conditions import Conditions
from broker.placement.feasibility import PreparedJob
from broker.placement.notes import never_done, time_limit
from broker.placement.planner import make_plan
from broker.placement.pricing.time_value import start_is_open
from broker.placement.remedies import matching_otherwise, without_exclusion
from broker.placement.wait_for_reserved import WaitForReserved
from broker.reconciler.admission.admission import Admission, admit, denials, unused, with_occupancy
from broker.reconciler.admission.facts import facts_of, occupied_in
from broker.reconciler.admission.paid_capacity import wait_for_paid
from broker.reconciler.controllers.placement import Placing, PlanInputs
from broker.reconciler.controllers.strategy_advice import Strategist

if TYPE_CHECKING:
    from broker.app.advise.model_job import Sizing
    from broker.store.jobs.reading import StoreReading


class NothingToJudge(BrokerError):
    """No offer can serve the job, so no rule has anything to judge (exit 4)."""

    exit_code = 4


class NoFeasibleCapacity(BrokerError):
    """No offer can serve the job (exit 4). ``preview``: the plan with every rejection."""

    exit_code = 4

    def __init__(self, preview: Preview) -> None:
        super().__init__("no offer can serve this job", hint="see `gpubroker plan JOB.yaml --explain`")
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
    look: StoreReading
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
    running attempts, and the inputs about offers, that the plan took into account. ``strange``: for a job without
    placements, a sentence for each unknown provider that it names; also among the notes. ``alone``: for a job without
    placements, the offers that its limits of providers, regions or capacity types alone exclude.
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
    strange: tuple[str, ...] = ()
    alone: Mapping[Reason, Sequence[Offer]] = field(default_factory=dict)

    @property
    def in_order(self) -> tuple[Placement, ...]:
        """The placements as ranked, but with that of the first attempt before the others."""
        first = self.first.placement if self.first is not None else None
        if first is None:
            return self.plan.placements
        mine = [one for one in self.plan.placements if one.offer.id == first.offer.id] or [first]
        return (*mine, *(one for one in self.plan.placements if one.offer.id != first.offer.id))

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
        if limit is None:
            return 0
        return sum(1 for one in self.plan.placements if one.duration is not None and one.expected_cost > limit)

    @property
    def exit_code(self) -> int:
        """0: can be submitted. Otherwise 2: the job's own limits; 3: a policy; 4: the market; 6: approval needed."""
        if self.admission is None:
            # If a policy rejected an otherwise feasible offer, the policy is the reason.
            return 3 if any(r.origin is Origin.POLICY for r in self.plan.reasons()) else 4
        if self.admission.short_of is not None or self.needs is not None:
            return 2
        return {Answer.ALLOW: 0, Answer.DENY: 3, Answer.ASK: 6}[self.admission.answer]

    def noted(self, *notes: str) -> Preview:
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
    with fresh_look(broker, sandbox=wants_sandbox(job)) as look:
        basis = PlanBasis(policy or broker.policy(look), look, broker.clock.now())
        seen = planned(broker, job, by, basis, by_carbon=by_carbon)
        seen = seen.noted(*unknown_team(broker, basis.policy, seen.budgets, job.team))
        if holdings := look.holdings():
            seen = seen.noted(*unreached(seen.job, holdings, seen.offers, basis.now, in_force(look)))
        if sends_secrets:
            seen = seen.noted(*note_of_missing_secrets(job))
        seen = seen.noted(*pitfalls(job))
        if not seen.plan.placements:
            strange = tuple(unknown_providers(broker, job))
            return replace(seen, strange=strange, alone=_excluded_alone(broker, seen, basis)).noted(*strange)
        facts_for = facts_of(look, basis.policy, basis.now, occupied_in(look, basis.policy, ()))
        admission = admit(
            seen.job, by.identity, seen.plan, basis.policy, facts_for, max_duration=seen.max_duration, now=basis.now
        )
        if admission.answer is Answer.DENY:
            seen = replace(seen, alternatives=passing(broker, seen, admission, basis))
    seen = seen.noted(*(f"rule {v.name} {v.message} ({v.source})" for v in admission.verdicts if v.warns))
    if job.after:
        seen = seen.noted(after.words(job))
    if job.array is not None:
        outlook = arrays.outlook(job.array, seen.job, seen.plan, admission, seen.max_duration)
        seen = seen.noted(arrays.words(outlook, seen.job))
    seen = _with_first_move(broker, seen, admission, basis.policy, by_carbon=by_carbon)
    if admission.short_of is not None:
        seen = seen.noted(too_little(admission).message)
    elif (needed := seen.needs) is not None:
        seen = seen.noted(too_short(seen.job, needed).message)
    return replace(seen, admission=admission)


def refusal(seen: Preview) -> BrokerError:
    """Why the job of a preview cannot be submitted, or not without approval. Its ``exit_code`` must not be 0."""
    if seen.exit_code == 4:
        return NoFeasibleCapacity(seen)
    if seen.needs is not None:
        return too_short(seen.job, seen.needs)
    return denied_everywhere(seen) if seen.admission is None else denied(seen.admission, seen.alternatives)


def planned(broker: Broker, job: Job, by: Actor, basis: PlanBasis, *, by_carbon: bool = False) -> Preview:
    """The plan, before the policies judge it as a whole (``admission`` is None). Raises as `preview`."""
    job, sizing = _sized(job, basis.look, basis.now)
    market = basis.market or market_for(broker, job, basis.policy, by_carbon=by_carbon, look=basis.look)
    if holdings := basis.look.holdings():
        wanted = {machine.accelerator for machine in job.resources if machine.accelerator}
        if wanted:
            rules = in_force(basis.look)
            paid_for = recorded_offers(holdings, market.offers, basis.now, rules, wanted)
            market = replace(market, offers=[*market.offers, *paid_for])
    if basis.elsewhere:
        market = replace(market, conditions=_anyhow(job, market))
    seen = _placed(job, by, market, basis)
    if sizing is None:
        return seen
    return replace(seen, sizing=sizing, plan=replace(seen.plan, notes=(*sizing.notes, *seen.plan.notes)))


def passing(broker: Broker, seen: Preview, refused: Admission, basis: PlanBasis) -> list[Alternative]:
    """Requests similar to the refused one that the policies would allow. Raises as `preview`."""
    basis = replace(basis, look=once(basis.look))
    facts_for = facts_of(basis.look, basis.policy, basis.now, occupied_in(basis.look, basis.policy, ()))
    return for_submission(
        refused, seen.plan, basis.policy, facts_for, max_duration=seen.max_duration, now=basis.now,
        planned=lambda job: planned(broker, job, seen.by, basis).plan,
    )  # fmt: skip


def _excluded_alone(broker: Broker, seen: Preview, basis: PlanBasis) -> dict[Reason, Sequence[Offer]]:
    """The offers that the job excludes for one reason alone. The store leaves such offers out, so it is asked again."""
    found: dict[Reason, Sequence[Offer]] = {}
    for reason in seen.counts:
        if (relaxed := without_exclusion(reason, seen.job)) is None:
            continue
        market = market_for(broker, relaxed, basis.policy, look=basis.look)
        prepared = PreparedJob.of(seen.job, market.conditions, basis.now)
        if alone := matching_otherwise(reason, prepared, market.offers):
            found[reason] = alone
    return found


def opened_by_policy(broker: Broker, seen: Preview) -> Plan:
    """The plan without the policies because of which ``seen`` has no placement: first without their rules, then also
    with reference prices allowed. Keeps the rejections of ``seen``."""
    with broker.store.reading() as look:
        market, now = market_for(broker, seen.job, look=look), broker.clock.now()
    plans = (
        make_plan(seen.job, market.offers, now=now, submitted_at=now, conditions=conditions)
        for conditions in (market.conditions, replace(market.conditions, allow_reference_prices=True))
    )
    found = next((plan for plan in plans if plan.placements), Plan(now, (), (), 0, None, None))
    return replace(found, rejections=seen.plan.rejections, offers_seen=seen.plan.offers_seen)


def strategy_decides(seen: Preview, policy: PolicySet) -> bool:
    """Whether the reconciler asks the strategy where and when the job starts."""
    return start_is_open(seen.job, seen.plan, seen.offers, policy.defaults.value_of_time)


def _with_first_move(
    broker: Broker, seen: Preview, admission: Admission, policy: PolicySet, *, by_carbon: bool
) -> Preview:
    """The preview with what `submit` and the reconciler would do first."""
    if seen.waits or by_carbon:
        return seen
    move = FirstMove(admission.placement)
    if admission.answer is Answer.ALLOW and strategy_decides(seen, policy):
        move = first_move(broker, seen.job, policy, by=seen.by) or move
    if move.placement is None:
        seen = seen.noted(f"it waits first: {move.why}")
    elif move.why and move.placement.offer.id != seen.plan.placements[0].offer.id:
        seen = seen.noted(f"it starts on {move.placement.offer.pool}, which is not the cheapest: {move.why}")
    return replace(seen, first=move)


def _sized(job: Job, look: StoreReading, now: datetime) -> tuple[Job, Sizing | None]:
    """For a job that names a model instead of machines: the job with machines, by the rules of thumb of the active
    policies, and the speeds that finished runs measured. Raises `InvalidInput`."""
    if job.model is None or job.resources:
        return job, None
    from broker.app.advise.assumptions import measured  # most jobs name their machines
    from broker.app.advise.model_job import sized

    rules = in_force(look)
    return sized(job, measured(look, rules, now) if job.work is None else rules)


def _placed(job: Job, by: Actor, market: PlanInputs, basis: PlanBasis) -> Preview:
    policy, look, now = basis.policy, basis.look, basis.now
    max_duration = job.max_duration or policy.defaults.max_duration
    action = Action(ActionKind.LAUNCH, job, by.identity, window=(now, now + max_duration))
    live = occupied_in(look, policy, market.offers)
    deny = denials(policy, action, facts_of(look, policy, now, live)(action))

    def plan(offers: Sequence[Offer]) -> Plan:
        return make_plan(job, offers, now=now, submitted_at=now, conditions=market.conditions, deny=deny)

    def when_free(more: Sequence[Offer] = ()) -> Plan:
        """The plan as if no job of this store ran; ``more``: offers to add."""
        return plan([*unused(market.offers), *more])

    found, waits = plan(with_occupancy(market.offers, live)), False
    if not found.placements and Reason.TOO_FEW_MACHINES in found.reasons():
        free = when_free()
        waits, found = bool(free.placements), free if free.placements else found
    waiting = wait_for_paid(
        look, market, live, found, when_free, now=now, since=now, longest=policy.defaults.wait_for_paid
    )
    if waiting is not None:
        free = when_free([offer for offer, _ in market.coming])
        waits, found = True, replace(free, notes=(*free.notes, f"it {waiting.why}"))
    found = replace(found, offers_seen=found.offers_seen + sum(market.left_out.values()))
    return Preview(
        job=job,
        by=by,
        plan=found,
        left_out=market.left_out,
        admission=None,
        max_duration=time_limit(job, found.placements, policy.defaults.max_duration),
        waits=waits,
        offers=market.offers,
        waiting=waiting,
        budgets=policy.budgets(job, by.identity),
        occupied=live,
        market=market,
        estimate=_estimate(job, found, market, now),
        machines=machine_use(market.offers, live),
    )


def _estimate(job: Job, found: Plan, market: PlanInputs, now: datetime) -> Plan | None:
    """The plan with every engine installed and in reach of the run folders, an engine for recorded capacity, and
    reference prices allowed; None unless the job can start only then."""
    if found.placements or not (found.reasons() & MISSING_SETUP or any(map(is_recorded, market.offers))):
        return None
    reached = [replace(one, engine=ANY) if is_recorded(one) else one for one in market.offers]
    conditions = _anyhow(job, replace(market, offers=reached))
    anyhow = replace(conditions, allow_reference_prices=True)
    plan = make_plan(job, reached, now=now, submitted_at=now, conditions=anyhow)
    return plan if plan.placements else None


def _anyhow(job: Job, market: PlanInputs) -> Conditions:
    """The conditions with every engine set up, and the run folders in reach of all machines."""
    engines = {offer.engine: job.needs for offer in market.offers if offer.engine is not None}
    return replace(market.conditions, engines=engines, out_of_reach=frozenset())


def first_move(broker: Broker, job: Job, policy: PolicySet, *, by: Actor) -> FirstMove | None:
    """The strategy's first decision if the job were submitted now; None: the plan's ranking applies. Changes
    nothing."""
    (view,), now = as_if_submitted(broker, [job], by=by), broker.clock.now()
    placing = Placing(broker.store, lambda one: market_for(broker, one, policy), lambda: policy)
    advice = Strategist(partial(record, broker.store)).place(view, placing.plans(view, policy, now), now)
    if advice is None:
        return None
    return FirstMove(advice.placements[0] if advice.placements else None, advice.why)
