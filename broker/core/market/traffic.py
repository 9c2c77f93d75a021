"""The bytes that a poll reads over the network: adapters count them, the poller reads the sum.

Counted are the bytes of answers as they come over the wire, where an adapter speaks HTTP itself; what an SDK reads is
not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock


@dataclass(slots=True)
class NetworkTraffic:
    """The bytes and the answers read so far."""

    bytes: int = 0
    answers: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def add(self, number: int) -> None:
        """One more answer of ``number`` bytes; from any thread."""
        with self._lock:
            self.bytes += number
            self.answers += 1


_TRAFFIC: ContextVar[NetworkTraffic | None] = ContextVar("traffic", default=None)


@contextmanager
def counted() -> Iterator[NetworkTraffic]:
    """Counts what is read in this thread, and in threads started with `in_thread`, until it ends."""
    traffic = NetworkTraffic()
    token = _TRAFFIC.set(traffic)
    try:
        yield traffic
    finally:
        _TRAFFIC.reset(token)


def count(number: int) -> None:
    """One more answer of ``number`` bytes; no effect outside of a count."""
    traffic = _TRAFFIC.get()
    if traffic is not None:
        traffic.add(number)


def in_thread() -> Callable[[], None]:
    """For a thread pool's ``initializer``: its threads count where this one does."""
    traffic = _TRAFFIC.get()

    def join() -> None:
        _TRAFFIC.set(traffic)

    return join
