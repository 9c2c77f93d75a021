"""The periodic duties of `serve`: one process of a store at a time runs each and reports each
problem once.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, Protocol

from broker.app.alerts.routes import recipients
from broker.app.billing.charges import fetch
from broker.app.capacity.check import CapacityCheck, check
from broker.app.capacity.purchases import buyer
from broker.app.jobs.retention import DeletedFiles, delete_due
from broker.app.jobs.sealed_secrets import tell_service_key
from broker.app.jobs.snapshot_retention import delete_snapshots, policy_over, unneeded_snapshots
from broker.app.outside.launches import OpenLaunch
from broker.app.outside.overdue import end_overdue
from broker.app.results.charges import ChargesResult
from broker.app.service.background import looks
from broker.app.service.health import Pulses
from broker.app.service.sweep import GRACE, Swept, end, notice_of, sweep
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
        for sentence in sorted(said - self._said):
            self._say(sentence)
        self._said = said


class Sweeping(PeriodicDuty):
    """Sends a notice of each orphan, once, and ends it if the active policy says so (``end_orphans_after``). ``say``:
    receives each orphan and error once."""

    name = "sweeping"
    first_after, every = 60.0, 600.0  # each sweep asks every cloud for its machines

    def once(self) -> Swept:
        """One sweep. Raises `StoreProblem`, and `InvalidInput` if the active policy cannot be read."""
        broker = self._broker
        after = broker.policy().defaults.end_orphans_after
        swept = sweep(broker, GRACE if after is None else after)
        done = {one.leftover.id: one for one in end(broker, swept)} if after is not None else {}
        said = {f"{name} could not be swept: {why}" for name, why in swept.trouble.items()}
        for one in swept.found:
            if one.standing is LeftoverState.ORPHAN:
                result = done.get(one.id)
                notice = notice_of(one, ended=result is not None and not result.error)
                broker.store.outbox.add(notice, recipients(broker.settings, notice), broker.clock.now())
                said.add(f"{notice.title}: {notice.body}" + (f" {result.error}" if result and result.error else ""))
        self._tell(said)
        return swept


class Purchasing(PeriodicDuty):
    """Places approved orders, confirms them and resolves orders without an answer. ``say``: receives each error
    once."""

    name = "purchases"
    first_after, every = 20.0, 20.0  # so that an order without an answer is reported within a minute
    role = LeaderRole.PURCHASES

    def once(self) -> int:
        """Advance every open purchase, also after an error in another; returns their number."""
        carried_out, said = buyer(self._broker), set()
        found = self._broker.store.purchases()
        for purchase in found:
            try:
                carried_out.advance(purchase.id)
            except BrokerError as error:
                said.add(f"{purchase.id}: {error}")
        self._tell(said)
        return len(found)


class CheckingCapacity(PeriodicDuty):
    """Compares what providers list with what was bought, and sends a notice of each difference, once. ``say``: receives
    each difference and error once."""

    name = "capacity check"
    first_after, every = 120.0, 3600.0  # each check asks every region of every provider
    role = LeaderRole.CAPACITY

    def once(self) -> CapacityCheck:
        """One check. Raises `StoreProblem`."""
        broker = self._broker
        found = check(broker)
        said = {f"{name} could not list its capacity: {why}" for name, why in found.problems.items()}
        for one in found.differences:
            broker.store.outbox.add(one.notice, recipients(broker.settings, one.notice), broker.clock.now())
            said.add(f"{one.notice.title}: {one.told}")
        self._tell(said)
        return found


class EndingLaunches(PeriodicDuty):
    """Ends overdue launches of other tools. ``say``: receives each launch that became overdue."""

    name = "outside launches"
    first_after, every = 60.0, 60.0
    role = LeaderRole.OUTSIDE

    def once(self) -> Sequence[OpenLaunch]:
        """One round. Raises `StoreProblem`."""
        late = end_overdue(self._broker)
        self._tell(
            {
                f"{one.id}: the time for which {one.tags.user} launched with {one.tool} is over, and nobody reported"
                f" its end: {one.held} counts as spent; check whether it still runs"
                for one in late
            }
        )
        return late


# For each job its run folder is listed. Jobs whose retention time ended earlier are left to `gpubroker jobs prune`.
_WITHIN = timedelta(days=14)


class KeepingFiles(PeriodicDuty):
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
        done = delete_due(self._broker, _WITHIN, self._failed)
        self._failed = (self._failed | done.trouble.keys()) - {one.view.id for one in done.deleted}
        trouble = dict(done.trouble)
        if (over := policy_over(self._broker)) is not None:
            delete_snapshots(self._broker, unneeded_snapshots(self._broker, over, trouble, by=None), trouble)
        self._tell({f"files of {job} stay longer than the policy says: {why}" for job, why in trouble.items()})
        return done


_ASK_EVERY = timedelta(hours=23)
_ASKED = "charges_asked_at"


class Charging(PeriodicDuty):
    """Asks providers for their charges once a day. ``say``: receives each difference over the threshold, and each
    error, once."""

    name = "charging"
    first_after, every = 120.0, 900.0

    def once(self) -> ChargesResult | None:
        """Ask if a day has passed since the last time; else None. Raises `StoreProblem`."""
        store, now = self._broker.store, self._broker.clock.now()
        asked = store.setting(_ASKED)
        if asked is not None and now - datetime.fromisoformat(asked) < _ASK_EVERY:
            return None
        done = fetch(self._broker)
        store.set_setting(_ASKED, now.isoformat())
        troubles = {f"the charges of {name} could not be read: {why}" for name, why in done.trouble.items()}
        self._tell(troubles | set(done.alerts))
        return done


_LOOK = 0.5  # seconds between two checks whether a duty failed


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
    broken: list[BaseException] = []

    def run(duty: Duty) -> None:
        try:
            duty.run(stop)
        except BaseException as error:  # noqa: BLE001  # raised again below, in the caller's thread
            broken.append(error)
            stop.set()

    threads = [threading.Thread(target=run, args=(duty,), name=duty.name) for duty in duties]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_LOOK)  # in steps, so that signals are handled in between
    if broken:
        raise broken[0]


STAND_BY = 1.0  # seconds of the wall clock between two tries to take the lead


class Reconciling:
    """``say``: receives messages about taking and losing the lead. ``health``: is informed of each pass."""

    name = "jobs"

    def __init__(self, broker: Broker, *, health: Pulses, say: Callable[[str], None]) -> None:
        self._broker = Broker(broker.settings, broker.registries, replace(broker.account, for_others=True))
        self._health = health
        self._say = say

    def run(self, stop: threading.Event) -> None:
        """Reconcile until ``stop`` is set; a pass that has begun is finished first. An unreachable store is reported
        and tried again."""
        with suppress(BrokerError):  # the first pass reports what is wrong with the store
            tell_service_key(self._broker)
        said = ""
        while not stop.is_set():
            try:
                with self._broker.store.lead() as still_leading:
                    if still_leading is None:
                        self._health.stands_by(self.name)
                        if said != (said := "standby: another process reconciles this store"):
                            self._say(said)
                    else:
                        self._say("reconciling jobs")
                        said = ""
                        self._lead(stop, still_leading)
            except StoreProblem as problem:
                if said != (said := str(problem)):
                    self._say(said)
            stop.wait(STAND_BY)

    def _lead(self, stop: threading.Event, still_leading: StillLeading) -> None:
        for look in looks(self._broker, lambda: not stop.is_set() and still_leading(), stop.wait):
            if look.brought is None:
                self._health.failed(self.name)
            else:
                self._health.looked(self.name, look.seconds, look.brought.steps)
