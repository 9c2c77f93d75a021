"""Results that are the same for all viewers of the page, computed once for all of them."""

from __future__ import annotations

import logging
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

log = logging.getLogger(__name__)

T = TypeVar("T")

# A result is used for so many times the seconds that it took: computing each takes at most a twentieth of the time.
# For as long again the old result is shown while it is computed anew, so that viewers do not wait.
_TIMES, _LONGEST = 20.0, 30.0
_QUICK = 0.05  # seconds; a result that takes less is computed for each viewer, so that it is never old
_MOST = 32  # results


@dataclass(frozen=True, slots=True)
class _Kept:
    """``began``: when its computation began; ``until``: when it is computed anew; ``over``: when it is no longer shown
    meanwhile. Seconds of the process's clock."""

    result: Any
    began: float
    until: float
    over: float


@dataclass(slots=True)
class _Shared:
    """``lock``: held by whoever computes."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    kept: _Kept | None = None


def _in_a_thread(work: Callable[[], object]) -> None:
    threading.Thread(target=work, daemon=True).start()


class SharedResults:
    """The newest results by key, at most a minute old. Thread-safe: of several that ask at once, one computes, and the
    others get the last result, or wait for the first. ``monotonic``: seconds; ``later``: does work that nobody waits
    for."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        later: Callable[[Callable[[], object]], object] = _in_a_thread,
    ) -> None:
        self._monotonic, self._later = monotonic, later
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
        kept = shared.kept
        if kept is not None and asked < kept.over:
            if asked >= kept.until and shared.lock.acquire(blocking=False):
                try:
                    self._later(lambda: self._renew(shared, compute))
                except RuntimeError:  # no thread is to be had: whoever asks next tries again
                    shared.lock.release()
            known: T = kept.result
            return known
        with shared.lock:
            kept = shared.kept
            if kept is not None and (self._monotonic() < kept.until or kept.began >= asked):  # as new as one of now
                found: T = kept.result
                return found
            return self._computed(shared, compute)

    def _renew(self, shared: _Shared, compute: Callable[[], object]) -> None:
        """With ``shared.lock`` held, which is released."""
        try:
            self._computed(shared, compute)
        except Exception:  # a thread of its own: who asks once the last result is too old gets the error itself
            log.warning("a sum over all teams could not be computed", exc_info=True)
        finally:
            shared.lock.release()

    def _computed(self, shared: _Shared, compute: Callable[[], T]) -> T:
        began = self._monotonic()
        found = compute()
        ended = self._monotonic()
        used = min((ended - began) * _TIMES, _LONGEST) if ended - began >= _QUICK else 0.0
        shared.kept = _Kept(found, began, ended + used, ended + 2 * used)
        return found


_of_brokers: WeakKeyDictionary[Broker, SharedResults] = WeakKeyDictionary()
_making = threading.Lock()


def shared(by: Caller, key: Hashable, compute: Callable[[], T]) -> T:
    """Results that the page shows to all alike. The API computes them anew, since programs read what they just changed.

    ``key``: all that the result depends on, except the store's content. The result must not depend on who asks: what
    the caller may not see is left out afterwards.
    """
    if by.entry is not EntryPoint.PAGE:
        return compute()
    with _making:
        results = _of_brokers.setdefault(by.broker, SharedResults())
    return results.get(key, compute)
