"""SF Compute's market of GPU-hours: the present price of a block of nodes, and orders. Needs an API token.

The market has no list of prices: a quote is the price of some nodes for some hours from a time on. An offer here is one
node for the next whole hours, as quoted now. Fields: SF Compute's API v0 (``/v0/quote``, ``/v0/orders``,
``/v0/contracts``), as the types of its command line (github.com/sfcompute/cli, schema.ts) have them: prices are in US
cents, times on the hour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Any, ClassVar

from broker.core.errors import InvalidInput, Malformed, OutcomeUnknown, Refused
from broker.core.market.capacity import Reservation
from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.purchases.quotes import (
    CapacityQuote,
    Order,
    OrderState,
    PurchaseProduct,
    QuoteRequest,
    SellsProduct,
    Undo,
    UndoTerms,
)
from broker.core.values.clock import Clock
from broker.core.values.money import Money
from providers.http import Api, Url
from providers.listing import KeyedProvider, KeyedSettings
from providers.rows import RowRejected, name, number, price, short, whole

NAME = "sfcompute"
_CENTS = 100
_MAX_CENTS = 10**12  # cents; a higher price is an error
_QUOTE_PERIOD = timedelta(hours=24)  # the period of an offer's quote
_MAX_AGE = timedelta(minutes=30)
# SF Compute's instance types: eight H100 (SXM) with InfiniBand, and without; eight H200.
TYPES = {"h100i": ("H100", 8), "h100v": ("H100", 8), "h200ki": ("H200", 8)}


class SfcomputeSettings(KeyedSettings):
    """``base_url``: the URL above ``/v0/orders``. ``api_key``: default: SFC_API_KEY. ``instance_types``: the types to
    query prices of."""

    base_url: Url = "https://api.sfcompute.com"
    instance_types: tuple[str, ...] = ("h100i",)


class Sfcompute(KeyedProvider[SfcomputeSettings]):
    """SF Compute's nodes, by the block."""

    name = NAME
    Settings: ClassVar = SfcomputeSettings
    title, variable, needs = "SF Compute", "SFC_API_KEY", "a token (`sf tokens create`)"
    document, adds, per_second = "market", "SF Compute's prices, and orders", 5

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """One node of each type for the next day. Raises `LoginMissing`, `RetryLater`, `Refused` and `Malformed`."""
        with self.api() as api:
            for kind in self._settings.instance_types:
                try:
                    yield self._offer(api, kind)
                except RowRejected as error:
                    yield error.skipped

    def _offer(self, api: Api, kind: str) -> Offer:
        if kind not in TYPES:
            raise RowRejected("unknown_machine", f"{kind}: known are {', '.join(TYPES)}")
        (accelerator, count), now = TYPES[kind], self._clock.now()
        row = _quote_row(api, self.token, kind, 1, _QUOTE_PERIOD, None)
        if row is None:
            raise RowRejected("sold_out", f"{kind}: no node is for sale for the next day")
        quote = MarketQuote(row)
        if quote.machines != 1:
            raise RowRejected("malformed_row", f"{kind}: a quote for {quote.machines} nodes, not for one")
        seconds = Decimal((quote.ends - quote.starts) // timedelta(seconds=1))
        if seconds <= 0:
            raise RowRejected("malformed_row", f"{kind}: a quote for less than a second")
        return Offer(
            provider=NAME,
            region="sf",
            zone=None,
            instance_type=name(kind, "instance type"),
            accelerator=accelerator,
            count=count,
            capacity_type=CapacityType.ON_DEMAND,
            price=price(quote.usd * 3600, kind, per=int(seconds)),
            as_of=now,
            source="sfcompute-quote",
            interconnect=Interconnect.NVLINK,
            availability=Availability.AVAILABLE,
            engine=None,
            max_age=_MAX_AGE,
        )

    def reservations(self) -> Iterator[Reservation]:
        """See `HasReservations`: contracts in force or to come."""
        with self.api() as api:
            for row in contracts(api, self.token):
                yield Reservation(
                    id=row.id,
                    provider=NAME,
                    region="sf",
                    zone=None,
                    instance_type=row.instance_type,
                    machines=row.machines,
                    kind="contract",
                    starts=row.starts,
                    ends=row.ends,
                )

    @property
    def products(self) -> Mapping[PurchaseProduct, SellsProduct]:

        return {PurchaseProduct.CAPACITY_BLOCK: SfcomputeBlocks(self, self._clock)}

    def api(self) -> Api:
        """Calls with the login. Raises `NoLogin` without one."""
        return self._open()

    @property
    def token(self) -> str:
        """The API token; empty without one."""
        return self._key or ""


class MarketQuote:
    """The market's ask or bid: ``price`` for all nodes and the whole time (USD). Times are UTC."""

    def __init__(self, row: object) -> None:
        """Raises `RowRejected` for an invalid row."""
        if not isinstance(row, Mapping):
            raise RowRejected("malformed_row", f"expected a quote, found {short(row)}")
        cents = number(row.get("price"), "quote")
        if not 1 <= cents <= _MAX_CENTS:
            raise RowRejected("invalid_price", f"a quote of {short(cents)} cents")
        self.usd = cents / _CENTS
        self.price = Money.usd(self.usd)
        self.machines = whole(row.get("quantity"), "quantity")
        self.starts, self.ends = moment(row.get("start_at")), moment(row.get("end_at"))
        if self.ends <= self.starts:
            raise RowRejected("malformed_row", "a quote that ends before it begins")


class SfcomputeContract:
    """Nodes of the account for a time, as its orders were filled. Times are UTC."""

    def __init__(self, row: object) -> None:
        """Raises `RowRejected` for a row that is none."""
        if not isinstance(row, Mapping):
            raise RowRejected("malformed_row", f"expected a contract, found {short(row)}")
        self.id = name(row.get("id"), "contract")
        self.instance_type = name(row.get("instance_type"), f"{self.id}: instance_type")
        shape = row.get("shape")
        intervals = shape.get("intervals") if isinstance(shape, Mapping) else None
        quantities = shape.get("quantities") if isinstance(shape, Mapping) else None
        if not isinstance(intervals, list) or not isinstance(quantities, list) or len(intervals) < 2 or not quantities:
            raise RowRejected("malformed_row", f"{self.id}: no shape")
        self.starts, self.ends = moment(intervals[0]), moment(intervals[-1])
        self.machines = max(int(number(quantity, f"{self.id}: quantity")) for quantity in quantities)
        if self.ends <= self.starts or self.machines < 1:
            raise RowRejected("malformed_row", f"{self.id}: {self.machines} nodes until {self.ends}")


def market_quote(
    api: Api,
    token: str,
    kind: str,
    machines: int,
    length: timedelta,
    starts: tuple[datetime, datetime] | None,
) -> MarketQuote | None:
    """The market's price; None without a seller. ``starts``: the earliest and latest start (UTC), a day
    apart at most; None: now. ``kind``: the instance type. Raises as `Api.get`."""
    row = _quote_row(api, token, kind, machines, length, starts)
    try:
        return None if row is None else MarketQuote(row)
    except RowRejected as error:
        raise Malformed(f"the quote cannot be read: {error}", where=NAME) from error


def _quote_row(
    api: Api,
    token: str,
    kind: str,
    machines: int,
    length: timedelta,
    starts: tuple[datetime, datetime] | None,
) -> object:
    first, last = ("NOW", "NOW") if starts is None else (stamp(starts[0]), stamp(starts[1]))
    params = {
        "side": "buy",
        "instance_type": kind,
        "quantity": str(machines),
        "duration": str(length // timedelta(seconds=1)),
    }
    times = {"min_start_date": first, "max_start_date": last}
    answer = api.get("/v0/quote", params={**params, **times}, token=token)
    if not isinstance(answer, Mapping) or "quote" not in answer:
        raise Malformed("no quote in the answer", where=NAME)
    return answer["quote"]


def contracts(api: Api, token: str) -> Iterator[SfcomputeContract]:
    """The account's contracts. Raises as `Api.get`; rows that cannot be read are `Malformed` at the end, counted and
    with the first of them."""
    answer = api.get("/v0/contracts", token=token)
    rows = answer.get("data") if isinstance(answer, Mapping) else None
    if not isinstance(rows, list):
        raise Malformed("no contracts in the answer", where=NAME)
    rejected: list[RowRejected] = []
    for row in rows:
        try:
            yield SfcomputeContract(row)
        except RowRejected as error:
            rejected.append(error)
    if rejected:
        raise Malformed(f"{len(rejected)} of {len(rows)} contracts cannot be read: {rejected[0].detail}", where=NAME)


def moment(text: object) -> datetime:
    """A time of the API (UTC). Raises `RowRejected`."""
    try:
        parsed = datetime.fromisoformat(str(text))
    except ValueError as error:
        raise RowRejected("malformed_row", f"not a time: {text!r}") from error
    if parsed.tzinfo is None:
        raise RowRejected("malformed_row", f"a time without zone: {text!r}")
    return parsed


def stamp(instant: datetime) -> str:
    """A time in the form of the API."""
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


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
