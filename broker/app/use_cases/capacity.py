"""Held capacity and its use; quotes, and purchases: buying, approving, withdrawing, cancelling, and recording.

A purchase's id follows from the idempotency key of its request, so that a repetition after a crash is the same
purchase. Buying needs the permission and the approvals of the policies, as on the command line.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from broker.app.access.callers import Caller
from broker.app.billing.budget_documents import BudgetEffect
from broker.app.billing.budgets import request_effects
from broker.app.capacity import capacity, purchases
from broker.app.capacity.documents import CapacityList, RecordedCapacity
from broker.app.capacity.findings import CapacityFindingList, capacity_findings, warned_rules
from broker.app.capacity.purchase_documents import (
    PurchaseHistory,
    PurchaseList,
    PurchasePreviewResult,
    PurchaseResult,
    QuoteList,
    UndoTermsResult,
)
from broker.app.capacity.quote_requests import CapacityRequest
from broker.app.use_cases.changes import Reason, single_line
from broker.app.use_cases.shared_results import share_result
from broker.app.use_cases.visible import purchase_id, purchase_of
from broker.core.access.people import Permission
from broker.core.errors import BrokerError, InvalidInput, Refused
from broker.core.market.accelerators import canonical
from broker.core.purchases.purchases import PurchaseState
from broker.core.values.money import Money
from broker.core.values.units import parse_money, split_machine
from broker.economics.reserve.holdings import Holding, HoldingKind

T = TypeVar("T")
_USE_OF = timedelta(days=90)  # the default period of findings
Text = Annotated[str, Field(max_length=200)]
Texts = Annotated[Sequence[Text], Field(max_length=20)]
Amount = Annotated[str, Field(max_length=40)]
Since = Annotated[AwareDatetime | None, Field(description="Start of the period, with a time zone.")]


def list_capacity(
    by: Caller, ask: Annotated[bool, Field(description="Also ask providers, which takes seconds.")] = False
) -> CapacityList:
    """Owned machines, reservations and commitments."""
    return capacity.capacity_inventory(by.broker, ask=ask)


def capacity_use(by: Caller, since: Since = None) -> CapacityFindingList:
    """Findings from recorded use (default: of 90 days) on owning, reserving and renting."""
    now = by.broker.clock.now()
    start = since or now - _USE_OF
    if start >= now:
        raise InvalidInput("expected a time in the past", where="since")

    def compute() -> CapacityFindingList:
        return capacity_findings(by.broker, start, warned_rules(by.broker, start))

    return share_result(by, ("capacity use",), compute) if since is None else compute()


def list_purchases(
    by: Caller, closed: Annotated[bool, Field(description="Also those that ended or failed.")] = False
) -> PurchaseList:
    """Purchases of capacity of the teams that the caller may see."""
    all_purchases = by.broker.store.purchases(closed=closed)
    return PurchaseList.from_parts(
        purchases=[purchase for purchase in all_purchases if by.access.may(Permission.SEE_BUDGETS, purchase.team)]
    )


class PurchaseDetails(PurchaseHistory):
    """A purchase with its events. ``budgets``: what it does to budgets; empty once it is ordered."""

    budgets: list[BudgetEffect]


def show_purchase(by: Caller, purchase: str) -> PurchaseDetails:
    """One purchase: capacity, price, approvals, events, and what it does to the budgets that the caller may see."""
    current = purchase_of(by, purchase)
    history = PurchaseHistory.of(current, by.broker.store.purchase_events(purchase))
    open_request = [purchase] if current.state.before_order else ()
    effects = request_effects(by.broker, dict.fromkeys(open_request), by.access.teams(Permission.SEE_BUDGETS))
    return PurchaseDetails.from_parts(history, budgets=effects.get(purchase, []))


def policy_findings(
    by: Caller,
    since: Annotated[AwareDatetime | None, Field(description="Start of the period; default: 90 days ago.")] = None,
) -> CapacityFindingList:
    """Recorded use against owned, reserved and rented capacity, and what rules that only warn would have stopped."""
    return capacity_use(by, since)


def ask_quotes(by: Caller, demand: CapacityRequest, providers: Texts = ()) -> QuoteList:
    """Ask providers for capacity on sale, with its price. Buys nothing; a quote can be bought for an hour."""
    return QuoteList.of(purchases.quotes(by.broker, demand.request(), providers))


Ceiling = Annotated[Amount | None, Field(description="The most to be paid in USD. Default: the quote's total.")]


def preview_purchase(
    by: Caller,
    quote: Annotated[int, Field(ge=1, description="Its number.")],
    ceiling: Ceiling = None,
    team: Text | None = None,
    project: Text | None = None,
    environment: Text | None = None,
) -> PurchasePreviewResult:
    """The effect of buying a quote: the decision of the policies, the money held, the approvals. Changes nothing."""
    by.require(Permission.BUY, team)
    payer = purchases.Payer(team, project, environment)
    offered = by.broker.store.quote(quote)
    return purchases.preview(by.broker, offered, payer, by=by.actor, ceiling=_usd(ceiling, "ceiling"))


def buy_quote(
    by: Caller,
    quote: Annotated[int, Field(ge=1, description="Its number.")],
    ceiling: Ceiling = None,
    team: Text | None = None,
    project: Text | None = None,
    environment: Text | None = None,
) -> PurchaseResult:
    """Start a purchase: its money is held and its approvers are told. Nothing is ordered before they approve."""
    by.require(Permission.BUY, team)
    payer, id = purchases.Payer(team, project, environment), purchase_id(by) if by.key else None
    offered, most = by.broker.store.quote(quote), _usd(ceiling, "ceiling")
    return PurchaseResult.of(purchases.buy(by.broker, offered, payer, by=by.actor, ceiling=most, id=id))


def grant_purchase(
    by: Caller,
    purchase: str,
    binding: Annotated[
        str | None, Field(max_length=100, description="What the approver has seen; null: whatever it is now.")
    ] = None,
) -> PurchaseResult:
    """Approve a purchase, as one of its approvers; nobody approves their own. The service orders it after the last
    approval."""
    return PurchaseResult.of(purchases.approve(by.broker, purchase, by=by.actor, binding=binding))


def refuse_purchase(by: Caller, purchase: str, reason: Reason = "") -> PurchaseResult:
    """Refuse a purchase, as one of its approvers. Its money is released."""
    return PurchaseResult.of(purchases.reject_purchase(by.broker, purchase, by=by.actor, because=reason))


def withdraw_purchase(
    by: Caller,
    purchase: str,
    nothing_bought: Annotated[
        bool, Field(description="The order had no answer, and the provider's console shows no purchase.")
    ] = False,
) -> PurchaseResult:
    """Withdraw a purchase before its order, or one whose order bought nothing. Its money is released."""
    return PurchaseResult.of(
        purchases.withdraw_purchase(by.broker, purchase, by=by.actor, nothing_bought=nothing_bought)
    )


def show_undo_terms(by: Caller, purchase: str) -> UndoTermsResult:
    """The present cost of cancelling or returning a purchase, from its provider. Changes nothing."""
    purchase_of(by, purchase)
    return UndoTermsResult.from_parts(
        _ask_provider(lambda: purchases.undo_terms(by.broker, purchase)), purchase=purchase
    )


def cancel_purchase(
    by: Caller,
    purchase: str,
    at_most: Annotated[Amount, Field(description="Accept a charge of the provider up to this (USD).")] = "0",
) -> PurchaseResult:
    """Cancel or return a purchase at its provider, if it charges ``at_most`` for that."""
    most = _usd(at_most, "at_most") or Money.ZERO
    try:
        undone = _ask_provider(lambda: purchases.undo(by.broker, purchase, by=by.actor, max_charge=most))
    except BrokerError:  # once the request is recorded, it stays valid if the provider fails
        undone = by.broker.store.purchase(purchase)
        if undone.state is not PurchaseState.UNDOING:
            raise
    return PurchaseResult.of(undone)


class ProofBody(BaseModel):
    """A document: its name, and its content in base64 (5 MB)."""

    model_config = ConfigDict(extra="forbid")

    name: Text
    content: str = Field(max_length=7_000_000)


@dataclass(frozen=True)
class StatedHolding:
    """Capacity that was bought elsewhere."""

    kind: HoldingKind
    machine: Annotated[Text, Field(description="`H100:8`")]
    provider: Text
    starts: AwareDatetime
    ends: AwareDatetime
    machines: Annotated[int, Field(ge=1, le=100_000)] = 1
    site: Text = ""
    price: Annotated[Amount, Field(description="Paid at once, for all machines (USD).")] = "0"
    hourly: Annotated[Amount, Field(description="Paid by the hour, for all machines (USD).")] = "0"
    note: Annotated[str, Field(max_length=500)] = ""
    order: Annotated[Text, Field(description="The provider's id.")] = ""

    def holding(self) -> Holding:
        """The holding. Raises `InvalidInput`."""
        try:
            name, count = split_machine(self.machine)
        except ValueError as error:
            raise InvalidInput(str(error), where="machine") from error
        return Holding(
            kind=self.kind,
            accelerator=canonical(name),
            gpus=count * self.machines,
            provider=single_line(self.provider),
            site=single_line(self.site),
            starts=self.starts,
            ends=self.ends,
            upfront=_usd(self.price, "price") or Money.ZERO,
            hourly=_usd(self.hourly, "hourly") or Money.ZERO,
            note=single_line(self.note),
            order_id=single_line(self.order).strip(),
        )


def record_capacity(by: Caller, stated: StatedHolding, proof: ProofBody | None = None) -> RecordedCapacity:
    """Record capacity that was bought elsewhere, with a document that proves it. Buys nothing."""
    by.require(Permission.BUY, None)
    holding = stated.holding()
    if proof is None:
        return RecordedCapacity.of(capacity.add(by.broker, holding, by=by.actor))
    document, name = _decode(proof), single_line(proof.name)
    capacity.check_may_record(by.broker, holding, by=by.actor)
    return RecordedCapacity.of(by.broker.store.add_proved_holding(holding, name, document, by=by.actor.identity))


def _decode(proof: ProofBody) -> bytes:
    try:
        content = base64.b64decode(proof.content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("expected base64", where="proof.content") from error
    capacity.check_document(content, "proof.content")
    return content


def _ask_provider(ask: Callable[[], T]) -> T:
    """The provider's answer. Its refusal becomes `InvalidInput`, with the alternative."""
    try:
        return ask()
    except Refused as error:
        raise InvalidInput(error.message, where=error.where, hint=error.hint) from error


def _usd(text: str | None, field: str) -> Money | None:
    if text is None or not text.strip():
        return None
    try:
        digits = text.strip().removeprefix("$")
        return parse_money(f"${digits}")
    except ValueError as error:
        raise InvalidInput(str(error), where=field) from error
