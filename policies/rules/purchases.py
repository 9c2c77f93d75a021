"""Limits purchases of capacity: buyers, products, amounts, approvers."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from broker.core.policy.approvals import total_of
from broker.core.policy.coverage import seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, ActionKind, Facts, Verdict
from broker.core.values.money import alike
from broker.core.values.units import PositiveDuration
from broker.ledger.budgets import matches
from policies.approval_config import ApprovalConfig
from policies.bound_rule import BoundRule, allow, ask, deny, length
from policies.fields import Limit, Patterns, ProviderPatterns


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
