"""From a requested attempt to a machine, or to the record that there is none.

The engine is asked whether it knows the attempt, its run folder is prepared, the launch is judged, and only then made;
the rules in force are asked once more right before the call. All that may be slow is done beside the loop
(`EngineCalls`), so each step here either goes on from what has ended meanwhile or leaves the job for a later look.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta

from broker.core.errors import AskAPerson, BrokerError, GiveUp, OwnerOnly, RetryLater, SecretsAbsent, TryAnotherOffer
from broker.core.events import events as ev
from broker.core.events.events import EventBody
from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.events.wait_reasons import LaunchTrouble, OwnerMustStart, SecretsMissing, WaitReason
from broker.core.ports import Engine, Launch
from broker.ledger.journal import append_if
from broker.reconciler.admission.launch_check import LaunchCheck, Objection, Ruling
from broker.reconciler.controller import Controller, ControllerResult, DecideAnew, JobContext, NextLook
from broker.reconciler.engine_calls import CallOutcome, Purpose
from broker.reconciler.isolation import isolated
from broker.reconciler.leases import Leases
from broker.reconciler.ports import ReconcilerPorts
from broker.runfolder.mailbox import LeaseGrant

log = logging.getLogger(__name__)

Secrets = Callable[[JobView], Mapping[str, str]]


class Launching(Controller):
    """Launches the attempt in question, or lets it go. ``secrets``: what a launch of the job takes along. ``patience``:
    for how long an engine may put a launch off."""

    def __init__(
        self, ports: ReconcilerPorts, leases: Leases, check: LaunchCheck, secrets: Secrets, patience: timedelta
    ) -> None:
        self._ports = ports
        self._leases = leases
        self._check = check
        self._secrets = secrets
        self._patience = patience
        self._let_go: dict[str, tuple[Cause, str]] = {}

    def goes_by(self, about: JobContext) -> str | None:
        """Why the attempt is to be let go, if it is."""
        return None if about.attempt is None else str(about.cause)

    def reconcile(self, about: JobContext) -> ControllerResult:
        view, attempt, cause = about.view, about.attempt, about.cause
        assert attempt is not None, "else it goes by nothing"
        changed = self._submit(view, attempt) if cause is None else self._abandon(view, attempt, cause)
        return DecideAnew() if changed else NextLook()

    def _submit(self, view: JobView, attempt: AttemptView) -> bool:
        """Find the attempt, or launch it where the rules in force still allow that. An attempt about which its engine
        cannot be asked does not end here: an earlier process may have launched it already."""
        if (known := self._let_go.get(attempt.key)) is not None:
            return self._abandon(view, attempt, *known)
        if (launched := self._ports.calls.taken(attempt.key, Purpose.LAUNCH)) is not None:
            return self._launched(view, attempt, launched)
        if self._ports.calls.under_way(attempt.key):
            return False
        try:
            engine = self._ports.engines(attempt.engine)
            lease = self._leases.granted(view, attempt, self._ports.clock.now())

            def prepare() -> str | None:
                handle = engine.find(attempt.key)
                if handle is None:
                    self._ports.mailbox.prepare(view, attempt, lease)
                return handle

            prepared = self._ports.calls.make(attempt.engine, attempt.key, Purpose.PREPARE, prepare)
            if prepared is None:
                return False
            if prepared.error is not None:
                raise prepared.error
            if prepared.value is not None:
                return self._append(view, (attempt.number, ev.Launched(handle=prepared.value)))
            secrets = self._secrets(view)
            ruling = self._check(view, attempt)  # last, so that nothing slow lies between it and the launch
        except BrokerError as error:
            return self._delayed(view, attempt, error)
        if isinstance(ruling, Objection):
            return self._abandon(view, attempt, ruling.cause, ruling.why)
        if ruling is Ruling.LOOK_AGAIN:
            return True
        folder = self._ports.mailbox.url(view, attempt)
        launch = Launch(attempt.key, view.job, attempt.placement, folder, secrets, self._ports.store_id)

        def make() -> str | None:
            return engine.submit(launch) if self._check.holds(view, attempt) else None

        outcome = self._ports.calls.make(attempt.engine, attempt.key, Purpose.LAUNCH, make)
        return outcome is not None and self._launched(view, attempt, outcome)

    def _launched(self, view: JobView, attempt: AttemptView, outcome: CallOutcome) -> bool:
        """What came of the call. No handle and no error: it was not made, as the judgement did not hold any more."""
        match outcome.error:
            case None if outcome.value is None:
                return False
            case None:
                return self._append(view, (attempt.number, ev.Launched(handle=outcome.value)))
            case TryAnotherOffer() as error:
                return self._failed(view, attempt, Cause.NO_CAPACITY, error)
            case RetryLater() as error if self._ports.clock.now() - attempt.requested_at > self._patience:
                return self._abandon(view, attempt, Cause.LAUNCH_FAILED, str(error))
            case RetryLater() as error:
                return self._delayed(view, attempt, error)
            case (AskAPerson() | GiveUp()) as error:
                return self._failed(view, attempt, Cause.LAUNCH_REFUSED, error)
            case error:  # nothing is known of an error that has no class: the engine may have launched it
                log.error("job %s, attempt %s: its launch", view.id, attempt.number, exc_info=error)
                return self._abandon(view, attempt, Cause.LAUNCH_FAILED, f"{type(error).__name__}: {error}")

    def _abandon(self, view: JobView, attempt: AttemptView, cause: Cause, evidence: str = "never launched") -> bool:
        """A request that may or may not have reached its engine before a crash: find out, and only then let it go."""
        launched = self._ports.calls.taken(attempt.key, Purpose.LAUNCH)
        if launched is not None and launched.value is not None:
            return self._append(view, (attempt.number, ev.Launched(handle=launched.value)))
        if self._ports.calls.under_way(attempt.key):  # what is being launched cannot be called back, but its node can
            if view.cancel_requested:
                self._withdraw(view, attempt, cause)
            return False
        self._let_go[attempt.key] = cause, evidence
        try:
            engine = self._ports.engines(attempt.engine)
            found = self._ports.calls.make(
                attempt.engine, attempt.key, Purpose.FIND, lambda: self._find(engine, view, attempt, cause)
            )
            if found is None:
                return False
            self._let_go.pop(attempt.key)
            if found.error is not None:
                raise found.error
        except BrokerError as error:
            self._let_go.pop(attempt.key, None)
            if view.cancel_requested:  # a machine that an earlier process launched need not wait for its engine
                self._withdraw(view, attempt, cause)
            return self._delayed(view, attempt, error)
        if found.value is not None:
            return self._append(view, (attempt.number, ev.Launched(handle=found.value)))
        return self._append(view, (attempt.number, ev.AttemptEnded(cause=cause, evidence=evidence)))

    def forget(self, key: str) -> None:
        self._let_go.pop(key, None)

    def _find(self, engine: Engine, view: JobView, attempt: AttemptView, cause: Cause) -> str | None:
        handle = engine.find(attempt.key)
        if handle is None:
            # Should a machine of it still come up, it finds this and goes away.
            with isolated(f"job {view.id}, attempt {attempt.number}: no word could be left for it"):
                self._ports.mailbox.prepare(view, attempt, LeaseGrant(stop=cause))
        return handle

    def _withdraw(self, view: JobView, attempt: AttemptView, cause: Cause) -> None:
        with isolated(f"job {view.id}, attempt {attempt.number}: its lease"):
            self._leases.withdraw(view, attempt, self._ports.clock.now(), cause)

    def _delayed(self, view: JobView, attempt: AttemptView, error: BrokerError) -> bool:
        """Try again with the next look; say why, once."""
        because = f"{error} ({error.hint})" if error.hint else str(error)
        log.warning("job %s, attempt %s: %s; trying again", view.id, attempt.number, because)
        reason = _why_not_launched(error)
        if reason != view.waiting:
            self._append(view, (attempt.number, ev.LaunchDelayed(reason=reason)))
        return False

    def _append(self, view: JobView, item: tuple[int, EventBody]) -> bool:
        append_if(self._ports.journal, view, [item], self._ports.clock.now())
        return True

    def _failed(self, view: JobView, attempt: AttemptView, cause: Cause, error: BrokerError) -> bool:
        evidence = f"{error} ({error.hint})" if error.hint else str(error)
        return self._append(view, (attempt.number, ev.AttemptEnded(cause=cause, evidence=evidence)))


def _why_not_launched(error: BrokerError) -> WaitReason:
    match error:
        case SecretsAbsent():
            return SecretsMissing(names=error.names, owner=error.owner, process_user=error.process_user)
        case OwnerOnly():
            return OwnerMustStart(owner=error.owner, process_user=error.process_user)
        case _:
            return LaunchTrouble(error=type(error).__name__, message=error.message, where=error.where, hint=error.hint)
