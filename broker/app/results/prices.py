"""The state of prices as results."""

from datetime import datetime, timedelta
from typing import Self

from pydantic import Field

from broker.app.results.values import Moment, Result, Seconds, is_none
from broker.market.poller import PollResult
from broker.store.records import CONVERTED, AcceptedDoubts, Freshness, PollStatus


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
    def of(cls, accepted: AcceptedDoubts) -> Self:
        return cls.from_parts(
            accepted, accepted_by=accepted.by, missing_removed=accepted.ended, prices_believed=accepted.believed
        )
