"""Finds orphans: machines without an attempt, attempts without a machine, money held for neither. Pure.

Machines must be listed *before* the jobs are read: a launch is recorded before any engine is called, so a listed
machine without a recorded attempt was not just started. The store tag identifies a machine's owner; a machine without
one belongs to a store only if that store knows its attempt. Machines of another store are never orphans.

An attempt that has not ended, or may still report, is not an orphan either: its exit record may be in its run folder,
which is not read here. If it were treated as lost, a finished job would run again. `broker.reconciler.interpret`
decides about it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from broker.core.events.views import AttemptView, JobView
from broker.core.market.offers import MoneyKind
from broker.core.ports import EngineState, Observation
from broker.core.values.money import Money
from broker.reconciler.admission.records import job_of


class LeftoverKind(StrEnum):
    """The kind of leftover."""

    MACHINE = "machine_without_attempt"
    ATTEMPT = "attempt_without_machine"
    HOLD = "hold_without_either"


class LeftoverState(StrEnum):
    """The state of a leftover. Only an ``orphan`` may be ended; those of the ``reconciler`` are only reported."""

    ORPHAN = "orphan"
    TOO_YOUNG = "too_young"
    RECONCILER = "reconciler"
    ANOTHER_STORE = "another_store"
    UNKNOWN_OWNER = "unknown_owner"


@dataclass(frozen=True, slots=True)
class FoundMachine:
    """A machine reported by an engine or a provider (``place``), with an attempt's ``key``.

    ``id``: the engine's handle, or the provider's id. ``tagged``: a tag proves that it is gpubroker's; a name in the
    form of a key alone proves nothing.
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
    """One leftover. ``since`` (UTC): its beginning, if known. ``machine``, ``attempt`` or ``held``: the subject.
    ``why``: a sentence for people. ``gone_at`` (UTC): the end of an attempt's machine, if its engine knows it."""

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
        """Unique among leftovers."""
        if self.machine is not None:
            return f"{self.machine.place}/{self.machine.id}"
        return f"{self.job_id}/{self.held.money}" if self.held is not None else self.key


def leftovers(
    machines: Iterable[FoundMachine],
    listed_engines: Collection[str],
    jobs: Mapping[str, JobView],
    seen: Mapping[str, Observation],
    holds: Iterable[HeldMoney],
    *,
    store: str,
    now: datetime,
    grace: timedelta,
) -> list[Leftover]:
    """All leftovers, machines first.

    ``listed_engines``: the engines that listed all their machines. ``jobs``: the open jobs, and those named by machines
    and holds, if in the store. ``seen``: reports of engines about attempts, by key. ``store``: this store's id.
    Leftovers younger than ``grace``, and machines of unknown age, are ``too_young``.
    """
    all_machines = list(machines)
    keys = {machine.key for machine in all_machines}
    candidates = [
        *(_machine_leftover(machine, jobs, store, now, grace) for machine in all_machines),
        *_attempts(jobs.values(), listed_engines, keys, seen, now, grace),
        *(_hold_leftover(held, jobs.get(held.job_id), now, grace) for held in holds),
    ]
    return [leftover for leftover in candidates if leftover is not None]


def _machine_leftover(
    machine: FoundMachine, jobs: Mapping[str, JobView], store: str, now: datetime, grace: timedelta
) -> Leftover | None:
    view = jobs.get(job_of(machine.key))
    attempts = view.attempts if view is not None else ()
    attempt = next((candidate for candidate in attempts if candidate.key == machine.key), None)
    if attempt is not None and not attempt.over:
        return None  # in use, or its end is under way
    since = machine.since
    if machine.store and machine.store != store:
        standing = LeftoverState.ANOTHER_STORE
        reason = f"store {machine.store} asked for it; that store's sweep checks it"
    elif attempt is not None:
        ended = attempt.gone_at or attempt.ended_at
        since = max((at for at in (since, ended) if at is not None), default=None)
        standing = _by_age(since, now, grace)
        reason = f"attempt {attempt.number} is over, and its machine was assumed gone"
    elif machine.store:
        standing, reason = _by_age(since, now, grace), "this store asked for it, and has no such attempt on record"
    elif machine.tagged:
        standing, reason = LeftoverState.UNKNOWN_OWNER, "no tag says which store asked for it, and this one did not"
    else:
        return None  # a foreign machine with a name in the form of a key
    return Leftover(LeftoverKind.MACHINE, standing, job_of(machine.key), machine.key, since, reason, machine=machine)


def _attempts(
    jobs: Iterable[JobView],
    listed_engines: Collection[str],
    keys: Collection[str],
    seen: Mapping[str, Observation],
    now: datetime,
    grace: timedelta,
) -> Iterator[Leftover]:
    """Attempts whose machine is neither listed by their engine nor by any provider, and of which the engine reports
    that it does not exist."""
    for view in jobs:
        for attempt in view.attempts:
            if (
                attempt.over
                or attempt.launched_at is None
                or attempt.engine not in listed_engines
                or attempt.key in keys
            ):
                continue
            observation = seen.get(attempt.key)
            if observation is None or observation.state not in (EngineState.LOST, EngineState.GONE):
                continue
            since, standing = attempt.ended_at, _by_age(attempt.ended_at, now, grace)
            reason = f"{attempt.engine} has no machine of it: {observation.evidence or observation.state.value}"
            if not attempt.state.final:
                standing, reason = (
                    LeftoverState.RECONCILER,
                    f"{reason}; the reconciler reads its final report and decides",
                )
            elif observation.state is EngineState.LOST and attempt.claimed_at is not None:
                # Engines forget machines; only the heartbeat shows whether a machine still runs.
                standing, reason = (
                    LeftoverState.RECONCILER,
                    f"{reason}; the reconciler decides once its heartbeat stands still",
                )
            yield Leftover(
                LeftoverKind.ATTEMPT,
                standing,
                view.id,
                attempt.key,
                since,
                reason,
                attempt=attempt.number,
                gone_at=observation.gone_at,
            )


def _hold_leftover(held: HeldMoney, view: JobView | None, now: datetime, grace: timedelta) -> Leftover | None:
    """Money held for a job that is not on record, closed, or ended with all machines gone. Holds of waiting jobs are
    legitimate."""
    if view is None:
        reason, since = "no such job is on record", held.since
    elif view.closed:
        reason, since = "its job is closed", view.ended_at
    elif view.state.final and all(attempt.over for attempt in view.attempts):
        reason, since = f"its job {view.state.value}, and nothing of it runs", _last_end(view)
    else:
        return None
    standing = _by_age(since, now, grace)
    return Leftover(LeftoverKind.HOLD, standing, held.job_id, "", since, reason, held=held)


def _last_end(view: JobView) -> datetime | None:
    def end(attempt: AttemptView) -> datetime | None:
        return attempt.gone_at or attempt.ended_at

    return max((at for at in (view.ended_at, *map(end, view.attempts)) if at is not None), default=None)


def _by_age(since: datetime | None, now: datetime, grace: timedelta) -> LeftoverState:
    return LeftoverState.ORPHAN if since is not None and now - since >= grace else LeftoverState.TOO_YOUNG
