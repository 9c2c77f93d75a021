"""Polling: one provider's answer into the store, as one poll run. A provider that fails keeps what it had."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from broker.core.clock import Clock
from broker.core.errors import BrokerError, NoLogin
from broker.core.offers import Offer, OfferQuery, SkippedRow
from broker.core.ports import Provider


@dataclass(frozen=True, slots=True)
class PollResult:
    """What one poll brought. ``error`` is empty when the provider answered to the end; ``no_login``: it was not asked,
    for want of any login to it."""

    provider: str
    started: datetime
    finished: datetime
    offers_seen: int
    offers_changed: int
    rows_skipped: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    hint: str = ""
    no_login: bool = False

    @property
    def ok(self) -> bool:
        return not self.error


class PollStore(Protocol):
    """What a poll writes to."""

    def record_poll(
        self,
        provider: str,
        *,
        started: datetime,
        finished: datetime,
        offers: Iterable[Offer],
        skipped: Mapping[str, int],
        error: str,
        complete: bool,
    ) -> int:
        """Store what was seen; returns how many offers changed. With ``complete``, offers not seen are no longer
        current."""
        ...


def poll(provider: Provider, store: PollStore, clock: Clock, query: OfferQuery | None = None) -> PollResult:
    """Ask one provider for everything and store the answer.

    Offers that arrived before an error are kept; the others stay as they were, and grow stale. Errors the provider
    classes (`BrokerError`) end up in the result, never as an exception.
    """
    started = clock.now()
    offers: list[Offer] = []
    skipped: Counter[str] = Counter()
    error = hint = ""
    no_login = False
    try:
        for row in provider.offers(query or OfferQuery()):
            if isinstance(row, SkippedRow):
                skipped[row.reason] += 1
            else:
                offers.append(row)
    except BrokerError as failure:
        error, hint, no_login = str(failure), failure.hint, isinstance(failure, NoLogin)
    finished = clock.now()
    changed = store.record_poll(
        provider.name,
        started=started,
        finished=finished,
        offers=offers,
        skipped=skipped,
        error=error,
        complete=not error and query is None,
    )
    return PollResult(provider.name, started, finished, len(offers), changed, dict(skipped), error, hint, no_login)
