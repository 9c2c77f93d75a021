"""Polls several providers at once: each in its own thread, with its own timeout, isolated from the others; and
continuously: each at its own interval, with APScheduler.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from broker.core.errors import BrokerError, MissingExtra
from broker.core.values.clock import Clock
from broker.market.poller import PollRequest, PollResult, PollSession

if TYPE_CHECKING:
    from broker.store.store import Store


_CHECK_INTERVAL = 0.1  # seconds between checks for timeout and stop

Watch = Callable[[Sequence[PollSession]], None]
"""Called several times a second with the sessions that have not ended."""


def poll_concurrently(
    requests: Sequence[PollRequest],
    store: Store,
    clock: Clock,
    *,
    watch: Watch | None = None,
    stop: threading.Event | None = None,
) -> Iterator[PollResult]:
    """Poll all providers concurrently; yield each result once complete and stored, in order of completion.

    A provider past its timeout is cut short, and the offers received are kept. Leaving the iteration early, an
    exception (Ctrl-C) or ``stop`` end it: complete results are stored, others dropped. Writing happens in the caller's
    thread, one provider at a time. Raises `StoreProblem`.
    """
    finished: SimpleQueue[PollSession] = SimpleQueue()
    waiting: list[PollSession] = []
    try:
        for request in requests:
            session = PollSession(request, clock)
            waiting.append(session)
            # Daemon threads: a hanging provider must not block the exit.
            threading.Thread(target=_listen, args=(session, finished), name=f"poll {request.name}", daemon=True).start()
        while waiting and not (stop is not None and stop.is_set()):
            if watch is not None:
                watch(waiting)
            for session in _ended_sessions(waiting, finished):
                waiting.remove(session)
                yield session.record(store)
    finally:
        for session in waiting:
            session.drop()


def _listen(session: PollSession, finished: SimpleQueue[PollSession]) -> None:
    session.listen()
    finished.put(session)


def _ended_sessions(waiting: Sequence[PollSession], finished: SimpleQueue[PollSession]) -> list[PollSession]:
    """The sessions that have ended; if none has, those past their timeout."""
    first_timeout = min(session.seconds_left for session in waiting)
    answered: list[PollSession] = []
    with suppress(Empty):
        answered.append(finished.get(timeout=max(0.0, min(_CHECK_INTERVAL, first_timeout))))
        while True:
            answered.append(finished.get_nowait())
    if answered:
        return [session for session in answered if session in waiting]  # without those that had timed out before
    timed_out = [session for session in waiting if session.seconds_left <= 0]
    for session in timed_out:
        session.time_out()
    return timed_out


log = logging.getLogger(__name__)

_STOP_CHECK = 0.5  # seconds between checks for a stop
_JITTER = 0.1  # share of the interval; spreads the polls of brokers that started together


def check_installed() -> None:
    """Raises `MissingExtra` without APScheduler."""
    try:
        import apscheduler  # noqa: F401  # only whether it is there
    except ModuleNotFoundError as error:
        raise MissingExtra("serve", "polling on a schedule") from error


def run_schedule(
    first_delays: Mapping[str, timedelta],
    request_for: Callable[[str], PollRequest],
    interval_of: Callable[[str], timedelta],
    store: Store,
    clock: Clock,
    *,
    stop: threading.Event,
    still_leading: Callable[[], bool],
    report: Callable[[PollResult], None],
) -> None:
    """Poll until ``stop`` is set or leadership is lost; running polls are then dropped, unless they are being stored.

    ``first_delays``: wall-clock time until each provider's first poll; ``interval_of``: the time between its polls,
    computed again after each. Polls of one provider never overlap; missed polls (after a sleep, or a slow poll) are
    replaced by one. A store error is logged, and the next poll tries again.
    """
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler
    from apscheduler.triggers.interval import IntervalTrigger

    def trigger(interval: timedelta) -> IntervalTrigger:
        seconds = interval.total_seconds()
        return IntervalTrigger(seconds=seconds, jitter=seconds * _JITTER, timezone=UTC)

    def poll_one(name: str) -> None:
        try:
            for result in poll_concurrently([request_for(name)], store, clock, stop=halt):
                report(result)
            new_interval = interval_of(name)
        except BrokerError as error:
            log.warning("%s: not polled: %s (%s)", name, error, error.hint)
            return
        if new_interval != intervals[name] and not halt.is_set():
            intervals[name] = new_interval
            scheduler.reschedule_job(name, trigger=trigger(new_interval))

    halt = threading.Event()
    intervals = {name: interval_of(name) for name in first_delays}
    scheduler = BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(max(len(first_delays), 1))},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        timezone=UTC,
    )
    for name, wait in first_delays.items():
        scheduler.add_job(
            poll_one, trigger(intervals[name]), args=(name,), id=name, next_run_time=datetime.now(UTC) + wait
        )
    scheduler.start()
    try:
        while not stop.wait(_STOP_CHECK) and still_leading():
            pass
    finally:
        halt.set()
        scheduler.shutdown(wait=True)
