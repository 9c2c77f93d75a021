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

# A result stays valid for `_TIMES` times the seconds that its computation took, so that computing takes at most a
# twentieth of the time; at most `_LONGEST` seconds. For the same time again the old result is shown while it is
# computed again, so that viewers do not wait.
_TIMES, _LONGEST = 20.0, 30.0
_QUICK = 0.05  # seconds; a result that takes less is computed for each viewer and is always current
_MOST = 32  # results


@dataclass(frozen=True, slots=True)
class _Kept:
    """A result. ``began``: the start of its computation; ``until``: from then on it is computed again; ``over``: from
    then on it is not shown, even while it is computed again. Seconds of the process's monotonic clock."""

    result: Any
    began: float
    until: float
    over: float


@dataclass(slots=True)
class _Shared:
    """The result of one key. ``lock``: held by the thread that computes it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    kept: _Kept | None = None


def _in_a_thread(work: Callable[[], object]) -> None:
    threading.Thread(target=work, daemon=True).start()


class SharedResults:
    """The newest results by key, at most a minute old. Thread-safe: of several callers at the same time, one computes
    the result; the others get the previous result, or wait if there is none. ``monotonic``: the clock, in seconds;
    ``later``: runs work in the background."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        later: Callable[[Callable[[], object]], object] = _in_a_thread,
    ) -> None:
        self._monotonic, self._later = monotonic, later
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Shared] = OrderedDict()

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The result of ``compute``, or an earlier one with the same key. Callers must not modify it. Raises what
        ``compute`` raises; errors are not stored."""
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
                except RuntimeError:  # no thread can be started: the next caller tries again
                    shared.lock.release()
            known: T = kept.result
            return known
        with shared.lock:
            kept = shared.kept
            if kept is not None and (self._monotonic() < kept.until or kept.began >= asked):  # began during the call
                found: T = kept.result
                return found
            return self._computed(shared, compute)

    def _renew(self, shared: _Shared, compute: Callable[[], object]) -> None:
        """Compute the result again. The caller has acquired ``shared.lock``; it is released here."""
        try:
            self._computed(shared, compute)
        except Exception:  # in the background; a caller gets the error once the last result is too old
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
    """The result of ``compute``; for the page a shared one. For the API it is computed each time, because programs read
    what they have just changed.

    ``key``: everything that the result depends on, except the store's content. The result must not depend on the
    caller; what the caller may not see must be removed from it afterwards.
    """
    if by.entry is not EntryPoint.PAGE:
        return compute()
    with _making:
        results = _of_brokers.setdefault(by.broker, SharedResults())
    return results.get(key, compute)
