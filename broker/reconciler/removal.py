"""Ends machines by their engines: decides when to use force, and records failures."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timedelta

from broker.core.errors import BrokerError
from broker.core.events import events as ev
from broker.core.events.views import AttemptView
from broker.reconciler.controller import Controller, ControllerResult, JobContext, NextLook, RetryReason, TryLater
from broker.reconciler.engine_calls import Purpose
from broker.reconciler.interpret import must_be_removed
from broker.reconciler.isolation import isolated
from broker.reconciler.ports import ReconcilerPorts

log = logging.getLogger(__name__)


class Removals(Controller):
    """Ends the machine of the attempt concerned. If its engine fails to, records that once in the job's events."""

    def __init__(self, ports: ReconcilerPorts) -> None:
        self._ports = ports
        self._set_back: dict[str, datetime] = {}  # by attempt: the first tick with a clock before the stop request

    def due(self, attempt: AttemptView, now: datetime, grace: timedelta) -> bool:
        """Whether the attempt's machine must be ended by force (`must_be_removed`). If the clock was set back since the
        stop request, ``grace`` counts from the first tick after that."""
        told = attempt.stop_requested_at
        if told is not None and told > now:
            told = self._set_back[attempt.key] = min(self._set_back.get(attempt.key, now), now)
        return must_be_removed(replace(attempt, stop_requested_at=told), now, grace)

    def goes_by(self, about: JobContext) -> str | None:
        """The engine's name for the machine."""
        return about.attempt.handle if about.attempt is not None else None

    def reconcile(self, about: JobContext) -> ControllerResult:
        attempt = about.attempt
        assert attempt is not None, "a job without an attempt gets no such step"
        assert attempt.handle is not None, "a job without an attempt gets no such step"
        handle, ports = attempt.handle, self._ports
        try:
            engine = ports.engines(attempt.engine)
            done = ports.calls.make(attempt.engine, attempt.key, Purpose.END, lambda: engine.cancel(handle))
            if done is not None and done.error is not None:
                raise done.error
            return NextLook()
        except BrokerError as error:
            because = f"{error} ({error.hint})" if error.hint else str(error)
            log.warning("attempt %s: its machine cannot be ended: %s", attempt.key, because)
        except Exception as error:  # a bug in an engine must not prevent billing and the job's other steps
            because = f"{type(error).__name__}: {error}"
            log.exception("attempt %s: its machine cannot be ended", attempt.key)
        if not attempt.removal_delayed:
            with isolated(f"attempt {attempt.key}"):
                self._tell(about, attempt.number, because)
        return TryLater(RetryReason.NOT_ENDED)

    def _tell(self, about: JobContext, number: int, because: str) -> None:
        with self._ports.journal.writing() as tx:
            current = tx.job(about.view.id)
            known = None if current is None or current.closed else current.attempt(number)
            if known is not None and not known.gone and not known.removal_delayed:
                tx.append(about.view.id, [(number, ev.RemovalDelayed(because=because))], about.now)

    def forget(self, key: str) -> None:
        self._set_back.pop(key, None)
