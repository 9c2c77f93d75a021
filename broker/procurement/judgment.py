"""Judges a purchase by the policies: the same rules, budgets and ledger as for a launch. Pure.

For rules, a purchase is an action of kind ``reserve``: the machines are its placement, the ceiling is money spent at
once or, where it recurs, over its period. Standing grants do not apply: each purchase is approved separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from broker.core.job.jobs import Job
from broker.core.job.placements import CostTerm, Placement
from broker.core.market.offers import MoneyKind
from broker.core.policy.approvals import Question, questions
from broker.core.policy.decisions import Decision, dump_inputs, seal
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, Source, Verdict
from broker.core.ports import PolicySet
from broker.core.purchases.purchases import Purchase
from broker.core.purchases.quotes import CapacityQuote, PurchaseProduct, Undo
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.procurement.bought_offers import quoted_offer
from broker.procurement.money import burn_of
from broker.reconciler.admission.admission import strictest
from broker.reconciler.admission.facts import facts_of
from broker.store.jobs.reader import StoreReader

RULE = "purchases"
"""The kind of guardrail that permits purchases; without one nobody can buy."""

_OUT_OF_SCOPE = "out_of_scope"


@dataclass(frozen=True, slots=True)
class PurchaseRequest:
    """A requested purchase: by whom, of what, for which team, project and environment, for at most ``ceiling`` (USD).
    ``held``: the part of it that is held already (USD)."""

    quote: CapacityQuote
    ceiling: Money
    user: str
    team: str | None = None
    project: str | None = None
    environment: str | None = None
    held: Money = Money.ZERO

    @classmethod
    def again(cls, purchase: Purchase, quote: CapacityQuote) -> PurchaseRequest:
        """The same purchase, at the provider's newest quote."""
        owner = (purchase.user, purchase.team, purchase.project, purchase.environment)
        return cls(quote, purchase.ceiling, *owner, held=purchase.held)


@dataclass(frozen=True, slots=True)
class PurchaseJudgement:
    """The policies' verdict on a purchase. ``version``: of the policies; ``action`` and ``facts``: the inputs."""

    answer: Answer
    verdicts: tuple[Verdict, ...]
    version: str
    action: Action
    facts: Facts

    @property
    def denials(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.answer is Answer.DENY)

    @property
    def questions(self) -> tuple[Question, ...]:
        return questions(self.verdicts)


def approvals_needed(undo: Undo) -> int:
    """The number of required approvals: two if the purchase cannot be undone."""
    return 2 if undo is Undo.NONE else 1


def judge_purchase(
    request: PurchaseRequest, policy: PolicySet, snapshot: StoreReader, now: datetime
) -> PurchaseJudgement:
    """The verdict of the policies in force. ``now``: UTC."""
    action = _action(request, now)
    facts = replace(facts_of(snapshot, policy, now)(action), grants=())
    verdicts = tuple(policy.judge(action, facts))
    if not any(verdict.rule == RULE and verdict.code != _OUT_OF_SCOPE for verdict in verdicts):
        verdicts = (*verdicts, _nobody_verdict(request))
    return PurchaseJudgement(strictest(verdicts), verdicts, policy.version, action, facts)


def judge_again(
    purchase: Purchase, quote: CapacityQuote, policy: PolicySet, snapshot: StoreReader, now: datetime
) -> PurchaseJudgement:
    """The verdict of the policies in force on a purchase whose money is held, at the provider's ``quote``."""
    return judge_purchase(PurchaseRequest.again(purchase, quote), policy, snapshot, now)


def purchase_denials(
    request: PurchaseRequest, policy: PolicySet, snapshot: StoreReader, now: datetime
) -> tuple[Verdict, ...]:
    """The guardrails of kind `purchases` that deny it, without budgets and other rules: for capacity that was paid
    elsewhere."""
    action = _action(request, now)
    verdicts = policy.judge(action, facts_of(snapshot, policy, now)(action))
    return tuple(verdict for verdict in verdicts if verdict.rule == RULE and verdict.answer is Answer.DENY)


def as_quote(holding: Holding, now: datetime) -> CapacityQuote:
    """Capacity that was bought elsewhere, as a quote."""
    recurring = holding.hourly.for_duration(holding.ends - holding.starts)
    reservation = holding.kind is HoldingKind.RESERVATION
    return CapacityQuote(
        product=PurchaseProduct.CAPACITY_RESERVATION if reservation else PurchaseProduct.COMMITMENT,
        provider=holding.provider,
        offering=holding.order_id,
        region=holding.site,
        instance_type=f"{holding.accelerator}:{holding.gpus}",
        accelerator=holding.accelerator,
        count=holding.gpus,
        machines=1,
        starts=holding.starts,
        ends=holding.ends,
        total=holding.upfront + recurring,
        upfront=holding.upfront,
        undo=Undo.NONE,
        quoted_at=now,
    )


def decision_of(id: str, judgment: PurchaseJudgement, at: datetime) -> Decision:
    inputs, judged = dump_inputs(judgment.action, judgment.facts), (judgment.action, judgment.answer, judgment.verdicts)
    return seal(inputs, *judged, judgment.version, at=at, job_id=id)


def _action(request: PurchaseRequest, now: datetime) -> Action:
    quote = request.quote
    burn = burn_of(quote, request.ceiling, now)
    return Action(
        ActionKind.RESERVE,
        Job(
            name=f"{request.quote.machines}-x-{request.quote.instance_type}",
            run="",
            team=request.team,
            project=request.project,
            environment=request.environment,
        ),
        request.user,
        placement=_placement(request.quote),
        hold={MoneyKind.CASH: request.ceiling - request.held},
        window=(burn.start, burn.end),
        held=request.held,
        burns={MoneyKind.CASH: burn},
        own={MoneyKind.CASH: burn_of(quote, request.held, now)} if request.held else {},
    )


def _placement(quote: CapacityQuote) -> Placement:
    rate = quote.per_machine_hour
    offer = quoted_offer(quote, rate, quote.quoted_at, quote.product.value)
    payment_text = "paid over its period" if quote.recurring else "paid when bought"
    paid = CostTerm("purchase", quote.total, payment_text)
    total_rate = rate * quote.machines
    return Placement(offer, quote.machines, total_rate, quote.total, (paid,), quote.length, quote.ends, 1.0, 1.0, 0.0)


def _nobody_verdict(request: PurchaseRequest) -> Verdict:
    buyer = f"{request.user}{f' (team {request.team})' if request.team else ''}"
    return Verdict(
        Answer.DENY,
        RULE,
        "nobody_may_buy",
        f"no policy lets {buyer} buy capacity: a guardrail of kind purchases must name the approvers",
        Source("built in", 0),
        name=RULE,
    )


def objections(verdicts: Sequence[Verdict]) -> str:
    return "; ".join(f"{verdict.message} ({verdict.source})" for verdict in verdicts)
