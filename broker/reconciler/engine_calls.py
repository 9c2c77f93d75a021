"""Calls of engines beside the loop: a launch may take half a minute, an answer ever so long, and nobody else waits.

Nothing is remembered here that could be lost: what a call is for was recorded before it is made, it carries the key of
its attempt, and it may be repeated. A process that ends leaves its calls behind; the next one asks the engine.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Purpose(Enum):
    """What a call is for."""

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
    """At most one call for each key (of an attempt, say) is under way. ``at_most``: calls of one lane (an engine, say)
    that may be under way, each in a thread of its own; 0: each call is made at once by the caller, as simulations need
    it. For one caller's thread."""

    def __init__(self, at_most: int = 0) -> None:
        self._at_most = at_most
        self._changed = threading.Condition()
        self._under_way: dict[str, str] = {}  # lanes, by key
        self._outcomes: dict[tuple[str, Purpose], CallOutcome] = {}
        self._news: set[str] = set()

    def make(self, lane: str, key: str, purpose: Purpose, call: Callable[[], Any]) -> CallOutcome | None:
        """The outcome of the key's call for that purpose: of the one made before, or of ``call``, which is made now
        unless one is under way for the key or its lane has too many. None: a later look has the outcome."""
        if (known := self.taken(key, purpose)) is not None:
            return known
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
        except RuntimeError:  # the system gives no more threads
            with self._changed:
                del self._under_way[key]
        return None

    def _run(self, key: str, purpose: Purpose, call: Callable[[], Any]) -> None:
        outcome = None
        try:
            outcome = CallOutcome(call())
        except Exception as error:  # noqa: BLE001  # whoever takes the outcome decides what it means
            outcome = CallOutcome(error=error)
        finally:
            with self._changed:
                del self._under_way[key]
                if outcome is not None:
                    self._outcomes[key, purpose] = outcome
                    self._news.add(key)
                self._changed.notify_all()

    def taken(self, key: str, purpose: Purpose) -> CallOutcome | None:
        """The outcome of a call that has ended, once; None where there is none."""
        with self._changed:
            self._news.discard(key)
            return self._outcomes.pop((key, purpose), None)

    def under_way(self, key: str) -> bool:
        """Whether a call for the key has not ended."""
        with self._changed:
            return key in self._under_way

    def ended(self, seconds: float) -> Set[str]:
        """The keys whose calls ended since this was last asked and whose outcome nobody took. Waits for the first
        of them where calls are under way, for at most so many seconds of the wall clock."""
        with self._changed:
            if not self._news and self._under_way:
                self._changed.wait(seconds)
            found, self._news = self._news, set()
            return found

    def forget(self, key: str) -> None:
        """Nobody takes an outcome for the key any more."""
        with self._changed:
            self._news.discard(key)
            for purpose in Purpose:
                self._outcomes.pop((key, purpose), None)

    def wait(self, keys: Collection[str], seconds: float) -> None:
        """Wait until no call for these keys is under way, for at most so many seconds of the wall clock."""
        with self._changed:
            self._changed.wait_for(lambda: self._under_way.keys().isdisjoint(keys), timeout=seconds)

    def close(self, seconds: float) -> int:
        """Wait until no call is under way, for at most so many seconds of the wall clock; how many are left behind."""
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, timeout=seconds)
            return len(self._under_way)
