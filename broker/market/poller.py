"""Polls one provider into the store, as one poll run. A provider that fails keeps its earlier offers."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from broker.core.errors import BrokerError, GiveUp, LoginMissing, MissingExtra, NoLogin, Unreachable
from broker.core.market import cached_answers
from broker.core.market.cached_answers import CachedAnswer, PollAnswers
from broker.core.market.market_judge import MarketJudge
from broker.core.market.offers import Offer, OfferQuery, SkippedRow
from broker.core.ports import HasConversions, Provider
from broker.core.values.clock import Clock
from broker.store.records import CONVERTED, PollStatus

if TYPE_CHECKING:
    from broker.store.store import Store

log = logging.getLogger(__name__)

_SAMPLES, _SAMPLE_LENGTH = 5, 200  # details kept for each reason to skip rows, and the maximum characters of each


@dataclass(frozen=True, slots=True)
class PollResult:
    """The result of one poll.

    ``error`` is empty if the provider answered completely; ``hint``: the advice for the error.

    ``cut_short``: the timeout passed; the request may still hang.
    """

    provider: str
    started: datetime
    finished: datetime
    offers_seen: int
    offers_changed: int
    rows_skipped: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    hint: str = ""
    status: PollStatus = PollStatus.OK
    cut_short: bool = False

    @property
    def ok(self) -> bool:
        return self.status is PollStatus.OK

    @property
    def failed(self) -> bool:
        """Whether the poll failed. A login or extra that was never set up is no failure."""
        return self.status in (PollStatus.FAILED, PollStatus.LOGIN_REFUSED, PollStatus.SUSPECT)


@dataclass(frozen=True, slots=True)
class PollRequest:
    """One provider to poll.

    ``make`` creates it, or raises its own `BrokerError`. ``timeout``: seconds (wall clock). ``max_age``: replaces the
    age limit of its offers. ``judge``: decides whether to believe the answer; None for local sources, which are always
    believed. ``kept``: documents of the provider that earlier polls stored.
    """

    name: str
    make: Callable[[], Provider]
    timeout: float
    max_age: timedelta | None = None
    judge: MarketJudge | None = None
    kept: Mapping[str, CachedAnswer] = field(default_factory=dict)


class PollSession:
    """One provider's answer as it arrives. One thread receives it; other threads may read its progress and end it at
    any time."""

    def __init__(self, request: PollRequest, clock: Clock) -> None:
        self.name = request.name
        self._ask = request
        self._clock = clock
        self._lock = threading.Lock()
        self._over = False
        self._cut_short = False
        self._failure: BrokerError | None = None
        self._offers: list[Offer] = []
        self._skipped: Counter[str] = Counter()
        self._samples: dict[str, list[str]] = {}
        self._answers = PollAnswers(request.kept)
        self.started = clock.now()
        self._ends = time.monotonic() + request.timeout

    @property
    def arrived(self) -> int:
        """Number of offers received so far."""
        return len(self._offers)

    @property
    def seconds_left(self) -> float:
        return self._ends - time.monotonic()

    def listen(self) -> None:
        """Receive the answer to its end or the timeout. Raises nothing: errors are in the result."""
        try:
            with cached_answers.provide_answers(self._answers):
                self._receive()
        except BrokerError as failure:
            self._end(failure)
        except Exception as bug:  # a bug in one adapter must not affect the others; the log has the traceback
            log.exception("%s: the adapter failed", self.name)
            self._end(GiveUp(f"the adapter failed: {type(bug).__name__}: {bug}", where=self.name, hint="report it"))

    def _receive(self) -> None:
        provider = self._ask.make()
        for row in provider.offers(OfferQuery()):
            with self._lock:
                if self._over:
                    return
                if isinstance(row, SkippedRow):
                    self._skipped[row.reason] += 1
                    self._keep_sample(row)
                else:
                    self._offers.append(row)
                    # Known before the first price, and stored even if the rest of the answer fails.
                    if CONVERTED not in self._samples and isinstance(provider, HasConversions):
                        self._samples[CONVERTED] = list(provider.conversions())

    def _keep_sample(self, row: SkippedRow) -> None:
        """Keep a few different details for each reason, so that skipped rows can be identified."""
        samples = self._samples.setdefault(row.reason, [])
        detail = row.detail if len(row.detail) <= _SAMPLE_LENGTH else f"{row.detail[:_SAMPLE_LENGTH]}…"
        if detail and len(samples) < _SAMPLES and detail not in samples:
            samples.append(detail)

    def time_out(self) -> None:
        """End it: its time is up."""
        self._cut_short = True
        note = "the offers received so far are kept" if self._offers else "no offer was received"
        self._end(
            Unreachable(
                f"not done after {self._ask.timeout:g} s; {note}",
                where=self.name,
                hint=f"if it is only slow, allow more: GPUBROKER_PRICES__{self.name.upper()}__TIMEOUT",
            )
        )

    def _end(self, failure: BrokerError) -> None:
        with self._lock:
            if not self._over:
                self._failure = failure
                self._over = True

    def drop(self) -> None:
        """End the poll and discard what arrived."""
        with self._lock:
            self._over = True
            self._offers = []

    def record(self, store: Store, *, keep_unchanged: bool = True) -> PollResult:
        """Store the answer once it has ended. Offers received before an error are kept; others stay and age. Raises
        `StoreProblem`.
        """
        with self._lock:
            self._over = True
            offers, self._offers = self._offers, []
        failure, finished = self._failure, self._clock.now()
        status, limit = _status(failure), self._ask.max_age
        if limit is not None:
            offers = [offer if offer.reference else replace(offer, max_age=limit) for offer in offers]
        error, hint = (str(failure), failure.hint) if failure else ("", "")
        run = store.record_poll(
            self.name,
            started=self.started,
            finished=finished,
            offers=offers,
            skipped=self._skipped,
            samples=self._samples,
            error=error,
            complete=failure is None,
            status=status,
            hint=hint,
            # A provider without a login fails every time; one record is enough.
            keep_unchanged=keep_unchanged and status in (PollStatus.OK, PollStatus.FAILED),
            judge=self._ask.judge,
            answers=dict(self._answers.read),
        )
        outcome = (run.seen, run.changed, run.skipped, run.error, run.hint, run.status)
        return PollResult(self.name, self.started, finished, *outcome, self._cut_short)


def _status(failure: BrokerError | None) -> PollStatus:
    match failure:
        case None:
            return PollStatus.OK
        case NoLogin():
            return PollStatus.LOGIN_MISSING
        case LoginMissing():
            return PollStatus.LOGIN_REFUSED
        case MissingExtra():
            return PollStatus.EXTRA_MISSING
        case _:
            return PollStatus.FAILED


def poll(
    provider: Provider,
    store: Store,
    clock: Clock,
    *,
    max_age: timedelta | None = None,
    keep_unchanged: bool = True,
) -> PollResult:
    """Poll one provider in this thread and store the answer. For local sources, which answer at once.

    The provider's errors are in the result. Raises `StoreProblem`.
    """
    session = PollSession(PollRequest(provider.name, lambda: provider, timeout=float("inf"), max_age=max_age), clock)
    session.listen()
    return session.record(store, keep_unchanged=keep_unchanged)


MIN_INTERVAL = timedelta(minutes=10)
MAX_INTERVAL = timedelta(hours=6)
_TIMES_WITHIN_LIMIT = 3


def interval(limit: timedelta | None, *, has_offers: bool) -> timedelta:
    """The time between two polls. ``limit``: the shortest age limit of the provider's offers, if any has one.

    Spot prices with a limit of an hour are polled every twenty minutes, list prices valid for days four times a day. A
    provider without offers (new, or unreachable) is polled often.
    """
    if not has_offers:
        return MIN_INTERVAL
    return MAX_INTERVAL if limit is None else min(max(limit / _TIMES_WITHIN_LIMIT, MIN_INTERVAL), MAX_INTERVAL)
