"""The values the store gives back that are no one else's: poll runs, market history and policy versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from broker.core.market.offers import Availability, Offer
from broker.core.values.money import Money


class PollStatus(StrEnum):
    """How a poll ended. ``LOGIN_MISSING``: the provider was not asked, for want of a login; ``LOGIN_REFUSED``: a login
    was given, and it is wrong or has expired; ``EXTRA_MISSING``: an optional part of gpubroker that it needs is not
    installed; ``SUSPECT``: it ended well, and brought so little that what was known before is kept; ``ACCEPTED``: it
    was suspect, and a person said that it was right."""

    OK = "ok"
    FAILED = "failed"
    LOGIN_MISSING = "login_missing"
    LOGIN_REFUSED = "login_refused"
    EXTRA_MISSING = "extra_missing"
    SUSPECT = "suspect"
    ACCEPTED = "accepted"


@dataclass(frozen=True, slots=True)
class PollRun:
    """One poll of one provider (times UTC). ``complete``: it told everything there is, so what it did not tell of is
    gone: ``gone`` offers. ``changed``: how many prices or availabilities changed. ``skipped``: rows not understood, by
    reason; ``samples``: details of some of them. ``error`` is empty when all went well; ``hint`` says what to do about
    it."""

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


@dataclass(frozen=True, slots=True)
class Series:
    """One price series: what one source tells of one pool. ``offer``: its newest word; ``polled_by``: the adapter that
    tells of it; ``ended``: since when it is no longer told of (UTC), None while it is."""

    offer: Offer
    polled_by: str
    ended: datetime | None


@dataclass(frozen=True, slots=True)
class PastOffer:
    """An offer as it was at a moment (times UTC).

    ``offer`` has the price, availability, score and interruption rate of then; its ``as_of`` is the later of ``since``
    and ``seen``, and what does not change with the market (CPUs, billing, engine, …) is as last told. ``since``: when
    this price and availability came into force. ``learned``: when that was first known here. ``seen``: the end of the
    last complete poll of its provider by then; None when there was none, or it was pruned away.
    """

    offer: Offer
    since: datetime
    learned: datetime
    seen: datetime | None


@dataclass(frozen=True, slots=True)
class PricePoint:
    """The price (USD per hour and machine) from ``at`` until the next point; None: not known, or no longer offered.
    ``learned``: when it was first known here (UTC)."""

    at: datetime
    price: Money | None
    learned: datetime


@dataclass(frozen=True, slots=True)
class AvailabilityPoint:
    """The availability from ``at`` (UTC) until the next point; None: the provider no longer tells of the offer."""

    at: datetime
    availability: Availability | None


@dataclass(frozen=True, slots=True)
class SignalPoint:
    """What the provider said of the chances from ``at`` (UTC) until the next point: its score, and the expected
    interruptions per hour; None where it says nothing."""

    at: datetime
    score: float | None
    interruption_rate: float | None


@dataclass(frozen=True, slots=True)
class Freshness:
    """How fresh one provider's offers are. ``offers``: how many are current; ``stale``: how many of them are older than
    their limit; ``doubted``: how many are not believed; ``oldest`` and ``newest``: the dates of their prices (UTC);
    ``limit``: the shortest limit among them. ``last``: its newest poll; ``last_success``: the end of the newest that
    went well."""

    provider: str
    offers: int
    stale: int
    oldest: datetime | None
    newest: datetime | None
    limit: timedelta | None
    last: PollRun | None
    last_success: datetime | None
    doubted: int = 0


@dataclass(frozen=True, slots=True)
class AcceptedDoubts:
    """What a person accepted. ``ended``: missing offers that are taken for gone; ``believed``: offers whose price is
    believed from now on; ``number``: of the acceptance on record."""

    number: int
    provider: str
    ended: int
    believed: int
    by: str


@dataclass(frozen=True, slots=True)
class PrunedPrices:
    """What a pruning dropped, or would drop: changes of prices, of scores and rates, and poll runs. ``protected``:
    price changes before the cut-off that are kept because a launched attempt refers to them."""

    prices: int
    signals: int
    polls: int
    protected: int


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """One activation of a policy set: which files (name → text), when (UTC), by whom. Numbers count up from 1; the
    highest is the active one. ``sha256`` is over names and texts, so equal sets are recognised."""

    number: int
    activated_at: datetime
    by: str
    sha256: str
    files: Mapping[str, str]
    note: str = ""
