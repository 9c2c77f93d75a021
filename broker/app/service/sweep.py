"""Sweeping: find orphaned machines, attempts and holds, report them, and end them on request.
`broker.reconciler.sweep` decides what is an orphan.

Nothing here launches, and only leftovers in the state `LeftoverState.ORPHAN` are ended.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.app.store_identity import store_id
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, MissingExtra, NoLogin
from broker.core.events import events as ev
from broker.core.events.views import JobView
from broker.core.market.capacity import Instance, ListsMachines
from broker.core.market.offers import SANDBOX, MoneyKind
from broker.core.notices import Notice, Severity
from broker.core.ports import BudgetSpec, Observation, RunsInstances
from broker.core.purchases.purchases import is_purchase
from broker.ledger.entries import Account, Balance, Entry, Movement, balances, move, movements
from broker.reconciler.admission.records import job_of
from broker.reconciler.settlement.batch import catch_up, post_due
from broker.reconciler.settlement.settlement import release
from broker.reconciler.sweep import FoundMachine, HeldMoney, Leftover, LeftoverKind, LeftoverState, leftovers

log = logging.getLogger(__name__)

GRACE = timedelta(minutes=15)  # before anything counts as an orphan: clouds list machines for a while after their end
_EVERYTHING = BudgetSpec("sweep", "month", "UTC", frozenset(kind.value for kind in MoneyKind))


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The result of a sweep ``at`` a time (UTC). ``asked``: the engines and providers that listed all their machines;
    ``trouble``: those that could not, and jobs that cannot be read here, each with the reason; ``without_login``: the
    providers that were not asked because no login was found."""

    at: datetime
    store: str
    found: tuple[Leftover, ...]
    asked: tuple[str, ...]
    trouble: Mapping[str, str]
    without_login: tuple[str, ...]

    @property
    def orphans(self) -> tuple[Leftover, ...]:
        return tuple(leftover for leftover in self.found if leftover.standing is LeftoverState.ORPHAN)


def sweep(broker: Broker, grace: timedelta = GRACE) -> SweepResult:
    """Ask every engine that was used here or runs something, and every provider with a login that can list machines.
    Changes nothing. Raises `StoreProblem`."""
    trouble: dict[str, str] = {}
    without_login: list[str] = []
    # Machines before records: a machine that is listed now was recorded before.
    machines: list[FoundMachine] = []
    listing = _MachineListing(machines, trouble, without_login)
    engines = [name for name in _engines(broker) if listing.add(name, lambda name: _engine_machines(broker, name))]
    clouds = [name for name in _clouds(broker) if listing.add(name, lambda name: _cloud_machines(broker, name))]
    with broker.store.reading() as reader:
        jobs = {view.id: view for view in reader.unclosed()}
        holds = [hold for hold in reader.open_holds(_EVERYTHING) if hold.held and not is_purchase(hold.job_id)]
        other_ids = {*(job_of(machine.key) for machine in machines), *(hold.job_id for hold in holds)} - jobs.keys()
        jobs |= {view.id: view for view in reader.views(sorted(other_ids))}
        # A job that this version cannot read may be in order, so nothing that belongs to it is an orphan.
        unreadable = {item.job_id: str(item) for item in reader.unreadable}
        machines = [machine for machine in machines if job_of(machine.key) not in unreadable]
        holds = [hold for hold in holds if hold.job_id not in unreadable]
        trouble |= unreadable
        sums = reader.sums([hold.job_id for hold in holds])
        held_money = [
            HeldMoney(item.job_id, item.money, item.held, _last_hold_time(sums.get(item.job_id, ()))) for item in holds
        ]
    observations = _observations(broker, jobs, engines)
    now = broker.clock.now()
    all_leftovers = leftovers(
        machines, engines, jobs, observations, held_money, store=store_id(broker.store), now=now, grace=grace
    )
    answered = tuple(sorted({*engines, *clouds}))
    return SweepResult(now, store_id(broker.store), tuple(all_leftovers), answered, trouble, tuple(without_login))


def end_orphans(broker: Broker, swept: SweepResult) -> dict[str, str]:
    """End the orphans of a sweep, one after another, also after an error. Machines are requested to terminate; the next
    sweep shows whether they did. Idempotent. Returns by id why one could not be ended; empty if it was."""
    engine_keys = {
        leftover.key for leftover in swept.orphans if leftover.machine is not None and leftover.machine.by_engine
    }
    errors: dict[str, str] = {}
    for leftover in swept.orphans:
        if leftover.machine is not None and not leftover.machine.by_engine and leftover.key in engine_keys:
            continue  # its engine ends it; if it stays, the next sweep ends it
        try:
            _end_orphan(broker, leftover, swept.at)
        except BrokerError as error:
            errors[leftover.id] = error.with_hint
        else:
            log.info("ended %s (%s): %s", leftover.id, leftover.kind, leftover.why)
            errors[leftover.id] = ""
    return errors


def leftover_notice(leftover: Leftover, is_ended: bool) -> Notice:
    title = {
        LeftoverKind.MACHINE: f"Orphaned machine: {leftover.id}",
        LeftoverKind.ATTEMPT: f"Attempt {leftover.key} has no machine",
        LeftoverKind.HOLD: f"Job {leftover.job_id} holds money without a machine",
    }[leftover.kind]
    outcome = "It was ended, as the policy says." if is_ended else "To end it: gpubroker doctor --sweep --end"
    return Notice(f"sweep/{leftover.id}", title, f"{leftover.why}. {outcome}", Severity.WARNING)


@dataclass(frozen=True, slots=True)
class _MachineListing:
    """The machines listed so far, and the errors."""

    machines: list[FoundMachine]
    trouble: dict[str, str]
    without_login: list[str]

    def add(self, name: str, machines_of: Callable[[str], Iterator[FoundMachine] | None]) -> bool:
        """Ask one engine or provider; returns whether it listed all its machines. Machines listed before an error are
        kept."""
        try:
            listed = machines_of(name)
            if listed is None:
                return False
            for machine in listed:
                self.machines.append(machine)
        except MissingExtra:
            return False
        except NoLogin:
            self.without_login.append(name)
        except BrokerError as error:
            self.trouble[name] = str(error)
        else:
            return True
        return False


def _engines(broker: Broker) -> Iterator[str]:
    """Engines with files here or with running attempts. Asking other engines would start servers and search for
    programs that are not in use here."""
    with broker.store.reading() as reader:
        running = {attempt.engine for view in reader.unclosed() for attempt in view.attempts if not attempt.over}
    for name in broker.registries.engines:
        folder = broker.settings.home / "engines" / name
        if name in running or (folder.is_dir() and any(folder.iterdir())):
            yield name


def _engine_machines(broker: Broker, name: str) -> Iterator[FoundMachine] | None:
    """The machines of an engine; None if it cannot list them."""
    engine = broker.engine(name)
    if not isinstance(engine, ListsMachines):
        return None
    return (
        # A name that looks like a key does not prove ownership; the store's tag is.
        FoundMachine(
            name,
            True,
            engine_machine.handle,
            engine_machine.key,
            engine_machine.store,
            engine_machine.since,
            engine_machine.evidence,
            tagged=bool(engine_machine.store),
        )
        for engine_machine in engine.machines()
    )


def _clouds(broker: Broker) -> Iterator[str]:
    return (name for name in broker.registries.providers if name not in {*broker.registries.local_providers, SANDBOX})


def _cloud_machines(broker: Broker, name: str) -> Iterator[FoundMachine] | None:
    """The machines of a provider; None if it cannot list them."""
    provider = broker.provider(name)
    if not isinstance(provider, RunsInstances):
        return None

    def describe(instance: Instance) -> str:
        billing_note = "" if instance.billed else ", not billed by the hour"
        return f"{instance.instance_type} in {instance.zone or instance.region}: {instance.state}{billing_note}"

    return (
        FoundMachine(name, False, instance.id, instance.key, instance.store, instance.since, describe(instance))
        for instance in provider.instances()
    )


def _observations(broker: Broker, jobs: Mapping[str, JobView], engines: Sequence[str]) -> Mapping[str, Observation]:
    """The engines' observations of the attempts that should have machines, by key."""
    handles: dict[str, dict[str, str]] = defaultdict(dict)
    for view in jobs.values():
        for attempt in view.attempts:
            if attempt.handle is not None and not attempt.over and attempt.engine in engines:
                handles[attempt.engine][attempt.handle] = attempt.key
    observations: dict[str, Observation] = {}
    for name, keys in handles.items():
        try:
            engine_observations = broker.engine(name).observe(list(keys))
        except BrokerError as error:
            log.warning("engine %s does not answer: %s", name, error)
            continue
        observations |= {key: engine_observations[handle] for handle, key in keys.items()}
    return observations


def _last_hold_time(entries: Sequence[Entry]) -> datetime | None:
    return max((entry.at for entry in entries if entry.account is Account.HELD), default=None)


# --- ending ---------------------------------------------------------------------------------------------------------


def _end_orphan(broker: Broker, orphan: Leftover, seen_at: datetime) -> None:
    """End one orphan. Raises `BrokerError`."""
    if orphan.machine is not None and orphan.machine.by_engine:
        engine = broker.engine(orphan.machine.place)
        assert isinstance(engine, ListsMachines), "it listed this machine"
        engine.end(orphan.machine.id)
    elif orphan.machine is not None:
        provider = broker.provider(orphan.machine.place)
        assert isinstance(provider, RunsInstances), "it listed this machine"
        provider.terminate(orphan.machine.id)
    elif orphan.attempt is not None:
        gone_at = seen_at if orphan.gone_at is None else min(orphan.gone_at, seen_at)
        _close_attempt(broker, orphan.job_id, orphan.attempt, gone_at, orphan.why)
    elif orphan.held is not None:
        _release(broker, orphan.held)


def _close_attempt(broker: Broker, job_id: str, number: int, gone_at: datetime, reason: str) -> None:
    """Record that the machine of an ended attempt is gone, and settle its cost, as the reconciler would; nothing if the
    reconciler was faster. Only the reconciler decides how an attempt ended.

    The machine is metered until ``gone_at`` (UTC): when it ended, if its engine knows that, else when the sweep saw
    that it was gone. An earlier end of the agent does not count, because a machine that still exists is still billed,
    and metering too little would let jobs spend money that is already spent. The provider's charges correct the
    difference later.
    """
    now = broker.clock.now()
    with broker.store.reading() as reader:
        view_before = reader.job(job_id)
    if view_before is not None and not view_before.closed:
        catch_up(broker.store, view_before, now)
    with broker.store.writing() as tx:
        view = tx.job(job_id)
        if view is None or view.closed:
            return
        attempt = view.attempt(number)
        if attempt is None or attempt.over or not attempt.state.final:
            return
        machine_gone = ev.MachineGone(gone_at=gone_at if attempt.up_since is not None else None, evidence=reason)
        view = tx.append(job_id, [(number, machine_gone)], now)
        post_due(tx, [view], now)


def _release(broker: Broker, held_money: HeldMoney) -> None:
    """Release the job's present hold of that kind of money, even if it changed since the sweep."""
    now = broker.clock.now()
    with broker.store.writing() as tx:
        view, sums = tx.job(held_money.job_id), tx.sums([held_money.job_id]).get(held_money.job_id, ())
        if view is not None:
            tx.post([entry for entry in release(view, sums, now) if entry.money is held_money.money])
            return
        entries = tx.entries(held_money.job_id)
        remaining = balances(entries).get(held_money.money, Balance()).held
        tags = replace(entries[0].tags, attempt=None, provider=None, region=None, capacity_type=None, accelerator=None)
        number = movements(sums)
        tx.post(
            move(
                Movement.RELEASE,
                remaining,
                movement_id=f"{held_money.job_id}/release/{number}/{held_money.money}",
                money=held_money.money,
                at=now,
                covers=(now, now),
                tags=replace(tags, gpus=0),
            )
        )
