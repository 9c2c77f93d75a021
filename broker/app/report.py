"""Reports: what was spent, on what, for whom. Read from ledger and events; nothing is kept beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from broker.app.wiring import Broker
from broker.core.errors import UnknownName
from broker.core.money import Money
from broker.core.offers import MoneyKind, Offer
from broker.core.placements import Placement
from broker.core.views import AttemptView, JobView
from broker.ledger.budgets import Window, share_within
from broker.ledger.entries import Account, Balance, Entry, faults


@dataclass(frozen=True, slots=True)
class SpendRow:
    """One group's spend: cash and amortised (or sandbox) in USD, machine and GPU time in hours, jobs and attempts.

    Machine and GPU time, and the attempts, are those of the time asked about. ``held``: what is set aside now for jobs
    of the group, waiting ones included, whatever pays for the machines they have at the moment; a job counts where its
    latest attempt is. Money for a time that has passed is not held, so it is zero in reports that end before now.
    """

    group: str
    cash: Money
    amortised: Money
    sandbox: Money
    held: Money
    gpu_hours: float
    machine_hours: float
    attempts: int
    jobs: int


_OF_JOB: dict[str, Callable[[JobView], str | None]] = {
    "team": lambda view: view.job.team,
    "project": lambda view: view.job.project,
    "user": lambda view: view.user,
    "workload": lambda view: view.job.workload.value,
    "environment": lambda view: view.job.environment,
    "job": lambda view: view.id,
}
_OF_OFFER: dict[str, Callable[[Offer], str]] = {
    "provider": lambda offer: offer.provider,
    "region": lambda offer: offer.region,
    "capacity_type": lambda offer: offer.capacity_type.value,
    "accelerator": lambda offer: offer.accelerator or "cpu",
    "instance_type": lambda offer: offer.instance_type,
}
DIMENSIONS = (*_OF_JOB, *_OF_OFFER)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one attempt adds to its group; or, without one, what its job holds."""

    job_id: str
    spent: Mapping[MoneyKind, Money]
    held: Money
    hours: float
    placement: Placement | None


def spend(
    broker: Broker, by: str, *, since: datetime | None = None, until: datetime | None = None, sandbox: bool = False
) -> list[SpendRow]:
    """Spend by one of `DIMENSIONS`, dearest first, of what was incurred in the half-open time (UTC; None: no bound).

    Sandbox money and machine time appear only with ``sandbox``, and then alone. Raises `UnknownName` for another
    dimension.
    """
    if by not in DIMENSIONS:
        raise UnknownName("dimension", by, DIMENSIONS)
    now = broker.clock.now()
    window = (since or datetime.min.replace(tzinfo=UTC), until or datetime.max.replace(tzinfo=UTC))
    groups: dict[str, list[_Part]] = {}
    with broker.store.reading() as look:
        for view in look.jobs():
            entries = look.entries(view.id)
            for attempt in view.attempts:
                if (attempt.placement.money is MoneyKind.SANDBOX) is not sandbox:
                    continue
                if _touches(attempt, since, until, now):
                    own = [e for e in entries if e.account is Account.SPENT and e.tags.attempt == attempt.number]
                    hours = _time_within(attempt, window, now) / timedelta(hours=1)
                    part = _Part(view.id, _spent(own, window), Money.ZERO, hours, attempt.placement)
                    groups.setdefault(_group(by, view, attempt), []).append(part)
            held = _held(look.balance(view.id), sandbox) if window[1] > now else Money.ZERO
            if held:
                part = _Part(view.id, {}, held, 0.0, None)
                groups.setdefault(_group(by, view, view.latest), []).append(part)
    rows = [_row(group, parts) for group, parts in groups.items()]
    return sorted(rows, key=lambda r: (-(r.cash + r.amortised + r.sandbox).micros, r.group))


def _group(by: str, view: JobView, attempt: AttemptView | None) -> str:
    if by in _OF_JOB:
        return _OF_JOB[by](view) or "(none)"
    return _OF_OFFER[by](attempt.placement.offer) if attempt else "(none)"


def _held(balance: Mapping[MoneyKind, Balance], sandbox: bool) -> Money:
    kinds = (kind for kind in balance if (kind is MoneyKind.SANDBOX) is sandbox)
    return sum((balance[kind].held for kind in kinds), Money.ZERO)


def _spent(entries: Iterable[Entry], window: Window) -> dict[MoneyKind, Money]:
    """What the entries come to in the time asked about, by kind of money; those that straddle an edge pro rata."""
    spent: dict[MoneyKind, Money] = {}
    for entry in entries:
        part = share_within(entry.amount, (entry.covers_from, entry.covers_to), window)
        spent[entry.money] = spent.get(entry.money, Money.ZERO) + part
    return spent


def _row(group: str, parts: Sequence[_Part]) -> SpendRow:
    def total(kind: MoneyKind) -> Money:
        return sum((part.spent.get(kind, Money.ZERO) for part in parts), Money.ZERO)

    ran = [(part.hours, part.placement) for part in parts if part.placement is not None]
    return SpendRow(
        group=group,
        cash=total(MoneyKind.CASH),
        amortised=total(MoneyKind.AMORTISED),
        sandbox=total(MoneyKind.SANDBOX),
        held=sum((part.held for part in parts), Money.ZERO),
        gpu_hours=sum(hours * placement.gpus for hours, placement in ran),
        machine_hours=sum(hours * placement.nodes for hours, placement in ran),
        attempts=len(ran),
        jobs=len({part.job_id for part in parts}),
    )


def _touches(attempt: AttemptView, since: datetime | None, until: datetime | None, now: datetime) -> bool:
    start = attempt.up_since or attempt.requested_at
    end = (attempt.gone_at or now) if attempt.up_since else start
    return (until is None or start < until) and (since is None or end >= since)


def _time_within(attempt: AttemptView, window: Window, now: datetime) -> timedelta:
    """How long the attempt's machine existed in the time asked about, so far."""
    if attempt.up_since is None:
        return timedelta(0)
    end = attempt.gone_at if attempt.gone and attempt.gone_at else now
    return max(min(end, window[1]) - max(attempt.up_since, window[0]), timedelta(0))


def ledger_faults(broker: Broker) -> list[str]:
    """What is wrong with the ledger, in sentences; empty when it balances."""
    with broker.store.reading() as look:
        return faults(look.entries())
