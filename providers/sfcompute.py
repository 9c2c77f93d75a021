"""SF Compute's market of GPU-hours: the present price of a block of nodes, and orders. Needs an API token.

The market has no list of prices: a quote is the price of some nodes for some hours from a time on. An offer here is one
node for the next whole hours, as quoted now. Fields: SF Compute's API v0 (``/v0/quote``, ``/v0/orders``,
``/v0/contracts``), as the types of its command line (github.com/sfcompute/cli, schema.ts) have them: prices are in US
cents, times on the hour.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import ClassVar

from broker.core.errors import Malformed
from broker.core.market.capacity import Reservation
from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.purchases.quotes import PurchaseProduct, SellsProduct
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
        from providers.sfcompute_orders import SfcomputeBlocks

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
