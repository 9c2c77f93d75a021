"""Values that only the store returns: poll runs, market history and policy versions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypedDict

from broker.core.market.cached_answers import CachedAnswer
from broker.core.market.market_judge import MarketJudge
from broker.core.market.offers import Availability, Offer
from broker.core.values.money import Money

CONVERTED = "converted"  # among a poll's samples: the rates of prices converted to dollars


class PollStatus(StrEnum):
    """The result of a poll. ``LOGIN_MISSING``: not polled, as no login is configured; ``LOGIN_REFUSED``: the configured
    login is wrong or has expired; ``EXTRA_MISSING``: a required optional part of gpubroker is not installed;
    ``SUSPECT``: no error, but so few offers that the earlier ones are kept; ``ACCEPTED``: it was suspect, and a person
    confirmed it; ``INCOMPLETE``: no error, but rows of unknown machines or accelerators were left out."""

    OK = "ok"
    FAILED = "failed"
    LOGIN_MISSING = "login_missing"
    LOGIN_REFUSED = "login_refused"
    EXTRA_MISSING = "extra_missing"
    SUSPECT = "suspect"
    ACCEPTED = "accepted"
    INCOMPLETE = "incomplete"

    @property
    def is_success(self) -> bool:
        """Whether the provider's answer was believed."""
        return self in (PollStatus.OK, PollStatus.ACCEPTED, PollStatus.INCOMPLETE)


SUCCESSES = tuple(status.value for status in PollStatus if status.is_success)


class PollDetails(TypedDict, total=False):
    """Further properties of a poll.

    ``complete``: missing offers are no longer current. ``status``: by default failed if there is an ``error``, else ok.
    ``keep_unchanged``: if false, the previous poll is deleted if it changed nothing and ended in the same way; for
    sources polled before each decision. ``speaks_of``: the moment to which the poll refers, if not its start, such as
    the date of a file: missing offers ended by then, unless they were reported later. ``skipped``: rows by reason;
    ``samples``: details of some of them, and `CONVERTED`. ``judge``: judges completeness and prices; what it does not
    believe is stored as suspicious. ``answers``: documents to store for later polls, unless this one is suspect.
    """

    skipped: Mapping[str, int] | None
    samples: Mapping[str, Sequence[str]] | None
    error: str
    hint: str
    complete: bool
    status: PollStatus | None
    keep_unchanged: bool
    speaks_of: datetime | None
    judge: MarketJudge | None
    answers: Mapping[str, CachedAnswer]


@dataclass(frozen=True, slots=True)
class PollRun:
    """One poll of one provider.

    Times are UTC. ``complete``: it reported all offers, so it ended the missing ones (``gone``: their number).
    ``changed``: the number of changed prices or availabilities. ``skipped``: the number of skipped rows by reason;
    ``samples``: details of some of them. ``error``: empty on success; ``hint``: advice on it.
    """

    provider: str
    started: datetime
    finished: datetime
    seen: int
    changed: int
    complete: bool
    skipped: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    status: PollStatus = PollStatus.OK
    hint: str = ""
    gone: int = 0
    samples: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def converted(self) -> Sequence[str]:
        """The rates at which prices in other currencies were converted, with their dates; empty if none was."""
        return self.samples.get(CONVERTED, ())


@dataclass(frozen=True, slots=True)
class Series:
    """One price series: the offers of one source for one pool.

    ``offer``: the newest; ``polled_by``: the adapter that reports it; ``ended``: since when it is no longer reported
    (UTC), None while it is reported.
    """

    offer: Offer
    polled_by: str
    ended: datetime | None


@dataclass(frozen=True, slots=True)
class PricePoint:
    """The price (USD per hour and machine) from ``at`` (UTC) until the next point; None: unknown, or no longer offered.
    ``learned``: when it became known here (UTC)."""

    at: datetime
    price: Money | None
    learned: datetime


@dataclass(frozen=True, slots=True)
class AvailabilityPoint:
    """The availability from ``at`` (UTC) until the next point; None: the provider no longer reports the offer."""

    at: datetime
    availability: Availability | None


@dataclass(frozen=True, slots=True)
class SignalPoint:
    """The provider's score and expected interruptions per hour from ``at`` (UTC) until the next point; None if not
    reported.
    """

    at: datetime
    score: float | None
    interruption_rate: float | None


@dataclass(frozen=True, slots=True)
class Freshness:
    """The freshness of one provider's offers. ``offers``: the number of current ones; ``stale``: of those older than
    their limit; ``suspicious``: of suspicious ones; ``oldest`` and ``newest``: dates of prices (UTC); ``limit``: the
    shortest age limit. ``last``: the newest poll; ``last_success``: the end of the newest successful one (UTC)."""

    provider: str
    offers: int
    stale: int
    oldest: datetime | None
    newest: datetime | None
    limit: timedelta | None
    last: PollRun | None
    last_success: datetime | None
    suspicious: int = 0


@dataclass(frozen=True, slots=True)
class AcceptedPrices:
    """The prices of a provider that a person accepted. ``missing_removed``: offers missing from a suspect poll, now
    taken for gone; ``prices_believed``: odd prices that jobs may now start on; ``number``: of the acceptance on record.
    """

    number: int
    provider: str
    accepted_by: str
    missing_removed: int
    prices_believed: int


@dataclass(frozen=True, slots=True)
class PrunedPriceHistory:
    """The numbers of rows from before a time that a pruning deleted, or would delete with ``dry_run``: changes of
    prices, of scores and rates, and poll runs. ``protected``: older price changes that launched attempts refer to."""

    before: datetime
    dry_run: bool
    price_changes: int
    signal_changes: int
    poll_runs: int
    protected: int


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """One activation of a policy set: files (name → text), time (UTC), person.

    Numbers increase from 1; the highest is active. ``sha256``: of names and texts, to recognize equal sets.
    """

    number: int
    activated_at: datetime
    by: str
    sha256: str
    files: Mapping[str, str]
    note: str = ""
