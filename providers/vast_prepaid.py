"""Prepaying a rented machine of Vast.ai (PUT /instances/prepay/{id}/): a lower rate in return for credit paid now.

The request has no key, and a repeated one pays twice: it is sent once. The machine's balance of prepaid credit,
compared with the one at the quote, shows whether it was accepted. It cannot be undone. Fields: Vast.ai's API reference
("prepay instance", "show instance") as of November 2026.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Any

from broker.core.errors import InvalidInput, Malformed, OutcomeUnknown, Refused
from broker.core.market.offers import SkippedRow
from broker.core.purchases.quotes import (
    CapacityQuote,
    Order,
    OrderState,
    PurchaseProduct,
    QuoteRequest,
    Undo,
    UndoTerms,
)
from broker.core.values.clock import Clock
from broker.core.values.money import Money
from providers.rows import Unfit, accelerator, figure, name, number, whole

if TYPE_CHECKING:
    from providers.vast import Vast

NAME = "vast"
_MONTH = timedelta(days=30)
_LONGEST = 6
# At least this share of the payment is left when it is searched for: a machine uses its credit by the hour.
_STILL_THERE = Decimal("0.5")


class VastPrepaid:
    """See `SellsProduct`."""

    marked = False
    repeats_for = timedelta(0)
    ends_itself = True

    def __init__(self, provider: Vast, clock: Clock) -> None:
        self._provider = provider
        self._clock = clock

    def quotes(self, request: QuoteRequest) -> Iterator[CapacityQuote | SkippedRow]:
        """The price of prepaying the machine ``request.extends`` for whole months: its rate for the time, at most. The
        discount, up to 40 %, is known only to Vast.ai, and lengthens the time instead."""
        if not request.extends.isdecimal():
            raise InvalidInput(
                "prepaying needs the machine that is rented", where="--extends", hint="--extends 1234567 (vastai show)"
            )
        months = request.length // _MONTH
        if request.length % _MONTH or not 1 <= months <= _LONGEST:
            raise InvalidInput(
                f"expected 1 to 6 months of 30 days; got {request.length}", where="--for", hint="--for 30d"
            )
        row, now = self._instance(int(request.extends)), self._clock.now().replace(microsecond=0)
        try:
            yield _quote(request, row, now)
        except Unfit as error:
            yield error.skipped

    def try_order(self, quote: CapacityQuote, key: str) -> None:
        """Vast.ai has no dry run. Raises `Refused` if the account's credit does not suffice."""
        with self._provider.api() as api:
            account = api.get("/api/v0/users/current/", token=self._provider.token)
        credit = account.get("credit") if isinstance(account, Mapping) else None
        if not isinstance(credit, int | Decimal) or isinstance(credit, bool):
            raise Malformed("the account has no credit in the answer", where=NAME)
        if Decimal(credit) < quote.total.dollars:
            raise Refused(
                f"the account has ${credit} of credit, {quote.total.rounded(2)} is needed",
                where=NAME,
                hint="add credit at https://cloud.vast.ai/billing/",
            )

    def order(self, quote: CapacityQuote, key: str) -> Order:
        id, _ = _parts(quote)
        body = {"amount": float(quote.total.dollars)}
        with self._provider.api() as api:
            answer = api.put_once(f"/api/v0/instances/prepay/{id}/", body, token=self._provider.token)
        if not isinstance(answer, Mapping):
            raise OutcomeUnknown("not an object", where=NAME)
        if answer.get("success") is not True:
            raise Refused(str(answer.get("msg") or "not accepted"), where=NAME)
        return Order(id=quote.offering, state=OrderState.HELD, word="prepaid", billed_from=quote.starts)

    def find_orders(self, quote: CapacityQuote, key: str) -> Sequence[Order]:
        id, before = _parts(quote)
        now = _balance(self._instance(id))
        if now - before < quote.total.dollars * _STILL_THERE:
            return []
        return [Order(id=quote.offering, state=OrderState.HELD, word="prepaid", billed_from=quote.starts)]

    def undo_terms(self, quote: CapacityQuote, order: Order) -> UndoTerms:
        raise _kept()

    def undo(self, quote: CapacityQuote, order: Order, terms: UndoTerms) -> None:
        raise _kept()

    def _instance(self, id: int) -> Mapping[str, Any]:
        with self._provider.api() as api:
            answer = api.get(f"/api/v0/instances/{id}/", token=self._provider.token)
        row = answer.get("instances") if isinstance(answer, Mapping) else None
        if not isinstance(row, Mapping) or row.get("id") != id:
            raise InvalidInput(f"no rented machine {id}", where="--extends", hint="`vastai show instances` lists them")
        return row


def _quote(request: QuoteRequest, row: Mapping[str, Any], now: Any) -> CapacityQuote:
    what = f"machine {request.extends}"
    rate = number(row.get("dph_total"), f"{what}: dph_total")
    if rate <= 0:
        raise Unfit("no_price", f"{what}: no rate")
    hours = request.length // timedelta(hours=1)
    total = (rate * hours).quantize(Decimal("0.01"), rounding=ROUND_CEILING)
    memory = figure(row.get("gpu_ram"))
    return CapacityQuote(
        product=PurchaseProduct.PREPAID,
        provider=NAME,
        offering=f"{request.extends}@{_balance(row)}",
        region=name(str(row.get("geolocation") or "unknown").rpartition(",")[2].strip(), f"{what}: place"),
        instance_type=name(str(row.get("gpu_name") or ""), f"{what}: gpu_name"),
        accelerator=accelerator(row.get("gpu_name"), memory_gib=memory / 1024 if memory else None),
        count=whole(row.get("num_gpus"), f"{what}: num_gpus"),
        machines=1,
        starts=now,
        ends=now + request.length,
        total=Money.usd(total),
        undo=Undo.NONE,
        quoted_at=now,
        at_once=True,
        extends=request.extends,
    )


def _parts(quote: CapacityQuote) -> tuple[int, Decimal]:
    """The machine, and its balance when it was quoted (USD)."""
    id, _, balance = quote.offering.partition("@")
    return int(id), Decimal(balance)


def _balance(row: Mapping[str, Any]) -> Decimal:
    found = row.get("credit_balance")
    if found is None:
        return Decimal(0)
    if isinstance(found, bool) or not isinstance(found, int | Decimal):
        raise Malformed(f"credit_balance: {found!r}", where=NAME)
    return Decimal(found)


def _kept() -> Refused:
    return Refused("prepaid credit cannot be undone: Vast.ai keeps it with the machine", where=NAME, hint="use it")
