"""The state of prices as results."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Literal, Self

from pydantic import Field

from broker.app.documents import Figure, Moment, Result, Seconds, is_none
from broker.app.market.offer_documents import OfferedMachine
from broker.app.market.price_history import PriceHistories, PriceHistory, PricePeriod, price_periods
from broker.core.values.money import Money
from broker.market.poller import PollResult
from broker.store.records import CONVERTED, AvailabilityPoint, Freshness, PollStatus


class PolledProvider(Result):
    """The polls of one provider, and the age of its prices. ``error``: of the last poll, with what to do
    about it; null where it succeeded; ``failures`` and ``hint``: the same in parts, one for each region or cloud that
    failed. ``offers_suspicious``: offers that are not believed, on which no job starts;
    ``skipped_samples``: details of some skipped rows, by reason; ``converted``: the rates by which its prices became
    dollars, if it states them in another currency."""

    provider: str
    status: PollStatus
    finished: Moment
    age_seconds: Seconds
    last_success: Moment | None
    success_age_seconds: Seconds | None
    seconds: Seconds
    offers: int
    offers_stale: int
    offers_suspicious: int
    oldest_price: Moment | None
    newest_price: Moment | None
    max_age_seconds: Seconds | None
    interval_seconds: Seconds
    offers_seen: int
    offers_changed: int
    complete: bool
    rows_skipped: dict[str, int]
    skipped_samples: dict[str, list[str]]
    converted: list[str]
    error: str | None
    failures: list[str]
    hint: str

    @classmethod
    def of(cls, freshness: Freshness, interval: timedelta, now: datetime) -> Self:
        """The provider must have been polled. ``interval``: between scheduled polls."""
        last_poll = freshness.last
        assert last_poll is not None
        return cls.from_parts(
            last_poll,
            provider=freshness.provider,
            age_seconds=now - last_poll.finished,
            last_success=freshness.last_success,
            success_age_seconds=None if freshness.last_success is None else now - freshness.last_success,
            seconds=last_poll.finished - last_poll.started,
            offers=freshness.offers,
            offers_stale=freshness.stale,
            offers_suspicious=freshness.suspicious,
            oldest_price=freshness.oldest,
            newest_price=freshness.newest,
            max_age_seconds=freshness.limit,
            interval_seconds=interval,
            offers_seen=last_poll.seen,
            offers_changed=last_poll.changed,
            rows_skipped=dict(last_poll.skipped),
            skipped_samples={
                reason: list(details) for reason, details in last_poll.samples.items() if reason != CONVERTED
            },
            error=error_line(last_poll.error, last_poll.hint),
            failures=_failures(freshness.provider, last_poll.error),
        )


class PriceStatus(Result):
    """Every provider that was polled, and the names of those that never were. ``scheduled``: whether a process polls
    them on a schedule now."""

    providers: list[PolledProvider]
    never_polled: list[str]
    scheduled: bool


def _failures(provider: str, error: str) -> list[str]:
    return [line.removeprefix(f"{provider}: ") for line in error.splitlines()]


def error_line(error: str, hint: str) -> str | None:
    """An error and its hint in one line; None without an error."""
    return "; ".join([*error.splitlines(), *([hint] if hint else [])]) if error else None


class PollOutcome(Result):
    """The result of one poll. ``error``: null if the poll completed; ``failures`` and
    ``hint``: the same in parts. ``failed``: false also where a login or an extra was never set up."""

    provider: str
    status: PollStatus
    offers_seen: int
    offers_changed: int
    rows_skipped: dict[str, int]
    seconds: Seconds
    failed: bool
    error: str | None
    failures: list[str]
    hint: str

    @classmethod
    def of(cls, result: PollResult) -> Self:
        return cls.from_parts(
            result,
            seconds=result.finished - result.started,
            error=error_line(result.error, result.hint),
            failures=_failures(result.provider, result.error),
        )


class PollReport(Result):
    """The completed polls. ``interrupted``: providers whose polls Ctrl-C ended, only where there are any."""

    polls: list[PollOutcome]
    interrupted: list[str] | None = Field(default=None, exclude_if=is_none)


class PricedMachine(OfferedMachine):
    """``source``: of the price; ``reference``: copied from a price list."""

    source: str
    reference: bool


class PriceAt(Result):
    """A price in USD, in force from ``at``; null: not offered. ``learned``: when this store first knew of it."""

    at: Moment
    learned: Moment
    price_per_hour: Money | None
    price_per_gpu_hour: Money | None


class SignalAt(Result):
    """The provider's score and the expected interruptions per hour from ``at``; null where it reports none."""

    at: Moment
    score: Figure | None
    interruption_rate: Figure | None


class PriceSeries(PricedMachine):
    """The prices of one pool from one source, in USD an hour. ``ended``: since when it is no longer offered.
    ``available_part``: share of the period in which the provider reported the capacity as available. ``as_of``: when
    its source last told of it; older than ``max_age_seconds``, the price is stale."""

    as_of: Moment
    max_age_seconds: Seconds | None
    known_until: Moment
    ended: Moment | None
    first_price_per_hour: Money | None
    last_price_per_hour: Money | None
    lowest_price_per_hour: Money | None
    highest_price_per_hour: Money | None
    mean_price_per_hour: Money | None
    price_changes: int
    available_part: Figure | None
    prices: list[PriceAt]
    availability: list[AvailabilityPoint]
    signals: list[SignalAt]

    @classmethod
    def of(cls, history: PriceHistory) -> Self:
        prices, offer = history.known, history.offer
        return cls.from_parts(
            offer,
            history,
            max_age_seconds=offer.max_age,
            first_price_per_hour=prices[0] if prices else None,
            last_price_per_hour=prices[-1] if prices else None,
            lowest_price_per_hour=min(prices, default=None),
            highest_price_per_hour=max(prices, default=None),
            mean_price_per_hour=history.mean,
            price_changes=history.changes,
            prices=[
                PriceAt.from_parts(
                    point,
                    price_per_hour=point.price,
                    price_per_gpu_hour=point.price.share(1, offer.count)
                    if point.price is not None and offer.count
                    else None,
                )
                for point in history.prices
            ],
        )

    def per_unit(self, price: Money | None) -> Money | None:
        """The price of a GPU-hour; of a machine-hour if the machine has no GPU."""
        return price if price is None or not self.count else price.share(1, self.count)

    def stretches(self, start: datetime) -> list[PricePeriod]:
        """The period from ``start`` divided at each price change, as `price_periods`."""
        return price_periods(((point.at, point.price_per_hour) for point in self.prices), start, self.known_until)


class PriceHistoryList(Result):
    """Price histories of a period, cheapest first. ``matching``: how many series there are, where ``series`` has only
    the first; ``unpriced``: how many of the first have no price in the period; ``began``: when the first poll of the
    store ended, if there is no series."""

    as_of: Moment
    since: Moment = Field(validation_alias="from", serialization_alias="from")
    until: Moment = Field(validation_alias="to", serialization_alias="to")
    matching: int
    unpriced: int
    began: Moment | None
    series: list[PriceSeries]

    @classmethod
    def of(cls, period: PriceHistories) -> Self:
        return cls.from_parts(period, as_of=period.now, since=period.start, until=period.end, series=period.histories)


PRICE_COLUMNS: Mapping[str, type] = {
    **dict.fromkeys(("provider", "region", "zone", "instance_type", "accelerator"), str),
    "count": int,
    "capacity_type": str,
    "term_months": int,
    "source": str,
    "reference": str,
    "from": datetime,
    "to": datetime,
    "usd_per_hour": Decimal,
    "usd_per_gpu_hour": Decimal,
}
"""The columns of exported prices; ``reference``: yes, or no for live ones."""


def price_rows(history: PriceHistoryList) -> Iterator[tuple[str | int | datetime | Decimal | None, ...]]:
    """A row of `PRICE_COLUMNS` for each price of each series."""
    for series in history.series:
        place = series.provider, series.region, series.zone, series.instance_type, series.accelerator, series.count
        kind = str(series.capacity_type), series.term_months, series.source, "yes" if series.reference else "no"
        for stretch in series.stretches(history.since):
            if stretch.price is not None:
                per_hour, per_gpu = stretch.price, series.per_unit(stretch.price) if series.count else None
                prices = [None if price is None else Decimal(price.micros).scaleb(-6) for price in (per_hour, per_gpu)]
                yield *place, *kind, stretch.start, stretch.end, *prices


class ImportedPrices(Result):
    """An import of a price catalog. ``as_of_from``: whether the date is the file's or the option's; ``samples``: one
    detail for each reason of a skipped row; ``meant``: a suggestion if the provider is new and its name resembles a
    known one, else empty."""

    provider: str
    file: Path
    layout: str
    as_of: Moment
    as_of_from: Literal["file", "option"]
    age_seconds: Seconds
    sources: list[str]
    offers_seen: int
    offers_changed: int
    offers_stale: int
    offers_suspicious: int
    rows_skipped: dict[str, int]
    samples: dict[str, str]
    meant: str
    seconds: Seconds
