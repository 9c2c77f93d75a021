"""Polls several providers at once: each in its own thread, with its own time-out, isolated from the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from broker.core.values.clock import Clock
from broker.market.poller import PollRequest, PollResult, PollSession

if TYPE_CHECKING:
    from broker.store.store import Store

_LOOK = 0.1  # seconds between checks for time-out and stop

Watch = Callable[[Sequence[PollSession]], None]
"""Called several times a second with the sessions that have not ended."""


def poll_concurrently(
    asks: Sequence[PollRequest],
    store: Store,
    clock: Clock,
    *,
    watch: Watch | None = None,
    stop: threading.Event | None = None,
) -> Iterator[PollResult]:
    """Poll all providers concurrently; yield each result once complete and stored, in order of completion.

    A provider past its time-out is cut short, and the offers received are kept. Leaving the iteration early, an
    exception (Ctrl-C) or ``stop`` end it: complete results are stored, others dropped. Writing happens in the caller's
    thread, one provider at a time. Raises `StoreProblem`.
    """
    done: SimpleQueue[PollSession] = SimpleQueue()
    waiting: list[PollSession] = []
    try:
        for ask in asks:
            session = PollSession(ask, clock)
            waiting.append(session)
            # Daemons: a provider that hangs must not keep the program from ending.
            threading.Thread(target=_listen, args=(session, done), name=f"poll {ask.name}", daemon=True).start()
        while waiting and not (stop is not None and stop.is_set()):
            if watch is not None:
                watch(waiting)
            for session in _over(waiting, done):
                waiting.remove(session)
                yield session.record(store)
    finally:
        for session in waiting:
            session.drop()


def _listen(session: PollSession, done: SimpleQueue[PollSession]) -> None:
    session.listen()
    done.put(session)


def _over(waiting: Sequence[PollSession], done: SimpleQueue[PollSession]) -> list[PollSession]:
    """The sessions that have ended; if none has, those past their time-out."""
    soonest = min(session.seconds_left for session in waiting)
    answered: list[PollSession] = []
    with suppress(Empty):
        answered.append(done.get(timeout=max(0.0, min(_LOOK, soonest))))
        while True:
            answered.append(done.get_nowait())
    if answered:
        return [session for session in answered if session in waiting]  # without those that had timed out before
    late = [session for session in waiting if session.seconds_left <= 0]
    for session in late:
        session.time_out()
    return late
