"""Ending machines at their engines: when one is to be ended by force; an engine that fails to end it is asked again,
ever more slowly."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.core.errors import BrokerError
from broker.core.events.views import AttemptView
from broker.core.ports import Engine
from broker.reconciler.engine_calls import EngineCalls, Purpose
from broker.reconciler.interpret import must_be_removed

log = logging.getLogger(__name__)

# How long after a failed request the engine is asked again: 5 s, 10 s, 20 s, … up to 5 minutes.
_FIRST_RETRY, _SLOWEST_RETRY = timedelta(seconds=5), timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class _Failed:
    """How often in a row the engine failed to end a machine, and when it is asked again (UTC)."""

    times: int
    next_try: datetime


class Removals:
    """``engines``: the engine of a name. What failed is remembered by this process only: a new process asks at once."""

    def __init__(self, engines: Callable[[str], Engine], calls: EngineCalls | None = None) -> None:
        self._engines = engines
        self._calls = calls or EngineCalls()
        self._failed: dict[str, _Failed] = {}
        self._set_back: dict[str, datetime] = {}  # first looks since the clock showed less than when a stop was asked

    def due(self, attempt: AttemptView, now: datetime, grace: timedelta) -> bool:
        """Whether the attempt's machine is to be ended by force (`must_be_removed`). Where the clock was ahead when the
        stop was asked, and has been set back since, ``grace`` counts from the first look after that."""
        told = attempt.stop_requested_at
        if told is not None and told > now:
            told = self._set_back[attempt.key] = min(self._set_back.get(attempt.key, now), now)
        return must_be_removed(replace(attempt, stop_requested_at=told), now, grace)

    def remove(self, attempt: AttemptView, now: datetime) -> str | None:
        """Ask the engine to end the attempt's machine, unless it failed to a short while ago or is being asked. What
        the engine said against it; None where it took the request, or has not answered. Raises nothing."""
        handle = attempt.handle
        if handle is None:
            return None
        failed = self._failed.get(attempt.key)
        # A clock that was set back must not make it wait for the time that the clock showed before.
        if failed is not None and now < failed.next_try <= now + _SLOWEST_RETRY:
            return None
        try:
            engine = self._engines(attempt.engine)
            done = self._calls.make(attempt.engine, attempt.key, Purpose.END, lambda: engine.cancel(handle))
            if done is None:
                return None
            if done.error is not None:
                raise done.error
        except BrokerError as error:
            said = f"{error} ({error.hint})" if error.hint else str(error)
            log.warning("attempt %s: its machine cannot be ended: %s", attempt.key, said)
        except Exception as error:  # a defect of an engine must not stop the billing and the other steps of the job
            said = f"{type(error).__name__}: {error}"
            log.exception("attempt %s: its machine cannot be ended", attempt.key)
        else:
            self._failed.pop(attempt.key, None)
            return None
        times = failed.times + 1 if failed is not None else 1
        wait = min(_FIRST_RETRY * 2 ** min(times - 1, 16), _SLOWEST_RETRY)
        self._failed[attempt.key] = _Failed(times, now + wait)
        return said

    def forget(self, key: str) -> None:
        """The attempt's job is closed."""
        self._failed.pop(key, None)
        self._set_back.pop(key, None)
