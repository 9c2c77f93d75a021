"""Plans as results."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Self

from broker.app.advise.model_job import Sizing
from broker.app.billing.budget_documents import BudgetShareResult, CostTermResult, HoldTerms, budget_share_results
from broker.app.clouds import missing_for
from broker.app.documents import (
    AlternativeResult,
    ErrorDetails,
    ErrorDocument,
    Figure,
    Moment,
    Result,
    Seconds,
    VerdictResult,
)
from broker.app.jobs.alternatives import alternatives_text
from broker.app.jobs.preview import Preview, preview, refusal
from broker.app.jobs.queue_documents import SharedMachine
from broker.app.market.offer_documents import OfferResult
from broker.app.market.offer_rows import rows
from broker.app.providers import DoctorFinding
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.job.reasons import MISSING_SETUP, Origin, Reason, Rejection
from broker.core.policy.policy import Answer
from broker.core.ports import PolicySet
from broker.core.values.money import Money
from broker.placement.notes import basis
from broker.placement.pricing.estimate import effective_price
from broker.placement.pricing.time_value import value_of_time
from broker.placement.ranking import ranking_cost, uncharged_terms
from broker.placement.remedies import NEAREST_LAST, remedy
from broker.reconciler.admission.admission import hold_duration

_EXAMPLES = 3  # of a reason
WARNING = "warning: "  # the prefix of notes that are warnings


class PlannedJob(Result):
    """The planned job. ``machines``: the suitable accelerators with their counts. ``work_on``: the accelerator and
    count that its work is measured on; empty if it does not say. ``max_duration``: its own limit; null: a default one
    applies."""

    name: str
    machines: list[str]
    nodes: int
    work_on: str
    max_duration: Seconds | None

    @classmethod
    def of(cls, job: Job) -> Self:
        work = job.work
        on = f"{work.accelerator}:{work.count}" if work and work.accelerator else ""
        return cls.from_parts(job, machines=[r.machine for r in job.resources], nodes=job.num_nodes, work_on=on)


class PlacementResult(Result):
    """One placement. Costs in USD; ``expected_cost`` is for one hour if ``duration`` is null, ``longest_cost`` then for
    the job's own ``max_duration``, null without one. ``terms`` add up to ``expected_cost``; with ``ranking_terms``,
    which are weighed but not paid, they add up to ``ranked_by``."""

    rank: int
    nodes: int
    gpus: int
    rate_per_hour: Money
    expected_cost: Money
    longest_cost: Money | None
    terms: list[CostTermResult]
    duration: Seconds | None
    finish: Moment | None
    interruptions_per_hour: Figure
    useful_fraction: Figure
    throughput: Figure
    price_per_useful_hour: Money
    surcharge: Money
    ranking_terms: list[CostTermResult]
    ranked_by: Money
    kg_co2e: Figure | None
    kg_co2e_per_hour: Figure | None
    offer: OfferResult

    @classmethod
    def of(cls, placement: Placement, job: Job, now: datetime, value: Money, rank: int) -> Self:
        """``value``: USD that an hour is worth."""
        length = None if placement.duration is not None else job.max_duration
        beside_machine_time = placement.expected_cost - placement.rate
        (row,) = rows([placement.offer], now)
        return cls.from_parts(
            placement,
            rank=rank,
            rate_per_hour=placement.rate,
            longest_cost=length and beside_machine_time + placement.rate.for_duration(length),
            price_per_useful_hour=effective_price(placement),
            ranking_terms=[CostTermResult.from_parts(term) for term in uncharged_terms(placement, value)],
            ranked_by=ranking_cost(placement),
            offer=row,
        )


class RejectionExample(Result):
    """An offer that was rejected."""

    offer: str
    detail: str


class RejectionCount(Result):
    """The number of offers rejected for one reason, and what would change it. ``alone``: how many of them would match
    but for this reason, where that is known: of a provider, region or capacity type that the job excludes."""

    reason: Reason
    count: int
    alone: int
    origin: Origin
    text: str
    what_would_change_it: str
    examples: list[RejectionExample]

    @classmethod
    def of(cls, job_preview: Preview) -> list[Self]:
        """The reasons, those of the most suitable offers first."""
        offers, rejected = {offer.id: offer for offer in job_preview.offers}, dict[Reason, list[Rejection]]()
        engines = job_preview.market.conditions.engines if job_preview.market else {}
        for rejection in job_preview.plan.rejections:
            rejected.setdefault(rejection.reason, []).append(rejection)
        groups = []
        for reason, count in job_preview.counts.items():
            rejections, alone = rejected.get(reason, []), job_preview.alone.get(reason, ())
            of_reason = [offers[rejection.offer_id] for rejection in rejections if rejection.offer_id in offers]
            ids = {offer.id for offer in alone}
            examples = sorted(rejections, key=lambda rejection: rejection.offer_id not in ids)[:_EXAMPLES]
            fix = remedy(reason, job_preview.job, alone or of_reason, engines)
            groups.append(
                cls.from_parts(
                    reason,
                    reason=reason,
                    count=count,
                    alone=len(alone),
                    what_would_change_it=str(fix),
                    examples=[
                        RejectionExample(offer=rejection.offer_id, detail=rejection.detail) for rejection in examples
                    ]
                    or [RejectionExample(offer=offer.id, detail="") for offer in alone[:_EXAMPLES]],
                )
            )
        return sorted(
            groups,
            key=lambda group: (group.reason not in MISSING_SETUP, not group.alone, -NEAREST_LAST.index(group.reason)),
        )


class PlanJudge(StrEnum):
    """Which policies judged a plan: those in force, or the files of a what-if question."""

    ACTIVE_POLICY = "active_policy"
    POLICY_FILES = "policy_files"


class PlanVerdict(Result):
    """The policies' verdict on the plan; ``answer`` is null if the plan has no placement. ``judged_by``: null if no
    policy is active. ``would_pass``: after a refusal, what would be allowed, or whom to ask, in words; ``advice``: what
    would have to change otherwise."""

    answer: Answer | None
    policy_version: str
    judged_by: PlanJudge | None
    verdicts: list[VerdictResult]
    would_pass: str
    advice: str

    @property
    def objections(self) -> list[VerdictResult]:
        """The verdicts that are not ALLOW."""
        return [verdict for verdict in self.verdicts if verdict.answer is not Answer.ALLOW]


class PlanResult(Result):
    """A plan and the policies' verdict. ``exit_code``: that of a submission; ``refusal``: why it would be refused, null
    if it would not be. ``feasible``: how many offers match, of which ``placements`` are the first;
    the first one is where the job would start now, which a strategy may choose. ``estimate``: where nothing can be
    started as things are, the first of the ``estimated`` places, with the cost there once the engines are installed.
    ``missing``: what the first of these places lacks in setup, each with its fix.
    ``over_max_cost``: how many of all these cost more than ``max_cost``. ``machines``: our own ones that jobs share.
    ``basis``: on what the first placement's figures are counted, in a few words each, where the job does not say it;
    ``notes``: what a person should know, warnings first; ``remarks``: what explains the figures."""

    job: PlannedJob
    made_at: Moment
    exit_code: int
    refusal: ErrorDetails | None
    deadline: Moment | None
    work_left: Seconds | None
    max_duration: Seconds
    max_cost: Money | None
    offers_seen: int
    feasible: int
    over_max_cost: int
    placements: list[PlacementResult]
    estimate: list[PlacementResult]
    estimated: int
    missing: list[DoctorFinding]
    rejected: int
    reasons: list[RejectionCount]
    waits_for_own_machines: bool
    machines: list[SharedMachine]
    verdict: PlanVerdict
    hold: dict[str, Money]
    alternatives: list[AlternativeResult]
    hold_terms: list[HoldTerms]
    budget_shares: list[BudgetShareResult]
    hold_lasts: Seconds | None
    basis: list[str]
    notes: list[str]
    remarks: list[str]
    sizing: Sizing | None

    @classmethod
    def of(
        cls,
        job_preview: Preview,
        policy: PolicySet,
        judged_by: PlanJudge | None,
        *,
        missing: Sequence[DoctorFinding],
        limit: int,
    ) -> Self:
        """``policy``: the policies that ranked and judged the plan. ``limit``: of the placements."""
        plan, admission, estimate = job_preview.plan, job_preview.admission, job_preview.estimate
        value = value_of_time(job_preview.job, policy.defaults)
        holding_admission = admission if admission and job_preview.exit_code in (0, 6) else None
        held_money = holding_admission.money if holding_admission else {}
        first = [*job_preview.in_order[:1], *(estimate.placements[:1] if estimate else ())]
        sizing, is_refused, of_array = job_preview.sizing, job_preview.exit_code in (2, 3, 4), job_preview.array_refusal
        return cls.from_parts(
            plan,
            job=job_preview.job,
            exit_code=job_preview.exit_code,
            refusal=ErrorDetails.of(refusal(job_preview)) if is_refused else None,
            work_left=plan.remaining,
            max_duration=job_preview.max_duration,
            max_cost=job_preview.job.max_cost,
            feasible=len(plan.placements),
            over_max_cost=(replace(job_preview, plan=estimate) if estimate else job_preview).over_max_cost,
            placements=[
                PlacementResult.of(p, job_preview.job, plan.made_at, value, number)
                for number, p in enumerate(job_preview.in_order[:limit], 1)
            ],
            estimate=[
                PlacementResult.of(p, job_preview.job, plan.made_at, value, number)
                for number, p in enumerate(estimate.placements[:limit] if estimate else (), 1)
            ],
            missing=list(missing),
            estimated=len(estimate.placements) if estimate else 0,
            rejected=sum(job_preview.counts.values()),
            reasons=RejectionCount.of(job_preview),
            basis=[words for placement in first[:1] for words in basis(job_preview.job, placement)],
            waits_for_own_machines=job_preview.waits,
            machines=job_preview.machines,
            verdict=PlanVerdict(
                answer=Answer.DENY if of_array else admission.answer if admission else None,
                policy_version=policy.version,
                judged_by=judged_by,
                verdicts=[VerdictResult.of(verdict) for verdict in admission.verdicts] if admission else [],
                would_pass=of_array.message
                if of_array
                else alternatives_text(job_preview.alternatives, admission)
                if admission and job_preview.alternatives is not None
                else "",
                advice=refusal(replace(job_preview, alternatives=None)).hint if is_refused else "",
            ),
            hold={str(kind): amount for kind, amount in held_money.items()},
            alternatives=[AlternativeResult.from_parts(alternative) for alternative in job_preview.alternatives or ()],
            hold_terms=HoldTerms.of(holding_admission) if holding_admission else [],
            budget_shares=budget_share_results(job_preview.shares) if holding_admission else [],
            hold_lasts=hold_duration(held_money, plan, job_preview.max_duration, plan.made_at) if held_money else None,
            notes=sorted(plan.notes, key=lambda note: not note.startswith(WARNING)),
            sizing=sizing,
        )


class RefusedSubmission(ErrorDocument):
    """Why a submission was refused, and the plan that shows it."""

    plan: PlanResult


def plan(
    broker: Broker, job: Job, what_if: PolicySet | None = None, *, by: Actor, by_carbon: bool = False, limit: int
) -> PlanResult:
    """As `preview`, with at most ``limit`` placements."""
    return plan_result(broker, preview(broker, job, what_if, by=by, by_carbon=by_carbon), what_if, limit=limit)


def plan_result(broker: Broker, job_preview: Preview, what_if: PolicySet | None = None, *, limit: int) -> PlanResult:
    """The plan of a preview, with at most ``limit`` placements. ``what_if``: the policies that judged it, if other than
    the active one."""
    candidates = (job_preview.estimate or job_preview.plan).placements
    lacks_policy = what_if is None and job_preview.exit_code == 3 and broker.store.active_policy() is None
    is_unset = bool(candidates) and (job_preview.estimate is not None or lacks_policy)
    missing = missing_for(broker, candidates[0].offer.provider) if is_unset else []
    judge = PlanJudge.POLICY_FILES if what_if else PlanJudge.ACTIVE_POLICY if broker.store.active_policy() else None
    return PlanResult.of(job_preview, what_if or broker.policy(), judge, missing=missing, limit=limit)
