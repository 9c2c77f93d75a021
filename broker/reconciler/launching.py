"""Turns a requested attempt into a machine, or records that there is none; `Removals` ends machines.

The engine is asked whether it knows the attempt, the run folder is prepared, the launch is judged and then made. The
rules in force are checked again right before the call. Slow calls run outside the loop (`EngineCalls`), so each step
here continues after a finished call or postpones the job to a later visit.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from broker.agent.masking import Mask
from broker.core.errors import (
    AskAPerson,
    BrokerError,
    GiveUp,
    OwnerOnly,
    RetryLater,
    SecretsAbsent,
    Throttled,
    TryAnotherOffer,
)
from broker.core.events import events as ev
from broker.core.events.events import EventBody
from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.events.wait_reasons import LaunchTrouble, OwnerMustStart, SecretsMissing, WaitReason
from broker.core.ports import Engine, Launch
from broker.reconciler.admission.launch_check import LaunchCheck, Objection, Ruling
from broker.reconciler.controller import (
    Controller,
    ControllerResult,
    DecideAnew,
    JobContext,
    NextLook,
    RetryReason,
    TryLater,
    isolate_errors,
)
from broker.reconciler.engine_calls import CallOutcome, Purpose
from broker.reconciler.interpret import needs_removal
from broker.reconciler.leases import Leases, stop_lease
from broker.reconciler.news_recorder import NewsRecorder
from broker.reconciler.ports import ReconcilerPorts
from broker.store.store import append_if

log = logging.getLogger(__name__)

Secrets = Callable[[JobView], Mapping[str, str]]


def _hide_secrets(error: Exception, mask: Mask) -> Exception:
    """The same error: engines repeat what they were given, and the error is recorded and logged."""
    if isinstance(error, BrokerError):
        error.message, error.hint = mask.text(error.message), mask.text(error.hint)
        return error
    text = str(error)
    return error if mask.text(text) == text else RuntimeError(f"{type(error).__name__}: {mask.text(text)}")


class Launching(Controller):
    """Launches the attempt concerned, or abandons it.

    ``secrets``: returns the secrets for a launch of the job. ``patience``: how long an engine may postpone a launch, in
    broker time. ``recording``: receives the launches.
    """

    def __init__(
        self,
        ports: ReconcilerPorts,
        leases: Leases,
        check: LaunchCheck,
        secrets: Secrets,
        patience: timedelta,
        recording: NewsRecorder,
    ) -> None:
        self._ports = ports
        self._recording = recording
        self._leases = leases
        self._check = check
        self._secrets = secrets
        self._patience = patience
        self._abandoned: dict[str, tuple[Cause, str]] = {}

    def goes_by(self, about: JobContext) -> str | None:
        """Why the attempt is to be abandoned, if it is."""
        return None if about.attempt is None else str(about.cause)

    def reconcile(self, about: JobContext) -> ControllerResult:
        view, attempt, cause = about.view, about.attempt, about.cause
        assert attempt is not None, "a job without an attempt gets no such step"
        changed = self._submit(view, attempt) if cause is None else self._abandon(view, attempt, cause)
        return DecideAnew() if changed else NextLook()

    def _submit(self, view: JobView, attempt: AttemptView) -> bool:
        """Find the attempt at its engine, or launch it if the rules in force still allow it. If the engine cannot be
        queried, the attempt does not end: an earlier process may have launched it."""
        if (abandoned := self._abandoned.get(attempt.key)) is not None:
            return self._abandon(view, attempt, *abandoned)
        if (finished := self._ports.calls.taken(attempt.key, Purpose.LAUNCH)) is not None:
            return self._record_outcome(view, attempt, finished)
        if self._ports.calls.under_way(attempt.key):
            return False
        try:
            engine = self._ports.engines(attempt.engine)
            preparation = self._prepare(view, attempt, engine)
            if preparation is None:
                return False
            if preparation.value is not None:
                return self._note_launch(view, attempt, preparation.value)
            secrets = self._secrets(view)
            ruling = self._check(view, attempt)  # last: nothing slow may happen between this and the launch
        except BrokerError as error:
            return self._delay(view, attempt, error)
        if isinstance(ruling, Objection):
            return self._abandon(view, attempt, ruling.cause, ruling.why)
        if ruling is Ruling.LOOK_AGAIN:
            return True
        folder = self._ports.mailbox.url(view, attempt)
        reservations = self._ports.reservations(attempt.placement.offer)
        launch = Launch(attempt.key, view.job, attempt.placement, folder, secrets, self._ports.store_id, reservations)

        def make() -> str | None:
            try:
                return engine.submit(launch) if self._check.holds(view, attempt) else None
            except Exception as error:  # noqa: BLE001 (the same error, without secrets)
                raise _hide_secrets(error, Mask(secrets.values())) from None

        outcome = self._ports.calls.make(attempt.engine, attempt.key, Purpose.LAUNCH, make)
        return outcome is not None and self._record_outcome(view, attempt, outcome)

    def _prepare(self, view: JobView, attempt: AttemptView, engine: Engine) -> CallOutcome | None:
        """The handle of an attempt that the engine already knows; otherwise writes its run folder.

        None while that call runs. Raises its error.
        """
        lease = self._leases.granted(view, attempt, self._ports.clock.now())

        def prepare() -> str | None:
            handle = engine.find(attempt.key)
            if handle is None:
                self._ports.mailbox.prepare(view, attempt, lease)
            return handle

        preparation = self._ports.calls.make(attempt.engine, attempt.key, Purpose.PREPARE, prepare)
        if preparation is not None and preparation.error is not None:
            raise preparation.error
        return preparation

    def _record_outcome(self, view: JobView, attempt: AttemptView, outcome: CallOutcome) -> bool:
        """Record the outcome of the call.

        Without a handle and an error, the call was not made: the judgment was no longer valid. An engine that fails
        may have launched the attempt all the same, so no error ends it before the engine was asked (`_abandon`).
        """
        match outcome.error:
            case None if outcome.value is None:
                return False
            case None:
                return self._note_launch(view, attempt, outcome.value)
            case Throttled() as error:  # the service has no room for a while: the request expires, not the patience
                return self._delay(view, attempt, error)
            case RetryLater() as error if self._ports.clock.now() - attempt.requested_at <= self._patience:
                return self._delay(view, attempt, error)
            case TryAnotherOffer() as error:
                cause, evidence = Cause.NO_CAPACITY, error.with_hint
            case (AskAPerson() | GiveUp()) as error:
                cause, evidence = Cause.LAUNCH_REFUSED, error.with_hint
            case RetryLater() as error:
                cause, evidence = Cause.LAUNCH_FAILED, error.with_hint
            case error:
                log.error("job %s, attempt %s: its launch", view.id, attempt.number, exc_info=error)
                cause, evidence = Cause.LAUNCH_FAILED, f"{type(error).__name__}: {error}"
        return self._abandon(view, attempt, cause, evidence)

    def _abandon(self, view: JobView, attempt: AttemptView, cause: Cause, evidence: str = "never launched") -> bool:
        """Abandon a request, unless its engine knows it: from before a crash, or from a call that failed afterwards."""
        finished = self._ports.calls.taken(attempt.key, Purpose.LAUNCH)
        if finished is not None and finished.value is not None:
            return self._append(view, (attempt.number, ev.Launched(handle=finished.value)))
        if self._ports.calls.under_way(attempt.key):  # it cannot be cancelled, but its node can be stopped
            if view.cancel_requested:
                self._withdraw(view, attempt, cause)
            return False
        self._abandoned[attempt.key] = cause, evidence
        try:
            engine = self._ports.engines(attempt.engine)
            lookup = self._ports.calls.make(
                attempt.engine, attempt.key, Purpose.FIND, lambda: self._find(engine, view, attempt, cause)
            )
            if lookup is None:
                return False
            self._abandoned.pop(attempt.key)
            if lookup.error is not None:
                raise lookup.error
        except BrokerError as error:
            self._abandoned.pop(attempt.key, None)
            if view.cancel_requested:  # a machine of an earlier process stops without its engine
                self._withdraw(view, attempt, cause)
            return self._delay(view, attempt, error)
        if lookup.value is not None:
            return self._append(view, (attempt.number, ev.Launched(handle=lookup.value)))
        return self._append(view, (attempt.number, ev.AttemptEnded(cause=cause, evidence=evidence)))

    def forget(self, key: str) -> None:
        self._abandoned.pop(key, None)

    def _find(self, engine: Engine, view: JobView, attempt: AttemptView, cause: Cause) -> str | None:
        handle = engine.find(attempt.key)
        if handle is None:
            # If a machine of the attempt still comes up, this tells it to stop.
            with isolate_errors(f"job {view.id}, attempt {attempt.number}: no stop request could be left for it"):
                self._ports.mailbox.prepare(view, attempt, stop_lease(attempt, cause))
        return handle

    def _withdraw(self, view: JobView, attempt: AttemptView, cause: Cause) -> None:
        with isolate_errors(f"job {view.id}, attempt {attempt.number}: its lease"):
            self._leases.withdraw(view, attempt, self._ports.clock.now(), cause)

    def _delay(self, view: JobView, attempt: AttemptView, error: BrokerError) -> bool:
        """Try again with the next tick; record the reason once."""
        log.warning("job %s, attempt %s: %s; trying again", view.id, attempt.number, error.with_hint)
        reason = _launch_wait_reason(error)
        if reason != view.waiting:
            self._append(view, (attempt.number, ev.LaunchDelayed(reason=reason)))
        return False

    def _note_launch(self, view: JobView, attempt: AttemptView, handle: str) -> bool:
        """Note the launch, to be recorded together with reports about other jobs.

        If the process ends before that, the engine still knows the attempt.
        """
        self._recording.note(view, [(self._ports.clock.now(), attempt.number, ev.Launched(handle=handle))])
        return False

    def _append(self, view: JobView, item: tuple[int, EventBody]) -> bool:
        append_if(self._ports.journal, view, [item], self._ports.clock.now())
        return True


def _launch_wait_reason(error: BrokerError) -> WaitReason:
    match error:
        case SecretsAbsent():
            return SecretsMissing(names=error.names, owner=error.owner, process_user=error.process_user)
        case OwnerOnly():
            return OwnerMustStart(owner=error.owner, process_user=error.process_user)
        case _:
            return LaunchTrouble(error=type(error).__name__, message=error.message, where=error.where, hint=error.hint)


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
