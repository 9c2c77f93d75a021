"""Rules that ask people: above an amount, and for purchases of capacity."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, model_validator

from broker.core.policy.approvals import lasts, total_of
from broker.core.policy.coverage import seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, ActionKind, Facts, Verdict
from broker.core.values.money import alike
from broker.core.values.units import PositiveDuration
from broker.ledger.budgets import matches
from policies.bound_rule import BoundRule, allow, ask, deny, length
from policies.fields import GpuCount, Limit, Patterns, ProviderPatterns
from policies.scope import ApprovalConfig


class Thresholds(ApprovalConfig):
    """Requires an approval by one of ``approvers`` when a job may cost more than ``cost`` (USD in total, without
    prepaid capacity), run longer than ``duration`` (total billed time), or use more than ``gpus`` at once.
    """

    cost: Limit | None = None
    duration: PositiveDuration | None = None
    gpus: GpuCount | None = None

    @model_validator(mode="after")
    def _some_threshold(self) -> Thresholds:
        if self.cost is None and self.duration is None and self.gpus is None:
            raise ValueError("has no threshold; expected cost, duration or gpus, such as cost: $500")
        return self


class ApproveAbove(BoundRule[Thresholds]):
    """Requires an approval for a job that may exceed a threshold. Running jobs continue: their request was judged at
    submission.
    """

    kind: ClassVar[str] = "approve_above"
    Config: ClassVar[type[BaseModel]] = Thresholds
    never_asks: ClassVar[str] = "is redundant: approve_above always asks its approvers; delete `action`"

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.kind is ActionKind.CONTINUE:
            return allow(self, "runs_already", "applies to requests, not to running jobs")
        if action.hold is None:
            return allow(self, "no_amount_yet", "applies to submissions, not to single placements")
        said = self.config
        total, longest = total_of(action), lasts(action)
        if said.cost is not None and total > said.cost:
            may_cost, threshold = alike(total, said.cost)
            message = f"the job may cost {may_cost}; more than {threshold} per job requires approval"
            return ask(self, said, "cost_above", message, total=total, threshold=said.cost)
        if said.duration is not None and longest is not None and longest > said.duration:
            message = (
                f"the job may run for {length(longest)}; above {length(said.duration)} per job an approval is required"
            )
            return ask(self, said, "duration_above", message, duration=length(longest), threshold=length(said.duration))
        gpus = action.placement.gpus if action.placement else 0
        if said.gpus is not None and gpus > said.gpus:
            message = f"the job uses {gpus} GPUs; above {said.gpus} at once an approval is required"
            return ask(self, said, "gpus_above", message, gpus=gpus, threshold=said.gpus)
        return allow(self, "below", "is below the approval thresholds")

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return ()  # every request covers amount, time and GPUs


class PurchaseTerms(ApprovalConfig):
    """Purchases in the scope: at most ``max_commitment`` (USD, one purchase), at most ``max_term`` long, from
    ``providers``, of kinds ``products`` (such as ``capacity_block``, or patterns; default: all), by ``buyers`` (names
    or patterns; default: everybody in the scope). One of ``approvers`` must approve
    each purchase, two of them a purchase that cannot be undone; buyers never approve their own. Without a guardrail of
    this kind nobody can buy.
    """

    max_commitment: Limit
    max_term: PositiveDuration | None = None
    providers: ProviderPatterns = ()
    products: Patterns = ()
    buyers: Patterns = ()


class Purchases(BoundRule[PurchaseTerms]):
    """Asks the approvers about a purchase within the terms, and denies any other."""

    kind: ClassVar[str] = "purchases"
    Config: ClassVar[type[BaseModel]] = PurchaseTerms
    never_asks: ClassVar[str] = "is redundant: purchases always asks its approvers; delete `action`"
    never_warns: ClassVar[str] = "does not apply to purchases, which always need an approval; delete `action`"

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.kind is not ActionKind.RESERVE or action.placement is None:
            return allow(self, "no_purchase", "applies to purchases of capacity")
        terms, placement = self.config, action.placement
        if terms.buyers and not matches(terms.buyers, action.user):
            who = " or ".join(terms.buyers)
            return deny(self, "not_a_buyer", f"{action.user} may not buy capacity; {who} may", user=action.user)
        provider = placement.offer.provider
        if terms.providers and not matches(terms.providers, provider):
            from_whom = " or ".join(terms.providers)
            return deny(
                self, "wrong_provider", f"capacity is bought from {from_whom}, not from {provider}", provider=provider
            )
        product = placement.offer.source
        if terms.products and not matches(terms.products, product):
            allowed = " or ".join(terms.products)
            message = f"{allowed} may be bought, not {product}"
            return deny(self, "wrong_product", message, product=product)
        if terms.max_term is not None and placement.duration is not None and placement.duration > terms.max_term:
            message = f"the purchase is for {length(placement.duration)}; at most {length(terms.max_term)} is allowed"
            return deny(self, "too_long", message, term=length(placement.duration), limit=length(terms.max_term))
        total = total_of(action)
        if total > terms.max_commitment:
            may_cost, limit = alike(total, terms.max_commitment)
            message = f"the purchase may cost {may_cost}; the limit is {limit} per purchase"
            return deny(self, "too_dear", message, total=total, limit=terms.max_commitment)
        return ask(self, terms, "purchase", f"a purchase of {total.rounded(2)} has to be approved", total=total)

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return seen(action, Aspect.PROVIDER, Aspect.REGION, Aspect.INSTANCE_TYPE, Aspect.GPUS, Aspect.EXPECTED_HOURS)
