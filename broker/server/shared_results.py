"""What is the same for everybody who looks at the page, computed once for all of them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from broker.app.wiring import Broker
from broker.core.actors import EntryPoint
from broker.server.callers import Caller

T = TypeVar("T")

# A result is used for so many times the seconds that it took: computing each takes at most a twentieth of the time.
_TIMES, _LONGEST = 20.0, 60.0
_QUICK = 0.05  # seconds; what takes less is computed for everybody anew, so that nobody sees what has changed since
_MOST = 32  # results


@dataclass(slots=True)
class _Shared:
    """``began``: when its computation began; ``until``: when it is computed anew. Seconds of the process's clock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    result: Any = None
    began: float = float("-inf")
    until: float = float("-inf")


class SharedResults:
    """The newest results by key, at most a minute old. Thread-safe: of several that ask at once, one computes, and the
    others wait for its result. ``monotonic``: seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Shared] = OrderedDict()

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The result of ``compute``, or one of before under the same key. Nobody may change it. Raises what ``compute``
        raises, which is not kept."""
        asked = self._monotonic()
        with self._lock:
            shared = self._kept.setdefault(key, _Shared())
            self._kept.move_to_end(key)
            while len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        with shared.lock:
            now = self._monotonic()
            if now < shared.until or shared.began >= asked:  # the latter: as new as what would be computed now
                found: T = shared.result
                return found
            found = compute()
            took = self._monotonic() - now
            kept = min(took * _TIMES, _LONGEST) if took >= _QUICK else 0.0
            shared.result, shared.began, shared.until = found, now, now + took + kept
            return found


_of_brokers: WeakKeyDictionary[Broker, SharedResults] = WeakKeyDictionary()
_making = threading.Lock()


def shared(by: Caller, key: Hashable, compute: Callable[[], T]) -> T:
    """What the page shows to everybody alike; the API computes it anew, as programs read what they have just changed.

    ``key``: all that the result depends on, except the store's content. The result must not depend on who asks: what
    the caller may not see is left out afterwards.
    """
    if by.entry is not EntryPoint.PAGE:
        return compute()
    with _making:
        results = _of_brokers.setdefault(by.broker, SharedResults())
    return results.get(key, compute)
