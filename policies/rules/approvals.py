"""Rules that ask people: above an amount, and for purchases of capacity."""

from __future__ import annotations

from typing import ClassVar

from pydantic import model_validator

from broker.core.policy.approvals import max_run_time, total_of
from broker.core.policy.facts import Aspect
from broker.core.policy.policy import Action, ActionKind, Facts, Verdict
from broker.core.values.money import round_distinct
from broker.core.values.units import PositiveDuration
from broker.ledger.budgets import matches
from policies.bound_rule import BoundRule, allow, deny, duration_text, guardrail, require_approval
from policies.fields import GpuCount, Limit, Patterns, ProviderPatterns
from policies.scope import ApprovalConfig


class Thresholds(ApprovalConfig):
    """Requires an approval by one of ``approvers`` when a job may cost more than ``cost`` (USD in total, without
    prepaid capacity), run longer than ``duration`` (total machine time), or use more than ``gpus`` at once.
    """

    cost: Limit | None = None
    duration: PositiveDuration | None = None
    gpus: GpuCount | None = None

    @model_validator(mode="after")
    def _some_threshold(self) -> Thresholds:
        if self.cost is None and self.duration is None and self.gpus is None:
            raise ValueError("has no threshold; expected cost, duration or gpus, such as cost: $500")
        return self


@guardrail("approve_above")
class ApproveAbove(BoundRule[Thresholds]):
    """Requires an approval for a job that may exceed a threshold. Running jobs continue: their request was judged at
    submission.
    """

    never_asks: ClassVar[str] = "is redundant: approve_above always asks its approvers; delete `action`"

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.kind is ActionKind.CONTINUE:
            return allow(self, "runs_already", "applies to requests, not to running jobs")
        if action.hold is None:
            return allow(self, "no_amount_yet", "applies to submissions, not to single placements")
        thresholds = self.config
        total, longest = total_of(action), max_run_time(action)
        if thresholds.cost is not None and total > thresholds.cost:
            may_cost, threshold = round_distinct(total, thresholds.cost)
            message = f"the job may cost {may_cost}; more than {threshold} per job requires approval"
            return require_approval(self, thresholds, "cost_above", message, total=total, threshold=thresholds.cost)
        if thresholds.duration is not None and longest is not None and longest > thresholds.duration:
            message = (
                f"the job may run for {duration_text(longest)}; above {duration_text(thresholds.duration)} per job an "
                "approval is required"
            )
            return require_approval(
                self,
                thresholds,
                "duration_above",
                message,
                duration=duration_text(longest),
                threshold=duration_text(thresholds.duration),
            )
        gpus = action.placement.gpus if action.placement else 0
        if thresholds.gpus is not None and gpus > thresholds.gpus:
            message = f"the job uses {gpus} GPUs; above {thresholds.gpus} at once an approval is required"
            return require_approval(self, thresholds, "gpus_above", message, gpus=gpus, threshold=thresholds.gpus)
        return allow(self, "below", "is below the approval thresholds")


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


@guardrail("purchases")
class Purchases(BoundRule[PurchaseTerms]):
    """Asks the approvers about a purchase within the terms, and denies any other."""

    reads = (Aspect.PROVIDER, Aspect.REGION, Aspect.INSTANCE_TYPE, Aspect.GPUS, Aspect.EXPECTED_HOURS)
    never_asks: ClassVar[str] = "is redundant: purchases always asks its approvers; delete `action`"
    never_warns: ClassVar[str] = "does not apply to purchases, which always need an approval; delete `action`"

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.kind is not ActionKind.RESERVE or action.placement is None:
            return allow(self, "no_purchase", "applies to purchases of capacity")
        terms, placement = self.config, action.placement
        if terms.buyers and not matches(terms.buyers, action.user):
            buyers = " or ".join(terms.buyers)
            return deny(self, "not_a_buyer", f"{action.user} may not buy capacity; {buyers} may", user=action.user)
        provider = placement.offer.provider
        if terms.providers and not matches(terms.providers, provider):
            sellers = " or ".join(terms.providers)
            return deny(
                self, "wrong_provider", f"capacity is bought from {sellers}, not from {provider}", provider=provider
            )
        product = placement.offer.source
        if terms.products and not matches(terms.products, product):
            allowed = " or ".join(terms.products)
            message = f"{allowed} may be bought, not {product}"
            return deny(self, "wrong_product", message, product=product)
        if terms.max_term is not None and placement.duration is not None and placement.duration > terms.max_term:
            message = (
                f"the purchase is for {duration_text(placement.duration)}; at most {duration_text(terms.max_term)} is "
                "allowed"
            )
            return deny(
                self, "too_long", message, term=duration_text(placement.duration), limit=duration_text(terms.max_term)
            )
        total = total_of(action)
        if total > terms.max_commitment:
            may_cost, limit = round_distinct(total, terms.max_commitment)
            message = f"the purchase may cost {may_cost}; the limit is {limit} per purchase"
            return deny(self, "too_dear", message, total=total, limit=terms.max_commitment)
        return require_approval(
            self, terms, "purchase", f"a purchase of {total.rounded(2)} has to be approved", total=total
        )
