"""Limits the total uploads of each person, so that the run store keeps room for others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from broker.agent.store import ObjectFolder
from broker.core.errors import InvalidInput
from broker.core.values.units import print_size

_COUNTED_FOR = 600.0  # seconds until a pool is counted again, with uploads through other replicas and deletions


class UploadQuotaReached(InvalidInput):
    """A person's uploads would exceed the total that is allowed."""


class UploadQuota:
    """Counts the bytes in each person's pool. Thread-safe; counts per process. ``monotonic``: the clock, in seconds."""

    def __init__(self, most: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most = most
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
            known = self._used.get(person)
        if known is not None and self._monotonic() - known[1] < _COUNTED_FOR:
            return
        found = sum(pool.sizes("").values())
        with self._lock:
            self._used[person] = found, self._monotonic()

    def _add(self, person: str, size: int) -> None:
        with self._lock:
            used, at = self._used[person]
            if size > 0 and used + size > self._most:
                raise UploadQuotaReached(
                    f"{person} has uploaded {print_size(used)} of at most {print_size(self._most)}",
                    hint="put large data into a bucket and mount it; an administrator sets `max_uploads` under [serve]",
                )
            self._used[person] = used + size, at
