"""The bytes that a poll reads over the network: adapters count them, the poller reads the sum.

It counts the bytes of answers as they are transferred, if the adapter itself uses HTTP. What an SDK reads is not
counted.
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
        """Count one more answer of ``number`` bytes. Thread-safe."""
        with self._lock:
            self.bytes += number
            self.answers += 1


_TRAFFIC: ContextVar[NetworkTraffic | None] = ContextVar("traffic", default=None)


@contextmanager
def counted() -> Iterator[NetworkTraffic]:
    """Counts what is read within the block, in this thread and in threads that were started with `in_thread`."""
    traffic = NetworkTraffic()
    token = _TRAFFIC.set(traffic)
    try:
        yield traffic
    finally:
        _TRAFFIC.reset(token)


def count(number: int) -> None:
    """Count one more answer of ``number`` bytes; no effect outside of `counted`."""
    traffic = _TRAFFIC.get()
    if traffic is not None:
        traffic.add(number)


def in_thread() -> Callable[[], None]:
    """For a thread pool's ``initializer``: what its threads read is added to the count of this thread."""
    traffic = _TRAFFIC.get()

    def join() -> None:
        _TRAFFIC.set(traffic)

    return join
