"""What nobody looks after: machines without an attempt, attempts without a machine, money held for neither. Pure.

Machines must have been listed *before* the jobs were read: a launch is on record before any engine is called, so a
machine on the list whose attempt is not on record was not just started. Whose machine it is says its store tag; where
it has none, only a store that knows its attempt may call it its own. What another store asked for is never an orphan.

Nor is an attempt that has not ended, or may still speak: its last word may lie in its run folder, which is not read
here. To take it for lost would run a finished job again; `broker.reconciler.interpret` decides about it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from broker.core.events.views import AttemptView, JobView
from broker.core.market.offers import MoneyKind
from broker.core.ports import EngineState, Observation
from broker.core.values.money import Money


class LeftoverKind(StrEnum):
    """What is left over."""

    MACHINE = "machine_without_attempt"
    ATTEMPT = "attempt_without_machine"
    HOLD = "hold_without_either"


class LeftoverState(StrEnum):
    """What may be done about it. Only an ``orphan`` may be ended; of what is the ``reconciler``'s people are told."""

    ORPHAN = "orphan"
    TOO_YOUNG = "too_young"
    RECONCILER = "reconciler"
    ANOTHER_STORE = "another_store"
    UNKNOWN_OWNER = "unknown_owner"


@dataclass(frozen=True, slots=True)
class FoundMachine:
    """A machine that an engine or a provider (``place``) told of, under an attempt's ``key``.

    ``id``: the engine's handle, or the provider's name for it. ``tagged``: its tag proves that it is gpubroker's; a
    name that only looks like one of our keys proves nothing.
    """

    place: str
    by_engine: bool
    id: str
    key: str
    store: str
    since: datetime | None
    about: str
    tagged: bool = True


@dataclass(frozen=True, slots=True)
class HeldMoney:
    """Money that a job holds, and when it was last moved (UTC)."""

    job_id: str
    money: MoneyKind
    amount: Money
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that nobody looks after. ``since`` (UTC): when it came to be so, as far as is known. ``machine``,
    ``attempt`` and ``held``: whichever it is about. ``why``: a sentence for people. ``gone_at`` (UTC): when the machine
    of an attempt went, where its engine knows."""

    kind: LeftoverKind
    standing: LeftoverState
    job_id: str
    key: str
    since: datetime | None
    why: str
    machine: FoundMachine | None = None
    attempt: int | None = None
    held: HeldMoney | None = None
    gone_at: datetime | None = None

    @property
    def id(self) -> str:
        """Tells it from every other."""
        if self.machine is not None:
            return f"{self.machine.place}/{self.machine.id}"
        return f"{self.job_id}/{self.held.money}" if self.held is not None else self.key


def job_of(key: str) -> str:
    """The job whose attempt has that key."""
    return key.rpartition("-")[0]


def leftovers(
    machines: Iterable[FoundMachine],
    listed: Collection[str],
    jobs: Mapping[str, JobView],
    seen: Mapping[str, Observation],
    holds: Iterable[HeldMoney],
    *,
    store: str,
    now: datetime,
    grace: timedelta,
) -> list[Leftover]:
    """Everything that nobody looks after, machines first.

    ``listed``: the engines that listed their machines, all of them. ``jobs``: those not closed, and those that machines
    and holds name, as far as the store knows them. ``seen``: what engines answer about running attempts, by key.
    ``store``: this store's id. What came to be so less than ``grace`` ago is ``too_young``; so is a machine of which
    nobody knows since when it is there.
    """
    there = list(machines)
    found = [one for machine in there if (one := _machine(machine, jobs, store, now, grace)) is not None]
    keys = {machine.key for machine in there}
    found += _attempts(jobs.values(), listed, keys, seen, now, grace)
    found += [one for held in holds if (one := _hold(held, jobs.get(held.job_id), now, grace)) is not None]
    return found


def _machine(
    machine: FoundMachine, jobs: Mapping[str, JobView], store: str, now: datetime, grace: timedelta
) -> Leftover | None:
    view = jobs.get(job_of(machine.key))
    attempt = next((one for one in view.attempts if one.key == machine.key), None) if view is not None else None
    if attempt is not None and not attempt.over:
        return None  # looked after, also where it is being ended
    since = machine.since
    if machine.store and machine.store != store:
        standing, why = LeftoverState.ANOTHER_STORE, f"store {machine.store} asked for it; that one's sweep looks at it"
    elif attempt is not None:
        ended = attempt.gone_at or attempt.ended_at
        since = max((at for at in (since, ended) if at is not None), default=None)
        standing, why = _by_age(since, now, grace), f"attempt {attempt.number} is over and was taken for gone"
    elif machine.store:
        standing, why = _by_age(since, now, grace), "this store asked for it, and has no such attempt on record"
    elif machine.tagged:
        standing, why = LeftoverState.UNKNOWN_OWNER, "no tag says which store asked for it, and this one did not"
    else:
        return None  # somebody's, whose name looks like a key
    return Leftover(LeftoverKind.MACHINE, standing, job_of(machine.key), machine.key, since, why, machine=machine)


def _attempts(
    jobs: Iterable[JobView],
    listed: Collection[str],
    keys: Collection[str],
    seen: Mapping[str, Observation],
    now: datetime,
    grace: timedelta,
) -> Iterator[Leftover]:
    """Attempts whose engine lists its machines, and theirs is not among them, nor with any provider; and the engine
    itself says that there is none (a machine of another place it would call elsewhere)."""
    for view in jobs:
        for attempt in view.attempts:
            if attempt.over or attempt.launched_at is None or attempt.engine not in listed or attempt.key in keys:
                continue
            look = seen.get(attempt.key)
            if look is None or look.state not in (EngineState.LOST, EngineState.GONE):
                continue
            since, standing = attempt.ended_at, _by_age(attempt.ended_at, now, grace)
            why = f"{attempt.engine} has no machine of it: {look.evidence or look.state.value}"
            if not attempt.state.final:
                standing, why = LeftoverState.RECONCILER, f"{why}; the reconciler reads its last word and decides"
            elif look.state is EngineState.LOST and attempt.claimed_at is not None:
                # Engines forget, too; only the heartbeat tells whether it still speaks.
                standing, why = (
                    LeftoverState.RECONCILER,
                    f"{why}; the reconciler decides once its heartbeat stands still",
                )
            yield Leftover(
                LeftoverKind.ATTEMPT,
                standing,
                view.id,
                attempt.key,
                since,
                why,
                attempt=attempt.number,
                gone_at=look.gone_at,
            )


def _hold(held: HeldMoney, view: JobView | None, now: datetime, grace: timedelta) -> Leftover | None:
    """Money of a job that is not on record, closed, or ended with all its machines gone. What waits for a person, a
    place or the next attempt is held rightly."""
    if view is None:
        why, since = "no such job is on record", held.since
    elif view.closed:
        why, since = "its job is closed", view.ended_at
    elif view.state.final and all(attempt.over for attempt in view.attempts):
        why, since = f"its job {view.state.value}, and nothing of it runs", _last_end(view)
    else:
        return None
    standing = _by_age(since, now, grace)
    return Leftover(LeftoverKind.HOLD, standing, held.job_id, "", since, why, held=held)


def _last_end(view: JobView) -> datetime | None:
    def end(attempt: AttemptView) -> datetime | None:
        return attempt.gone_at or attempt.ended_at

    return max((at for at in (view.ended_at, *map(end, view.attempts)) if at is not None), default=None)


def _by_age(since: datetime | None, now: datetime, grace: timedelta) -> LeftoverState:
    return LeftoverState.ORPHAN if since is not None and now - since >= grace else LeftoverState.TOO_YOUNG
