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
from broker.reconciler.interpret import needs_removal
from broker.reconciler.isolation import isolate_errors
from broker.reconciler.ports import ReconcilerPorts

log = logging.getLogger(__name__)


class Removals(Controller):
    """Ends the machine of the attempt concerned. If its engine fails to, records that once in the job's events."""

    def __init__(self, ports: ReconcilerPorts) -> None:
        self._ports = ports
        self._set_back: dict[str, datetime] = {}  # by attempt: the first tick with a clock before the stop request

    def due(self, attempt: AttemptView, now: datetime, grace: timedelta) -> bool:
        """Whether the attempt's machine must be ended by force (`needs_removal`). If the clock was set back since the
        stop request, ``grace`` counts from the first tick after that."""
        requested_at = attempt.stop_requested_at
        if requested_at is not None and requested_at > now:
            requested_at = self._set_back[attempt.key] = min(self._set_back.get(attempt.key, now), now)
        return needs_removal(replace(attempt, stop_requested_at=requested_at), now, grace)

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
            outcome = ports.calls.make(attempt.engine, attempt.key, Purpose.END, lambda: engine.cancel(handle))
            if outcome is not None and outcome.error is not None:
                raise outcome.error
            return NextLook()
        except BrokerError as error:
            reason = error.with_hint
            log.warning("attempt %s: its machine cannot be ended: %s", attempt.key, reason)
        except Exception as error:  # a bug in an engine must not prevent billing and the job's other steps
            reason = f"{type(error).__name__}: {error}"
            log.exception("attempt %s: its machine cannot be ended", attempt.key)
        if not attempt.removal_delayed:
            with isolate_errors(f"attempt {attempt.key}"):
                self._tell(about, attempt.number, reason)
        return TryLater(RetryReason.NOT_ENDED)

    def _tell(self, context: JobContext, number: int, reason: str) -> None:
        with self._ports.journal.writing() as tx:
            current = tx.job(context.view.id)
            current_attempt = None if current is None or current.closed else current.attempt(number)
            if current_attempt is not None and not current_attempt.gone and not current_attempt.removal_delayed:
                tx.append(context.view.id, [(number, ev.RemovalDelayed(because=reason))], context.now)

    def forget(self, key: str) -> None:
        self._set_back.pop(key, None)
