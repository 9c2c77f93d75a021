"""Sweeping: find orphaned machines, attempts and holds, report them, and end them on request.
`broker.reconciler.sweep` decides what is an orphan.

Nothing here launches, and only leftovers in the state `LeftoverState.ORPHAN` are ended.
"""

from __future__ import annotations

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
from broker.core.market.capacity import Instance
from broker.core.market.machines import ListsMachines
from broker.core.market.offers import SANDBOX, MoneyKind
from broker.core.notices import Notice, Severity
from broker.core.ports import BudgetSpec, Observation, RunsInstances
from broker.core.purchases.purchases import is_purchase
from broker.ledger.entries import Account, Balance, Entry, Movement, balances, move, movements
from broker.reconciler.settlement.batch import catch_up, post_due
from broker.reconciler.settlement.settlement import release
from broker.reconciler.sweep import FoundMachine, HeldMoney, Leftover, LeftoverKind, LeftoverState, job_of, leftovers

log = logging.getLogger(__name__)

GRACE = timedelta(minutes=15)  # before anything counts as an orphan: clouds list machines for a while after their end
_EVERYTHING = BudgetSpec("sweep", "month", "UTC", frozenset(kind.value for kind in MoneyKind))


@dataclass(frozen=True, slots=True)
class Swept:
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
        """The leftovers that may be ended."""
        return tuple(one for one in self.found if one.standing is LeftoverState.ORPHAN)


@dataclass(frozen=True, slots=True)
class EndedLeftover:
    """One leftover. ``error``: why it could not be ended; empty if it was."""

    leftover: Leftover
    error: str = ""


def sweep(broker: Broker, grace: timedelta = GRACE) -> Swept:
    """Ask every engine that was used here or runs something, and every provider with a login that can list machines.
    Changes nothing. Raises `StoreProblem`."""
    trouble: dict[str, str] = {}
    without_login: list[str] = []
    # Machines before records: a machine that is listed now was recorded before.
    machines: list[FoundMachine] = []
    asking = _Asking(machines, trouble, without_login)
    engines = [name for name in _engines(broker) if asking.told(name, lambda name: _of_engine(broker, name))]
    clouds = [name for name in _clouds(broker) if asking.told(name, lambda name: _of_cloud(broker, name))]
    with broker.store.reading() as look:
        jobs = {view.id: view for view in look.unclosed()}
        holds = [hold for hold in look.open_holds(_EVERYTHING) if hold.held and not is_purchase(hold.job_id)]
        others = {*(job_of(machine.key) for machine in machines), *(hold.job_id for hold in holds)} - jobs.keys()
        jobs |= {view.id: view for view in look.views(sorted(others))}
        # A job that this version cannot read may be in order, so nothing that belongs to it is an orphan.
        unreadable = {one.job_id: str(one) for one in look.unreadable}
        machines = [machine for machine in machines if job_of(machine.key) not in unreadable]
        holds = [hold for hold in holds if hold.job_id not in unreadable]
        trouble |= unreadable
        sums = look.sums([hold.job_id for hold in holds])
        held = [HeldMoney(one.job_id, one.money, one.held, _last_moved(sums.get(one.job_id, ()))) for one in holds]
    seen = _observed(broker, jobs, engines)
    now = broker.clock.now()
    found = leftovers(machines, engines, jobs, seen, held, store=store_id(broker.store), now=now, grace=grace)
    asked = tuple(sorted({*engines, *clouds}))
    return Swept(now, store_id(broker.store), tuple(found), asked, trouble, tuple(without_login))


def end(broker: Broker, swept: Swept) -> list[EndedLeftover]:
    """End the orphans of a sweep, one after another, also after an error. Machines are requested to terminate; the next
    sweep shows whether they did. Idempotent."""
    by_engine = {one.key for one in swept.orphans if one.machine is not None and one.machine.by_engine}
    done = []
    for one in swept.orphans:
        if one.machine is not None and not one.machine.by_engine and one.key in by_engine:
            continue  # its engine ends it; if it stays, the next sweep ends it
        try:
            _end(broker, one, swept.at)
        except BrokerError as error:
            done.append(EndedLeftover(one, f"{error} ({error.hint})" if error.hint else str(error)))
        else:
            log.info("ended %s (%s): %s", one.id, one.kind, one.why)
            done.append(EndedLeftover(one))
    return done


def notice_of(leftover: Leftover, ended: bool) -> Notice:
    """The notice about a leftover."""
    what = {
        LeftoverKind.MACHINE: f"Orphaned machine: {leftover.id}",
        LeftoverKind.ATTEMPT: f"Attempt {leftover.key} has no machine",
        LeftoverKind.HOLD: f"Job {leftover.job_id} holds money without a machine",
    }[leftover.kind]
    then = "It was ended, as the policy says." if ended else "To end it: gpubroker doctor --sweep --end"
    return Notice(f"sweep/{leftover.id}", what, f"{leftover.why}. {then}", Severity.WARNING)


@dataclass(frozen=True, slots=True)
class _Asking:
    """The machines listed so far, and the errors."""

    machines: list[FoundMachine]
    trouble: dict[str, str]
    without_login: list[str]

    def told(self, name: str, machines_of: Callable[[str], Iterator[FoundMachine] | None]) -> bool:
        """Ask one engine or provider; returns whether it listed all its machines. Machines listed before an error are
        kept."""
        try:
            found = machines_of(name)
            if found is None:
                return False
            for machine in found:
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
    with broker.store.reading() as look:
        running = {attempt.engine for view in look.unclosed() for attempt in view.attempts if not attempt.over}
    for name in broker.registries.engines:
        folder = broker.settings.home / "engines" / name
        if name in running or (folder.is_dir() and any(folder.iterdir())):
            yield name


def _of_engine(broker: Broker, name: str) -> Iterator[FoundMachine] | None:
    """The machines of an engine; None if it cannot list them."""
    engine = broker.engine(name)
    if not isinstance(engine, ListsMachines):
        return None
    return (
        # A name that looks like a key does not prove ownership; the store's tag is.
        FoundMachine(name, True, one.handle, one.key, one.store, one.since, one.evidence, tagged=bool(one.store))
        for one in engine.machines()
    )


def _clouds(broker: Broker) -> Iterator[str]:
    return (name for name in broker.registries.providers if name not in {*broker.registries.local_providers, SANDBOX})


def _of_cloud(broker: Broker, name: str) -> Iterator[FoundMachine] | None:
    """The machines of a provider; None if it cannot list them."""
    provider = broker.provider(name)
    if not isinstance(provider, RunsInstances):
        return None

    def about(one: Instance) -> str:
        costs = "" if one.billed else ", not billed by the hour"
        return f"{one.instance_type} in {one.zone or one.region}: {one.state}{costs}"

    return (
        FoundMachine(name, False, one.id, one.key, one.store, one.since, about(one)) for one in provider.instances()
    )


def _observed(broker: Broker, jobs: Mapping[str, JobView], engines: Sequence[str]) -> Mapping[str, Observation]:
    """The engines' observations of the attempts that should have machines, by key."""
    handles: dict[str, dict[str, str]] = defaultdict(dict)
    for view in jobs.values():
        for attempt in view.attempts:
            if attempt.handle is not None and not attempt.over and attempt.engine in engines:
                handles[attempt.engine][attempt.handle] = attempt.key
    seen: dict[str, Observation] = {}
    for name, keys in handles.items():
        try:
            found = broker.engine(name).observe(list(keys))
        except BrokerError as error:
            log.warning("engine %s does not answer: %s", name, error)
            continue
        seen |= {key: found[handle] for handle, key in keys.items()}
    return seen


def _last_moved(entries: Sequence[Entry]) -> datetime | None:
    return max((entry.at for entry in entries if entry.account is Account.HELD), default=None)


# --- ending ---------------------------------------------------------------------------------------------------------


def _end(broker: Broker, one: Leftover, seen_at: datetime) -> None:
    """End one orphan. Raises `BrokerError`."""
    if one.machine is not None and one.machine.by_engine:
        engine = broker.engine(one.machine.place)
        assert isinstance(engine, ListsMachines), "it listed this machine"
        engine.end(one.machine.id)
    elif one.machine is not None:
        provider = broker.provider(one.machine.place)
        assert isinstance(provider, RunsInstances), "it listed this machine"
        provider.terminate(one.machine.id)
    elif one.attempt is not None:
        gone_at = seen_at if one.gone_at is None else min(one.gone_at, seen_at)
        _close_attempt(broker, one.job_id, one.attempt, gone_at, one.why)
    elif one.held is not None:
        _release(broker, one.held)


def _close_attempt(broker: Broker, job_id: str, number: int, gone_at: datetime, why: str) -> None:
    """Record that the machine of an ended attempt is gone, and settle its cost, as the reconciler would; nothing if the
    reconciler was faster. Only the reconciler decides how an attempt ended.

    The machine is metered until ``gone_at`` (UTC): when it ended, if its engine knows that, else when the sweep saw
    that it was gone. An earlier end of the agent does not count, because a machine that still exists is still billed,
    and metering too little would let jobs spend money that is already spent. The provider's charges correct the
    difference later.
    """
    now = broker.clock.now()
    with broker.store.reading() as look:
        known = look.job(job_id)
    if known is not None and not known.closed:
        catch_up(broker.store, known, now)
    with broker.store.writing() as tx:
        view = tx.job(job_id)
        if view is None or view.closed:
            return
        attempt = view.attempt(number)
        if attempt is None or attempt.over or not attempt.state.final:
            return
        gone = ev.MachineGone(gone_at=gone_at if attempt.up_since is not None else None, evidence=why)
        view = tx.append(job_id, [(number, gone)], now)
        post_due(tx, [view], now)


def _release(broker: Broker, held: HeldMoney) -> None:
    """Release the job's present hold of that kind of money, even if it changed since the sweep."""
    now = broker.clock.now()
    with broker.store.writing() as tx:
        view, sums = tx.job(held.job_id), tx.sums([held.job_id]).get(held.job_id, ())
        if view is not None:
            tx.post([entry for entry in release(view, sums, now) if entry.money is held.money])
            return
        entries = tx.entries(held.job_id)
        left = balances(entries).get(held.money, Balance()).held
        tags = replace(entries[0].tags, attempt=None, provider=None, region=None, capacity_type=None, accelerator=None)
        number = movements(sums)
        tx.post(
            move(
                Movement.RELEASE,
                left,
                movement_id=f"{held.job_id}/release/{number}/{held.money}",
                money=held.money,
                at=now,
                covers=(now, now),
                tags=replace(tags, gpus=0),
            )
        )
