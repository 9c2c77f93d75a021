"""Results that are the same for all viewers of the page, computed once for all of them."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from broker.app.access.callers import Caller
from broker.app.wiring import Broker
from broker.core.actors import EntryPoint

T = TypeVar("T")

# A result stays valid for `_VALIDITY_FACTOR` times the seconds that its computation took, so that computing takes at
# most a twentieth of the time; at most `_LONGEST` seconds.
_VALIDITY_FACTOR, _LONGEST = 20.0, 30.0
_MIN_DURATION = 0.05  # seconds; a result that takes less is computed for each viewer and is always current
_MAX_RESULTS = 32  # results


@dataclass(slots=True)
class _SharedResult:
    """The result of one key. ``lock``: held by the thread that computes it; ``began``: the start of its computation;
    ``until``: from then on it is computed again. Seconds of the process's monotonic clock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    result: Any = None
    began: float = -inf
    until: float = -inf


class SharedResults:
    """The newest results by key. Thread-safe: of several callers at the same time, one computes the result, and the
    others wait for it. ``monotonic``: the clock, in seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, _SharedResult] = OrderedDict()

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The result of ``compute``, or an earlier one with the same key. Callers must not modify it. Raises what
        ``compute`` raises; errors are not stored."""
        called_at = self._monotonic()
        with self._lock:
            shared = self._results.setdefault(key, _SharedResult())
            self._results.move_to_end(key)
            while len(self._results) > _MAX_RESULTS:
                self._results.popitem(last=False)
        with shared.lock:
            began = self._monotonic()
            if began < shared.until or shared.began >= called_at:  # valid, or begun during the call
                cached: T = shared.result
                return cached
            fresh_result = compute()
            ended = self._monotonic()
            used = min((ended - began) * _VALIDITY_FACTOR, _LONGEST) if ended - began >= _MIN_DURATION else 0.0
            shared.result, shared.began, shared.until = fresh_result, began, ended + used
            return fresh_result

    def forget(self, key: Hashable) -> None:
        """Compute the result anew next time, because somebody changed what it is made of."""
        with self._lock:
            self._results.pop(key, None)


_of_brokers: WeakKeyDictionary[Broker, SharedResults] = WeakKeyDictionary()
_making = threading.Lock()


def share_result(by: Caller, key: Hashable, compute: Callable[[], T]) -> T:
    """The result of ``compute``; for the page a shared one. For the API it is computed each time, because programs read
    what they have just changed.

    ``key``: everything that the result depends on, except the store's content. The result must not depend on the
    caller; what the caller may not see must be removed from it afterwards.
    """
    return compute() if by.actor.origin is not EntryPoint.PAGE else _results(by).get(key, compute)


def forget_result(by: Caller, key: Hashable) -> None:
    """Let `share_result` compute this result anew, in this process."""
    _results(by).forget(key)


def _results(by: Caller) -> SharedResults:
    with _making:
        return _of_brokers.setdefault(by.broker, SharedResults())
