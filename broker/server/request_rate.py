"""Limits requests per token, so that a script in a loop does not slow the others down."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from broker.core.errors import Throttled


class TooManyRequests(Throttled):
    """A token has made more requests than it may."""

    def __init__(self, after: float, per_minute: int) -> None:
        super().__init__(
            f"this token may make {per_minute:,} requests a minute",
            after=after,
            hint="wait; an administrator sets `requests_per_minute` under [serve]",
        )


class RequestRate:
    """Counts requests by token. Thread-safe; counts per process. Each token may make ``per_minute`` requests at once;
    the allowance is refilled evenly over a minute. ``monotonic``: the clock, in seconds."""

    def __init__(
        self, per_minute: int, *, remembered: int = 10_000, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_minute = per_minute
        self._remembered = remembered
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, token: str) -> None:
        """Count one request of the token. Raises `TooManyRequests`; a rejected request is not counted."""
        each = 60.0 / self._per_minute
        with self._lock:
            now = self._monotonic()
            left, at = self._left.pop(token, (float(self._per_minute), now))
            left = min(left + (now - at) / each, float(self._per_minute))
            allowed = left >= 1.0
            self._left[token] = (left - 1.0 if allowed else left, now)
            while len(self._left) > self._remembered:
                self._left.popitem(last=False)
        if not allowed:
            raise TooManyRequests((1.0 - left) * each, self._per_minute)
