"""Limits of wrong tokens per address, of requests per token, and of uploads per person."""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from broker.agent.store import ObjectFolder
from broker.core.access.api_tokens import digest_of
from broker.core.errors import InvalidInput, Throttled
from broker.core.values.units import print_size


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
        with self._lock:
            self._right.pop(digest_of(text), None)
            self._wrong.setdefault(address, deque(maxlen=self._most)).append(self._monotonic())
            self._wrong.move_to_end(address)
            _forget(self._wrong, self._remembered)

    def right(self, text: str) -> None:
        with self._lock:
            self._right[digest_of(text)] = None
            self._right.move_to_end(digest_of(text))
            _forget(self._right, self._remembered)


def _forget(memory: OrderedDict[str, Any], limit: int) -> None:
    while len(memory) > limit:
        memory.popitem(last=False)


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
        interval = 60.0 / self._per_minute
        with self._lock:
            now = self._monotonic()
            left, at = self._left.pop(token, (float(self._per_minute), now))
            left = min(left + (now - at) / interval, float(self._per_minute))
            allowed = left >= 1.0
            self._left[token] = (left - 1.0 if allowed else left, now)
            _forget(self._left, self._remembered)
        if not allowed:
            raise TooManyRequests((1.0 - left) * interval, self._per_minute)


_RECOUNT_AFTER = 600.0  # seconds until a pool is counted again, with uploads through other replicas and deletions


class UploadQuotaReached(InvalidInput):
    """A person's uploads would exceed the total that is allowed."""


class UploadQuota:
    """Counts the bytes in each person's pool. Thread-safe; counts per process. ``monotonic``: the clock, in seconds."""

    def __init__(self, max_bytes: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most = max_bytes
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._used: dict[str, tuple[int, float]] = {}

    @contextmanager
    def taken(self, person: str, pool: ObjectFolder, size: int) -> Iterator[None]:
        """Count ``size`` more bytes; they are subtracted again if the block fails. Raises `UploadQuotaReached`,
        `StoreTrouble`."""
        self._counted(person, pool)
        self._add(person, size)
        try:
            yield
        except BaseException:
            self._add(person, -size)
            raise

    def _counted(self, person: str, pool: ObjectFolder) -> None:
        with self._lock:
            cached = self._used.get(person)
        if cached is not None and self._monotonic() - cached[1] < _RECOUNT_AFTER:
            return
        total = sum(pool.sizes("").values())
        with self._lock:
            self._used[person] = total, self._monotonic()

    def _add(self, person: str, size: int) -> None:
        with self._lock:
            used, at = self._used[person]
            if size > 0 and used + size > self._most:
                raise UploadQuotaReached(
                    f"{person} has uploaded {print_size(used)} of at most {print_size(self._most)}",
                    hint="put large data into a bucket and mount it; an administrator sets `max_uploads` under [serve]",
                )
            self._used[person] = used + size, at
