"""Calls engines outside the loop: a launch may take half a minute and must not delay other jobs.

No state has to survive the process: the purpose of a call is recorded before the call, and the call is idempotent on
its attempt's key. A process that ends abandons its calls; the next process asks the engine.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass
from enum import Enum
from errno import EDQUOT, ENOSPC
from typing import Any

from broker.core.errors import RetryLater


class Purpose(Enum):
    """The purpose of a call."""

    PREPARE = "prepare"
    LAUNCH = "launch"
    FIND = "find"
    END = "end"
    OBSERVE = "observe"


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What a call returned, or the error that it raised."""

    value: Any = None
    error: Exception | None = None


class EngineCalls:
    """Runs at most one call per key (such as an attempt's). For use by one thread.

    ``at_most``: concurrent calls per lane (such as an engine), each in its own thread; 0: each call runs in the
    caller's thread, for simulations.
    """

    def __init__(self, at_most: int = 0) -> None:
        self._at_most = at_most
        self._changed = threading.Condition()
        self._under_way: dict[str, str] = {}  # lanes, by key
        self._outcomes: dict[tuple[str, Purpose], CallOutcome] = {}
        self._news: set[str] = set()

    def make(self, lane: str, key: str, purpose: Purpose, call: Callable[[], Any]) -> CallOutcome | None:
        """The outcome of the key's call for that purpose; None if there is none yet.

        If no call for the key is running or unread and its lane is not full, starts ``call``.
        """
        if (outcome := self.taken(key, purpose)) is not None:
            return outcome
        with self._changed:
            if key in self._under_way:
                return None
            if self._at_most and Counter(self._under_way.values())[lane] >= self._at_most:
                return None
            self._under_way[key] = lane
        if not self._at_most:
            self._run(key, purpose, call)
            return self.taken(key, purpose)
        # A daemon: a call that hangs must not keep the process from ending.
        thread = threading.Thread(target=self._run, args=(key, purpose, call), name=f"{lane}-{key}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads
            with self._changed:
                del self._under_way[key]
        return None

    def _run(self, key: str, purpose: Purpose, call: Callable[[], Any]) -> None:
        outcome = None
        try:
            outcome = CallOutcome(call())
        except OSError as error:  # engines keep their records on this machine's disk, which may be full
            full = error.errno in (ENOSPC, EDQUOT)
            outcome = CallOutcome(error=RetryLater(str(error), where="this machine") if full else error)
        except Exception as error:  # noqa: BLE001  # the caller handles it with the outcome
            outcome = CallOutcome(error=error)
        finally:
            with self._changed:
                del self._under_way[key]
                if outcome is not None:
                    self._outcomes[key, purpose] = outcome
                    self._news.add(key)
                self._changed.notify_all()

    def taken(self, key: str, purpose: Purpose) -> CallOutcome | None:
        """The outcome of a finished call, returned once; None if there is none."""
        with self._changed:
            self._news.discard(key)
            return self._outcomes.pop((key, purpose), None)

    def under_way(self, key: str) -> bool:
        with self._changed:
            return key in self._under_way

    def ended(self, seconds: float) -> Set[str]:
        """The keys whose calls ended since the last call of this method and whose outcome was not taken.

        If there are none and calls are running, waits for the first one, for at most ``seconds`` (wall clock).
        """
        with self._changed:
            if not self._news and self._under_way:
                self._changed.wait(seconds)
            ended_keys, self._news = self._news, set()
            return ended_keys

    def forget(self, key: str) -> None:
        with self._changed:
            self._news.discard(key)
            for purpose in Purpose:
                self._outcomes.pop((key, purpose), None)

    def wait(self, keys: Collection[str], seconds: float) -> None:
        """Wait until no call for these keys is running, for at most ``seconds`` (wall clock)."""
        with self._changed:
            self._changed.wait_for(lambda: self._under_way.keys().isdisjoint(keys), timeout=seconds)

    def close(self, seconds: float) -> int:
        """Wait until no call is running, for at most ``seconds`` (wall clock); returns the number of calls still
        running."""
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, timeout=seconds)
            return len(self._under_way)
