"""Polls continuously: each provider at its own interval, with APScheduler."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from broker.core.errors import BrokerError, MissingExtra
from broker.core.values.clock import Clock
from broker.market.concurrent_poll import poll_concurrently
from broker.market.poller import PollRequest, PollResult

if TYPE_CHECKING:
    from broker.store.store import Store

log = logging.getLogger(__name__)

_LOOK = 0.5  # seconds between checks for a stop
_JITTER = 0.1  # share of the interval; spreads the polls of brokers that started together


def check_installed() -> None:
    """Raises `MissingExtra` without APScheduler."""
    try:
        import apscheduler  # noqa: F401  # only whether it is there
    except ModuleNotFoundError as error:
        raise MissingExtra("serve", "polling on a schedule") from error


def run_schedule(
    due: Mapping[str, timedelta],
    ask: Callable[[str], PollRequest],
    every: Callable[[str], timedelta],
    store: Store,
    clock: Clock,
    *,
    stop: threading.Event,
    still_leading: Callable[[], bool],
    tell: Callable[[PollResult], None],
) -> None:
    """Poll until ``stop`` is set or the lead is lost; polls that run then are dropped, unless they are being stored.

    ``due``: wall-clock time until each provider's first poll; ``every``: the time between its polls, computed again
    after each. Polls of one provider never overlap; missed polls (after a sleep, or a slow poll) are replaced by one. A
    store error is logged, and the next poll tries again.
    """
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler
    from apscheduler.triggers.interval import IntervalTrigger

    def trigger(each: timedelta) -> IntervalTrigger:
        seconds = each.total_seconds()
        return IntervalTrigger(seconds=seconds, jitter=seconds * _JITTER, timezone=UTC)

    def poll_one(name: str) -> None:
        try:
            for result in poll_concurrently([ask(name)], store, clock, stop=halt):
                tell(result)
            now_every = every(name)
        except BrokerError as error:
            log.warning("%s: not polled: %s (%s)", name, error, error.hint)
            return
        if now_every != paces[name] and not halt.is_set():
            paces[name] = now_every
            scheduler.reschedule_job(name, trigger=trigger(now_every))

    halt = threading.Event()
    paces = {name: every(name) for name in due}
    scheduler = BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(max(len(due), 1))},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        timezone=UTC,
    )
    for name, wait in due.items():
        scheduler.add_job(poll_one, trigger(paces[name]), args=(name,), id=name, next_run_time=datetime.now(UTC) + wait)
    scheduler.start()
    try:
        while not stop.wait(_LOOK) and still_leading():
            pass
    finally:
        halt.set()
        scheduler.shutdown(wait=True)
