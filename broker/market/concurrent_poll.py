"""Polling many providers at once: each in a thread of its own, with a time limit of its own, isolated from the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from broker.core.values.clock import Clock
from broker.market.poller import Ask, Hearing, PollResult, PollStore

_LOOK = 0.1  # seconds between checks for time-out and stop

Watch = Callable[[Sequence[Hearing]], None]
"""Told several times a second who is still being listened to."""


def poll_side_by_side(
    asks: Sequence[Ask],
    store: PollStore,
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
    done: SimpleQueue[Hearing] = SimpleQueue()
    waiting: list[Hearing] = []
    try:
        for ask in asks:
            hearing = Hearing(ask, clock)
            waiting.append(hearing)
            # Daemons: a provider that hangs must not keep the program from ending.
            threading.Thread(target=_listen, args=(hearing, done), name=f"poll {ask.name}", daemon=True).start()
        while waiting and not (stop is not None and stop.is_set()):
            if watch is not None:
                watch(waiting)
            for hearing in _over(waiting, done):
                waiting.remove(hearing)
                yield hearing.record(store)
    finally:
        for hearing in waiting:
            hearing.drop()


def _listen(hearing: Hearing, done: SimpleQueue[Hearing]) -> None:
    hearing.listen()
    done.put(hearing)


def _over(waiting: Sequence[Hearing], done: SimpleQueue[Hearing]) -> list[Hearing]:
    """The sessions that have ended; if none has, those past their time."""
    soonest = min(hearing.seconds_left for hearing in waiting)
    answered: list[Hearing] = []
    with suppress(Empty):
        answered.append(done.get(timeout=max(0.0, min(_LOOK, soonest))))
        while True:
            answered.append(done.get_nowait())
    if answered:
        return [hearing for hearing in answered if hearing in waiting]  # not who was cut short before
    late = [hearing for hearing in waiting if hearing.seconds_left <= 0]
    for hearing in late:
        hearing.time_out()
    return late
