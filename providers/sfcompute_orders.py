"""Orders at SF Compute: blocks of nodes that are bought.

An order is a limit order at the quoted price that is filled at once or not at all. The request carries the purchase's
key as ``Idempotency-Key``; the list of orders does not include it, so an order is found again by its content and time,
and is sent once. A filled order cannot be undone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_CEILING
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
from providers.rows import RowRejected
from providers.sfcompute import NAME, TYPES, market_quote, moment, stamp

if TYPE_CHECKING:
    from providers.sfcompute import Sfcompute

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_LONGEST = timedelta(days=365)
_CLOCK_SKEW = timedelta(minutes=2)  # its clock may be behind this one
_APPROVAL_TIME = timedelta(minutes=30)
_PAGE = 100
_STATES = {
    "pending": OrderState.PENDING,
    "open": OrderState.PENDING,
    "filled": OrderState.HELD,
    "cancelled": OrderState.OVER,
    "rejected": OrderState.REFUSED,
    "expired": OrderState.REFUSED,
}


class SfcomputeBlocks:
    """See `SellsProduct`."""

    marked = False
    repeats_for = timedelta(0)
    ends_itself = True

    def __init__(self, provider: Sfcompute, clock: Clock) -> None:
        self._provider = provider
        self._clock = clock

    def quotes(self, request: QuoteRequest) -> Iterator[CapacityQuote | SkippedRow]:
        """The market's present price of the nodes: one quote per type of node."""
        if not _HOUR <= request.length <= _LONGEST or request.length % _HOUR:
            raise InvalidInput(
                f"SF Compute sells whole hours, up to a year; got {request.length}", where="--for", hint="--for 24h"
            )
        if request.region not in (None, "sf"):
            return
        now = self._clock.now().replace(microsecond=0)
        kinds = [kind for kind in TYPES if _matches_request(kind, request)]
        with self._provider.api() as api:
            for kind in kinds:
                starts = self._window(request, now)
                quote = market_quote(api, self._provider.token, kind, request.machines, request.length, starts)
                if quote is not None and quote.machines == request.machines:
                    yield _quote(request, kind, quote, now)

    def _window(self, request: QuoteRequest, now: datetime) -> tuple[datetime, datetime]:
        # By default late enough for people to approve it before it begins.
        earliest = max(request.earliest or _next_hour(now + _APPROVAL_TIME), _next_hour(now))
        return earliest, max(min(request.latest or earliest + _DAY, earliest + _DAY), earliest)

    def try_order(self, quote: CapacityQuote, key: str) -> None:
        """Check the login; SF Compute has no dry run."""
        self._provider.api()

    def order(self, quote: CapacityQuote, key: str) -> Order:
        cents = (quote.total.dollars * 100).to_integral_value(rounding=ROUND_CEILING)
        body = {
            "side": "buy",
            "instance_type": quote.instance_type,
            "quantity": quote.machines,
            "start_at": stamp(quote.starts),
            "end_at": stamp(quote.ends),
            "price": int(cents),
            "flags": {"ioc": True},
        }
        return self._post_order(body, key)

    def _post_order(self, body: Mapping[str, Any], key: str) -> Order:
        with self._provider.api() as api:
            answer = api.post_once("/v0/orders", body, token=self._provider.token, key=key)
        if not isinstance(answer, Mapping) or not answer.get("id"):
            raise OutcomeUnknown("an order without an id", where=f"{NAME}: /v0/orders")
        return Order(id=str(answer["id"]), state=OrderState.PENDING, word=str(answer.get("status") or "pending"))

    def find_orders(self, quote: CapacityQuote, key: str) -> Sequence[Order]:
        expected = ("buy", quote.instance_type, quote.machines, quote.starts, quote.ends)
        return [_order(row) for row in self._orders(quote.quoted_at) if _order_key(row) == expected]

    def _orders(self, since: datetime) -> Iterator[Mapping[str, Any]]:
        """The account's orders since that time, newest first."""
        with self._provider.api() as api:
            for page in range(100):
                params = {"sort_by": "created_at", "sort_direction": "DESC", "limit": str(_PAGE)}
                offset = {"offset": str(page * _PAGE)} if page else {}
                answer = api.get("/v0/orders", params={**params, **offset}, token=self._provider.token)
                rows = answer.get("data") if isinstance(answer, Mapping) else None
                if not isinstance(rows, list):
                    raise Malformed("no orders in the answer", where=NAME)
                for row in rows:
                    created = _time_or_none(row, "created_at") if isinstance(row, Mapping) else None
                    if created is None:
                        continue
                    if created < since - _CLOCK_SKEW:
                        return
                    yield row
                if not answer.get("has_more"):
                    return

    def undo_terms(self, quote: CapacityQuote, order: Order) -> UndoTerms:
        if order.state is OrderState.PENDING:
            return UndoTerms(way="cancel")
        raise Refused(
            "a filled order cannot be undone",
            where=NAME,
            hint="use it, or resell the rest of it at SF Compute yourself",
        )

    def undo(self, quote: CapacityQuote, order: Order, terms: UndoTerms) -> None:
        with self._provider.api() as api:
            api.delete_once(f"/v0/orders/{order.id}", token=self._provider.token)


def _quote(request: QuoteRequest, kind: str, quote: Any, now: datetime) -> CapacityQuote:
    accelerator, count = TYPES[kind]
    return CapacityQuote(
        product=PurchaseProduct.CAPACITY_BLOCK,
        provider=NAME,
        offering=f"{kind}/{stamp(quote.starts)}/{stamp(quote.ends)}",
        region="sf",
        instance_type=kind,
        accelerator=accelerator,
        count=count,
        machines=request.machines,
        starts=quote.starts,
        ends=quote.ends,
        total=quote.price,
        undo=Undo.NONE,
        quoted_at=now,
    )


def _matches_request(kind: str, request: QuoteRequest) -> bool:
    if request.instance_type is not None:
        return kind == request.instance_type
    return TYPES[kind] == (request.accelerator, request.count)


def _order_key(row: Mapping[str, Any]) -> tuple[object, ...]:
    times = (_time_or_none(row, "start_at"), _time_or_none(row, "end_at"))
    return (row.get("side"), row.get("instance_type"), row.get("quantity"), *times)


def _time_or_none(row: Mapping[str, Any], field: str) -> datetime | None:
    try:
        return moment(row.get(field))
    except RowRejected:
        return None


def _order(row: Mapping[str, Any]) -> Order:
    word = str(row.get("status", ""))
    return Order(id=str(row.get("id") or ""), state=_STATES.get(word, OrderState.PENDING), word=word)


def _next_hour(now: datetime) -> datetime:
    return now.replace(minute=0, second=0, microsecond=0) + _HOUR
