"""Limits wrong tokens per address: beyond the limit, tokens are rejected without a query of the store."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from broker.core.access.api_tokens import digest_of


class WrongTokens:
    """Counts wrong tokens by address. Thread-safe; counts per process.

    After ``most`` wrong tokens ``within`` seconds, the address waits until the first of them is older than that. A
    token that was valid lately is still accepted, so that a guesser behind a shared address does not lock out others.
    The numbers of addresses and tokens remembered are limited. ``monotonic``: the clock, in seconds.
    """

    def __init__(
        self,
        *,
        most: int = 20,
        within: float = 60.0,
        remembered: int = 10_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._within = within
        self._remembered = remembered
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()
        self._right: OrderedDict[str, None] = OrderedDict()

    def wait(self, address: str, text: str) -> float:
        """Seconds for which a token from the address is rejected unchecked; 0: it is checked."""
        with self._lock:
            if digest_of(text) in self._right:
                return 0.0
            times = self._wrong.get(address)
            if times is None:
                return 0.0
            now = self._monotonic()
            while times and now - times[0] >= self._within:
                times.popleft()
            return self._within - (now - times[0]) if len(times) >= self._most else 0.0

    def wrong(self, address: str, text: str) -> None:
        """Record a wrong token."""
        with self._lock:
            self._right.pop(digest_of(text), None)
            self._wrong.setdefault(address, deque(maxlen=self._most)).append(self._monotonic())
            self._wrong.move_to_end(address)
            _forget(self._wrong, self._remembered)

    def right(self, text: str) -> None:
        """Record a valid token."""
        with self._lock:
            self._right[digest_of(text)] = None
            self._right.move_to_end(digest_of(text))
            _forget(self._right, self._remembered)


def _forget(memory: OrderedDict[str, Any], most: int) -> None:
    while len(memory) > most:
        memory.popitem(last=False)
