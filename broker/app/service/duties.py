"""The periodic duties of `serve`: one process of a store at a time runs each and reports each
problem once.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, Protocol

from broker.app.alerts.routes import recipients
from broker.app.billing.charge_documents import ChargesResult
from broker.app.billing.charges import fetch
from broker.app.capacity.capacity import CapacityCheck, check_capacity
from broker.app.capacity.purchases import buyer
from broker.app.jobs.pruning import delete_snapshots, snapshot_expiry_test, unneeded_snapshots
from broker.app.jobs.retention import DeletedFiles, delete_due
from broker.app.jobs.sealed_secrets import publish_service_key
from broker.app.outside.documents import end_overdue_launches
from broker.app.outside.launches import OpenLaunch
from broker.app.service.health import Pulses
from broker.app.service.passes import reconcile_passes
from broker.app.service.sweep import GRACE, SweepResult, end_orphans, leftover_notice, sweep
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, StoreProblem
from broker.reconciler.sweep import LeftoverState
from broker.store.engine.leader import LeaderRole

if TYPE_CHECKING:
    from broker.store.engine.leader import StillLeading


class PeriodicDuty(ABC):
    """A duty of `serve` that does its work `once` in each round.

    ``first_after``, ``every``: seconds of the wall clock before the first round (at most ``every``) and between two.
    ``role``: the leader role that only one process of a store has at a time. ``say``: receives each message once until
    it no longer applies.
    """

    name: ClassVar[str]
    first_after: ClassVar[float]
    every: ClassVar[float]
    role: ClassVar[LeaderRole] = LeaderRole.SWEEP

    def __init__(self, broker: Broker, *, say: Callable[[str], None], every: float | None = None) -> None:
        """``every``: instead of the duty's own."""
        # A broker with its own providers and engines, for the thread of the duty.
        self._broker = Broker(broker.settings, broker.registries, broker.account, clock=broker.clock)
        self._say = say
        self._every = self.every if every is None else every
        self._said: set[str] = set()

    @abstractmethod
    def once(self) -> object:
        """One round."""

    def run(self, stop: threading.Event) -> None:
        """A round whenever no other process has the role, until ``stop`` is set. Errors are reported, and the next
        round tries again."""
        pause = min(self.first_after, self._every)
        while not stop.wait(pause):
            pause = self._every
            try:
                with self._broker.store.lead(self.role) as leading:
                    if leading is not None:
                        self.once()
            except BrokerError as error:
                self._tell({str(error)})

    def _tell(self, said: set[str]) -> None:
        """Report the messages that the last round did not have."""
        for message in sorted(said - self._said):
            self._say(message)
        self._said = said


class SweepDuty(PeriodicDuty):
    """Sends a notice of each orphan, once, and ends it if the active policy says so (``end_orphans_after``). ``say``:
    receives each orphan and error once."""

    name = "sweeping"
    first_after, every = 60.0, 600.0  # each sweep asks every cloud for its machines

    def once(self) -> SweepResult:
        """One sweep. Raises `StoreProblem`, and `InvalidInput` if the active policy cannot be read."""
        broker = self._broker
        grace = broker.policy().defaults.end_orphans_after
        swept = sweep(broker, GRACE if grace is None else grace)
        errors = end_orphans(broker, swept) if grace is not None else {}
        messages = {f"{name} could not be swept: {reason}" for name, reason in swept.trouble.items()}
        for leftover in swept.found:
            if leftover.standing is LeftoverState.ORPHAN:
                error = errors.get(leftover.id)
                notice = leftover_notice(leftover, is_ended=error == "")
                broker.store.outbox.add(notice, recipients(broker.settings, notice), broker.clock.now())
                messages.add(f"{notice.title}: {notice.body}" + (f" {error}" if error else ""))
        self._tell(messages)
        return swept


class PurchaseDuty(PeriodicDuty):
    """Places approved orders, confirms them and resolves orders without an answer. ``say``: receives each error
    once."""

    name = "purchases"
    first_after, every = 20.0, 20.0  # so that an order without an answer is reported within a minute
    role = LeaderRole.PURCHASES

    def once(self) -> int:
        """Advance every open purchase, also after an error in another; returns their number."""
        capacity_buyer, messages = buyer(self._broker), set()
        purchases = self._broker.store.purchases()
        for purchase in purchases:
            try:
                capacity_buyer.advance(purchase.id)
            except BrokerError as error:
                messages.add(f"{purchase.id}: {error}")
        self._tell(messages)
        return len(purchases)


class CapacityCheckDuty(PeriodicDuty):
    """Compares what providers list with what was bought, and sends a notice of each difference, once. ``say``: receives
    each difference and error once."""

    name = "capacity check"
    first_after, every = 120.0, 3600.0  # each check asks every region of every provider
    role = LeaderRole.CAPACITY

    def once(self) -> CapacityCheck:
        """One check. Raises `StoreProblem`."""
        broker = self._broker
        capacity_check = check_capacity(broker)
        messages = {f"{name} could not list its capacity: {reason}" for name, reason in capacity_check.problems.items()}
        for difference in capacity_check.differences:
            broker.store.outbox.add(
                difference.notice, recipients(broker.settings, difference.notice), broker.clock.now()
            )
            messages.add(f"{difference.notice.title}: {difference.told}")
        self._tell(messages)
        return capacity_check


class LaunchEndDuty(PeriodicDuty):
    """Ends overdue launches of other tools. ``say``: receives each launch that became overdue."""

    name = "outside launches"
    first_after, every = 60.0, 60.0
    role = LeaderRole.OUTSIDE

    def once(self) -> Sequence[OpenLaunch]:
        """One round. Raises `StoreProblem`."""
        overdue_launches = end_overdue_launches(self._broker)
        self._tell(
            {
                f"{launch.id}: the time for which {launch.tags.user} launched with {launch.tool} is over, and nobody "
                "reported"
                f" its end: {launch.held} counts as spent; check whether it still runs"
                for launch in overdue_launches
            }
        )
        return overdue_launches


# For each job its run folder is listed. Jobs whose retention time ended earlier are left to `gpubroker jobs prune`.
_RETENTION_WINDOW = timedelta(days=14)


class RetentionDuty(PeriodicDuty):
    """Deletes snapshots and files of ended jobs whose retention time (``keep_results`` and similar keys) is over,
    delivered notices older than ``keep_notices``, and price history older than ``keep_prices``. ``say``: receives each
    error once, also of a single run folder."""

    name = "keeping files"
    first_after, every = 600.0, 86_400.0
    role = LeaderRole.RETENTION

    def __init__(self, broker: Broker, *, say: Callable[[str], None], every: float | None = None) -> None:
        super().__init__(broker, say=say, every=every)
        self._failed: set[str] = set()  # jobs whose run folders failed in a round and were not emptied since

    def once(self) -> DeletedFiles:
        """One round. Raises as `delete_due`, and `StoreProblem`."""
        defaults, now = self._broker.policy().defaults, self._broker.clock.now()
        if defaults.keep_notices is not None:
            self._broker.store.outbox.prune(now - defaults.keep_notices)
        if defaults.keep_prices is not None:
            self._broker.store.market.prune(now - defaults.keep_prices)
        deleted = delete_due(self._broker, _RETENTION_WINDOW, self._failed)
        self._failed = (self._failed | deleted.trouble.keys()) - {files.view.id for files in deleted.deleted}
        trouble = dict(deleted.trouble)
        if (is_over := snapshot_expiry_test(self._broker)) is not None:
            delete_snapshots(self._broker, unneeded_snapshots(self._broker, is_over, trouble, by=None), trouble)
        self._tell({f"files of {job} stay longer than the policy says: {reason}" for job, reason in trouble.items()})
        return deleted


_ASK_INTERVAL = timedelta(hours=23)
_LAST_ASKED_SETTING = "charges_asked_at"


class ChargesDuty(PeriodicDuty):
    """Asks providers for their charges once a day. ``say``: receives each difference over the threshold, and each
    error, once."""

    name = "charging"
    first_after, every = 120.0, 900.0

    def once(self) -> ChargesResult | None:
        """Ask if a day has passed since the last time; else None. Raises `StoreProblem`."""
        store, now = self._broker.store, self._broker.clock.now()
        last_asked = store.setting(_LAST_ASKED_SETTING)
        if last_asked is not None and now - datetime.fromisoformat(last_asked) < _ASK_INTERVAL:
            return None
        charges_result = fetch(self._broker)
        store.set_setting(_LAST_ASKED_SETTING, now.isoformat())
        troubles = {
            f"the charges of {name} could not be read: {reason}" for name, reason in charges_result.trouble.items()
        }
        self._tell(troubles | set(charges_result.alerts))
        return charges_result


_JOIN_SECONDS = 0.5  # seconds between two checks whether a duty failed


class Duty(Protocol):
    """Something that a service does for as long as it runs."""

    @property
    def name(self) -> str: ...

    def run(self, stop: threading.Event) -> None:
        """Run until ``stop`` is set, and return soon after. Retries what can be retried; an exception ends the
        service."""


def serve(duties: Sequence[Duty], stop: threading.Event) -> None:
    """Run all duties until ``stop`` is set, then wait for each to end. If one raises, the others are stopped and its
    exception is raised, so that no service keeps running with only some of its duties."""
    errors: list[BaseException] = []

    def run(duty: Duty) -> None:
        try:
            duty.run(stop)
        except BaseException as error:  # noqa: BLE001  # raised again below, in the caller's thread
            errors.append(error)
            stop.set()

    threads = [threading.Thread(target=run, args=(duty,), name=duty.name) for duty in duties]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_JOIN_SECONDS)  # in steps, so that signals are handled in between
    if errors:
        raise errors[0]


STANDBY_SECONDS = 1.0  # seconds of the wall clock between two tries to take the lead


class ReconcileDuty:
    """``say``: receives messages about taking and losing the lead. ``health``: is informed of each pass."""

    name = "jobs"

    def __init__(self, broker: Broker, *, health: Pulses, say: Callable[[str], None]) -> None:
        self._broker = Broker(broker.settings, broker.registries, replace(broker.account, for_others=True))
        self._health = health
        self._say = say

    def run(self, stop: threading.Event) -> None:
        """Reconcile until ``stop`` is set; a pass that has begun is finished first. An unreachable store is reported
        and tried again. Raises `InvalidInput` if it has another key for secrets than the store's other services."""
        last_message = ""
        while not stop.is_set():
            try:
                with self._broker.store.lead() as still_leading:
                    publish_service_key(self._broker, leads=still_leading is not None)
                    if still_leading is None:
                        self._health.stands_by(self.name)
                        if last_message != (last_message := "standby: another process reconciles this store"):
                            self._say(last_message)
                    else:
                        self._say("reconciling jobs")
                        last_message = ""
                        self._lead(stop, still_leading)
            except StoreProblem as problem:
                if last_message != (last_message := str(problem)):
                    self._say(last_message)
            stop.wait(STANDBY_SECONDS)

    def _lead(self, stop: threading.Event, still_leading: StillLeading) -> None:
        for reconcile_pass in reconcile_passes(self._broker, lambda: not stop.is_set() and still_leading(), stop.wait):
            if reconcile_pass.brought is None:
                self._health.record_failure(self.name)
            else:
                self._health.record_run(self.name, reconcile_pass.seconds, reconcile_pass.brought.steps)
