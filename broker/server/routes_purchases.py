"""Asking for quotes, buying, approving, withdrawing, cancelling and recording capacity through the API.

Each change takes effect once per idempotency key; a purchase's id follows from the key, so that a repetition after a
crash is the same purchase. Buying needs the permission and the approvals of the policies, as on the command line.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from broker.app.access.idempotency import ChangeAnswer, ChangeRequest, run_once
from broker.app.capacity import capacity, purchases
from broker.app.capacity.quote_requests import CapacityRequest
from broker.app.results.capacity import RecordedCapacity
from broker.app.results.purchases import PurchasePreviewResult, PurchaseResult, QuoteList, UndoTermsResult
from broker.core.access.permissions import Permission
from broker.core.errors import BrokerError, InvalidInput, Refused
from broker.core.purchases.purchases import PREFIX, Purchase, PurchaseState
from broker.core.values.accelerators import canonical
from broker.core.values.money import Money
from broker.core.values.units import parse_money, split_machine
from broker.economics.reserve.holdings import Holding, HoldingKind, RecordedHolding
from broker.server.callers import By, Caller
from broker.server.changes import DecisionBody, Key, one_line, request_of
from broker.server.routes_money import purchase_of

T = TypeVar("T")
_SHORT, _DOCUMENT = 200, 7_000_000
Text = Annotated[str, Field(max_length=_SHORT)]
Amount = Annotated[str, Field(max_length=40)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class QuotesBody(_Body):
    """``machine``: ``H100:8`` or an instance type; ``length``: ``48h``, ``7d``, ``1y``; ``products``: names of kinds,
    ``all`` for all (default: capacity_block)."""

    machine: Text
    machines: int = Field(default=1, ge=1, le=10_000)
    length: Text = "1d"
    region: Text | None = None
    earliest: AwareDatetime | None = None
    latest: AwareDatetime | None = None
    providers: list[Text] = Field(default_factory=list, max_length=20)
    products: list[Text] = Field(default_factory=list, max_length=20)


class BuyBody(_Body):
    """``quote``: its number; ``ceiling``: the most to be paid in USD (default: the quote's total)."""

    quote: int = Field(ge=1)
    ceiling: Amount | None = None
    team: Text | None = None
    project: Text | None = None
    environment: Text | None = None


class WithdrawBody(_Body):
    """``nothing_bought``: the order had no answer, and the provider's console shows no purchase."""

    nothing_bought: bool = False


class CancelBody(_Body):
    """``at_most``: accept a charge of the provider up to this (USD)."""

    at_most: Amount = "0"


class PurchaseApprovalBody(_Body):
    """``binding``: what the approver has seen, as in the purchase; null: whatever it is now."""

    binding: str | None = Field(default=None, max_length=100)


class ProofBody(_Body):
    """A document: its name, and its content in base64 (5 MB)."""

    name: Text
    content: str = Field(max_length=_DOCUMENT)


class RecordBody(_Body):
    """Capacity that was bought elsewhere. ``machine``: ``H100:8``; ``price``: paid at once, ``hourly``: paid by the
    hour, for all machines (USD); ``order``: the provider's id."""

    kind: HoldingKind
    machine: Text
    machines: int = Field(default=1, ge=1, le=100_000)
    provider: Text
    site: Text = ""
    starts: AwareDatetime
    ends: AwareDatetime
    price: Amount = "0"
    hourly: Amount = "0"
    note: str = Field(default="", max_length=500)
    order: Text = ""
    proof: ProofBody | None = None


def ask_quotes(by: By, body: QuotesBody) -> QuoteList:
    """Ask providers for capacity on sale, with its price. Buys nothing; a quote can be bought for an hour."""
    demand = CapacityRequest(**body.model_dump(exclude={"providers"}))
    return QuoteList.of(purchases.quotes(by.broker, demand.request(), body.providers))


def preview_purchase(by: By, body: BuyBody) -> PurchasePreviewResult:
    """The effect of buying a quote: the verdict of the policies, the money held, the approvals. Changes nothing."""
    by.require(Permission.BUY, body.team)
    quote = by.broker.store.quote(body.quote)
    ceiling = _usd(body.ceiling, "ceiling")
    return purchases.preview(by.broker, quote, _payer(body), by=by.actor, ceiling=ceiling)


def buy_quote(by: By, key: Key, body: BuyBody) -> ChangeAnswer:
    """Start a purchase: its money is held and its approvers are told. Nothing is ordered before they approve."""
    by.require(Permission.BUY, body.team)
    quote, ceiling = by.broker.store.quote(body.quote), _usd(body.ceiling, "ceiling")
    id = f"{PREFIX}{sha256(f'{by.actor.identity} {key}'.encode()).hexdigest()[:12]}"

    def buy() -> Purchase:
        return purchases.buy(by.broker, quote, _payer(body), by=by.actor, ceiling=ceiling, id=id)

    return _once(by, key, "purchases.buy", id, body, buy, before="")


def _payer(body: BuyBody) -> purchases.Payer:
    return purchases.Payer(body.team, body.project, body.environment)


def approve_purchase(by: By, purchase: str, key: Key, body: PurchaseApprovalBody) -> ChangeAnswer:
    """Approve a purchase, as one of its approvers; nobody approves their own. The service orders it after the last
    approval."""

    def approve() -> Purchase:
        return purchases.approve(by.broker, purchase, by=by.actor, binding=body.binding)

    return _change_purchase(by, purchase, key, "purchases.approve", body, approve, Permission.APPROVE)


def reject_purchase(by: By, purchase: str, key: Key, body: DecisionBody) -> ChangeAnswer:
    """Refuse a purchase, as one of its approvers. Its money is released."""
    reason = one_line(body.reason)

    def reject() -> Purchase:
        return purchases.reject_purchase(by.broker, purchase, by=by.actor, because=reason)

    return _change_purchase(by, purchase, key, "purchases.reject", body, reject, Permission.APPROVE)


def withdraw_purchase(by: By, purchase: str, key: Key, body: WithdrawBody) -> ChangeAnswer:
    """Withdraw a purchase before its order, or one whose order bought nothing. Its money is released."""

    def withdraw() -> Purchase:
        return purchases.withdraw_purchase(by.broker, purchase, by=by.actor, nothing_bought=body.nothing_bought)

    return _change_purchase(by, purchase, key, "purchases.withdraw", body, withdraw)


def show_undo_terms(by: By, purchase: str) -> UndoTermsResult:
    """The present cost of cancelling or returning a purchase, from its provider. Changes nothing."""
    purchase_of(by, purchase)
    return UndoTermsResult.of(purchase, _ask_provider(lambda: purchases.undo_terms(by.broker, purchase)))


def cancel_purchase(by: By, purchase: str, key: Key, body: CancelBody) -> ChangeAnswer:
    """Cancel or return a purchase at its provider, if it charges ``at_most`` for that."""
    max_charge = _usd(body.at_most, "at_most") or Money.ZERO

    def cancel() -> Purchase:
        return _try_change(
            by, purchase, lambda: purchases.undo(by.broker, purchase, by=by.actor, max_charge=max_charge)
        )

    return _change_purchase(by, purchase, key, "purchases.cancel", body, cancel)


def record_capacity(by: By, key: Key, body: RecordBody) -> ChangeAnswer:
    """Record capacity that was bought elsewhere, with a document that proves it. Buys nothing."""
    by.require(Permission.BUY, None)
    holding, document = _holding(body), _document(body.proof)

    def record() -> RecordedHolding:
        if document is None:
            return capacity.add(by.broker, holding, by=by.actor)
        capacity.check_may_record(by.broker, holding, by=by.actor)
        return by.broker.store.add_proved_holding(holding, *document, by=by.actor.identity)

    def to_answer(recorded_holding: RecordedHolding) -> ChangeAnswer:
        return ChangeAnswer.of(RecordedCapacity.of(recorded_holding), f"number {recorded_holding.number}", 201)

    return run_once(by.broker, _request(by, key, "capacity.add", "capacity", body, ""), record, to_answer)


def _change_purchase(
    by: Caller,
    id: str,
    key: str,
    action: str,
    body: BaseModel,
    change: Callable[[], Purchase],
    needs: Permission = Permission.BUY,
) -> ChangeAnswer:
    before = purchase_of(by, id)
    by.require(needs, before.team)
    return _once(by, key, action, id, body, change, before.state.value)


def _ask_provider(ask: Callable[[], T]) -> T:
    """The provider's answer. Its refusal becomes `InvalidInput`, with the alternative."""
    try:
        return ask()
    except Refused as error:
        raise InvalidInput(error.message, where=error.where, hint=error.hint) from error


def _try_change(by: Caller, id: str, change: Callable[[], Purchase]) -> Purchase:
    """The result of the change. If the provider failed after the request was recorded, the request stays valid: returns
    the purchase as it is then."""
    try:
        return _ask_provider(change)
    except BrokerError:
        current = by.broker.store.purchase(id)
        if current.state is not PurchaseState.UNDOING:
            raise
        return current


def _once(
    by: Caller, key: str, action: str, id: str, body: BaseModel, change: Callable[[], Purchase], before: str
) -> ChangeAnswer:
    """Make the change of the purchase ``id``, once per idempotency key. ``before``: its state, empty for a new one."""

    def to_answer(after: Purchase) -> ChangeAnswer:
        return ChangeAnswer.of(PurchaseResult.of(after), after.state.value, 200 if before else 201)

    return run_once(by.broker, _request(by, key, action, id, body, before), change, to_answer)


def _request(by: Caller, key: str, action: str, subject: str, body: BaseModel, before: str) -> ChangeRequest:
    return request_of(by, key, (action, subject), f"{action} {subject} {body.model_dump_json()}", before)


def _usd(text: str | None, field: str) -> Money | None:
    if text is None or not text.strip():
        return None
    try:
        digits = text.strip().removeprefix("$")
        return parse_money(f"${digits}")
    except ValueError as error:
        raise InvalidInput(str(error), where=field) from error


def _holding(body: RecordBody) -> Holding:
    try:
        name, count = split_machine(body.machine)
    except ValueError as error:
        raise InvalidInput(str(error), where="machine") from error
    return Holding(
        kind=body.kind,
        accelerator=canonical(name),
        gpus=count * body.machines,
        provider=one_line(body.provider),
        site=one_line(body.site),
        starts=body.starts,
        ends=body.ends,
        upfront=_usd(body.price, "price") or Money.ZERO,
        hourly=_usd(body.hourly, "hourly") or Money.ZERO,
        note=one_line(body.note),
        order_id=one_line(body.order).strip(),
    )


def _document(proof: ProofBody | None) -> tuple[str, bytes] | None:
    if proof is None:
        return None
    try:
        content = base64.b64decode(proof.content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("expected base64", where="proof.content") from error
    capacity.check_document(content, "proof.content")
    return one_line(proof.name), content
