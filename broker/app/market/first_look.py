"""The first poll: before prices are shown for the first time, sources that need no login and answer within seconds are
asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from broker.app.market.polling import ask_for
from broker.app.wiring import Broker
from broker.core.errors import StoreProblem
from broker.core.market.offers import SANDBOX
from broker.market.concurrent_poll import Watch, poll_concurrently
from broker.market.poller import PollResult

LONGEST = 8.0  # seconds of the wall clock; sources without an answer by then are asked again by the next poll
AGAIN = timedelta(hours=1)  # after a query that reached no provider


def sources_to_ask(broker: Broker) -> tuple[str, ...]:
    """The sources to ask first; none if a provider over the network has ever answered, if one was asked within the last
    hour, or with the setting ``offline``."""
    if broker.settings.offline or not broker.registries.quick_providers:
        return ()
    here = {*broker.registries.local_providers, SANDBOX}
    asked = [run for name, run in broker.store.last_polls().items() if name not in here]
    now = broker.clock.now()
    if any(run.seen or abs(now - run.finished) < AGAIN for run in asked):
        return ()
    return tuple(name for name in broker.registries.quick_providers if name in broker.registries.providers)


def look(broker: Broker, names: tuple[str, ...], *, watch: Watch | None = None) -> Iterator[PollResult]:
    """Ask these sources side by side, for `LONGEST` at most; a result as each is stored. Sends no request if the store
    cannot be written to."""
    try:
        broker.store.check_writable()
    except StoreProblem:
        return
    asks = [ask_for(broker, name) for name in names]
    short = [replace(ask, timeout=min(ask.timeout, LONGEST)) for ask in asks]
    yield from poll_concurrently(short, broker.store, broker.clock, watch=watch)
