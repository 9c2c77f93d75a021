"""The state of prices as results."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Self

from pydantic import Field

from broker.app.results.values import Moment, Result, Seconds, is_none
from broker.market.poller import PollResult
from broker.store.records import CONVERTED, AcceptedDoubts, Freshness, PollStatus


class PolledProvider(Result):
    """The polls of one provider, and the age of its prices. ``error``: of the last poll, with what to do
    about it; null where it succeeded; ``failures`` and ``hint``: the same in parts, one for each region or cloud that
    failed. ``offers_doubted``: offers that are not believed, on which no job starts;
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
    offers_doubted: int
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
    def of(cls, fresh: Freshness, interval: timedelta, now: datetime) -> Self:
        """The provider must have been polled. ``interval``: between scheduled polls."""
        last = fresh.last
        assert last is not None
        return cls.from_parts(
            last,
            provider=fresh.provider,
            age_seconds=now - last.finished,
            last_success=fresh.last_success,
            success_age_seconds=None if fresh.last_success is None else now - fresh.last_success,
            seconds=last.finished - last.started,
            offers=fresh.offers,
            offers_stale=fresh.stale,
            offers_doubted=fresh.doubted,
            oldest_price=fresh.oldest,
            newest_price=fresh.newest,
            max_age_seconds=fresh.limit,
            interval_seconds=interval,
            offers_seen=last.seen,
            offers_changed=last.changed,
            rows_skipped=dict(last.skipped),
            skipped_samples={why: list(details) for why, details in last.samples.items() if why != CONVERTED},
            error=error_line(last.error, last.hint),
            failures=_failures(fresh.provider, last.error),
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


class AcceptedPrices(Result):
    """The prices of a provider that a person accepted. ``missing_removed``: offers missing from a suspect poll, now
    taken for gone; ``prices_believed``: odd prices that jobs may now start on; ``number``: of the acceptance on record.
    """

    number: int
    provider: str
    accepted_by: str
    missing_removed: int
    prices_believed: int

    @classmethod
    def of(cls, done: AcceptedDoubts) -> Self:
        return cls.from_parts(done, accepted_by=done.by, missing_removed=done.ended, prices_believed=done.believed)
