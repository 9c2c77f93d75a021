"""Reports: what was spent, on what, for whom. Read from ledger and events; nothing is kept beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.app.wiring import Broker
from broker.core.errors import UnknownName
from broker.core.lifecycle import AttemptView, JobView
from broker.core.money import Money
from broker.core.offers import MoneyKind
from broker.launch.progress import machine_time
from broker.ledger.entries import Account, faults


@dataclass(frozen=True, slots=True)
class SpendRow:
    """One group's spend: cash and amortised (or sandbox) in USD, machine and GPU time in hours, jobs and attempts.

    ``held``: still set aside for running jobs of the group.
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


_BY: dict[str, Callable[[JobView, AttemptView], str | None]] = {
    "team": lambda view, attempt: view.job.team,
    "project": lambda view, attempt: view.job.project,
    "user": lambda view, attempt: view.user,
    "workload": lambda view, attempt: view.job.workload.value,
    "environment": lambda view, attempt: view.job.environment,
    "job": lambda view, attempt: view.id,
    "provider": lambda view, attempt: attempt.placement.offer.provider,
    "region": lambda view, attempt: attempt.placement.offer.region,
    "capacity_type": lambda view, attempt: attempt.placement.offer.capacity_type.value,
    "accelerator": lambda view, attempt: attempt.placement.offer.accelerator or "cpu",
    "instance_type": lambda view, attempt: attempt.placement.offer.instance_type,
}
DIMENSIONS = tuple(_BY)


def spend(
    broker: Broker, by: str, *, since: datetime | None = None, until: datetime | None = None, sandbox: bool = False
) -> list[SpendRow]:
    """Spend by one of `DIMENSIONS`, dearest first, of what was incurred in the half-open time (UTC; None: no bound).

    Sandbox money and machine time appear only with ``sandbox``, and then alone. Raises `UnknownName` for another
    dimension.
    """
    if by not in _BY:
        raise UnknownName("dimension", by, DIMENSIONS)
    now = broker.clock.now()
    groups: dict[str, list[tuple[JobView, AttemptView, dict[MoneyKind, Money], Money]]] = {}
    with broker.store.reading() as look:
        for view in look.jobs():
            entries = look.entries(view.id)
            held = look.balance(view.id)
            for attempt in view.attempts:
                if (attempt.placement.money is MoneyKind.SANDBOX) is not sandbox:
                    continue
                if not _touches(attempt, since, until, now):
                    continue
                spent: dict[MoneyKind, Money] = {}
                for e in entries:
                    if e.account is Account.SPENT and e.tags.attempt == attempt.number:
                        part = _within(e.amount, e.covers_from, e.covers_to, since, until)
                        spent[e.money] = spent.get(e.money, Money.ZERO) + part
                kind = attempt.placement.money
                set_aside = held[kind].held if attempt is view.latest and kind in held else Money.ZERO
                key = _BY[by](view, attempt) or "(none)"
                groups.setdefault(key, []).append((view, attempt, spent, set_aside))
    rows = [_row(group, members, now) for group, members in groups.items()]
    return sorted(rows, key=lambda r: (-(r.cash + r.amortised + r.sandbox).micros, r.group))


def _row(
    group: str, members: list[tuple[JobView, AttemptView, dict[MoneyKind, Money], Money]], now: datetime
) -> SpendRow:
    def total(kind: MoneyKind) -> Money:
        return sum((spent.get(kind, Money.ZERO) for _, _, spent, _ in members), Money.ZERO)

    hours = [(machine_time(a, now) / timedelta(hours=1), a.placement) for _, a, _, _ in members]
    return SpendRow(
        group=group,
        cash=total(MoneyKind.CASH),
        amortised=total(MoneyKind.AMORTISED),
        sandbox=total(MoneyKind.SANDBOX),
        held=sum((set_aside for *_, set_aside in members), Money.ZERO),
        gpu_hours=sum(h * p.gpus for h, p in hours),
        machine_hours=sum(h * p.nodes for h, p in hours),
        attempts=len(members),
        jobs=len({view.id for view, *_ in members}),
    )


def _touches(attempt: AttemptView, since: datetime | None, until: datetime | None, now: datetime) -> bool:
    start = attempt.up_since or attempt.requested_at
    end = (attempt.gone_at or now) if attempt.up_since else start
    return (until is None or start < until) and (since is None or end >= since)


def _within(amount: Money, start: datetime, end: datetime, since: datetime | None, until: datetime | None) -> Money:
    """The part of an entry's amount that falls into the time asked about, pro rata."""
    first, last = max(start, since or start), min(end, until or end)
    if end <= start:
        return amount if first == start and last == end else Money.ZERO
    microsecond = timedelta(microseconds=1)
    return amount.share(max((last - first) // microsecond, 0), (end - start) // microsecond)


def ledger_faults(broker: Broker) -> list[str]:
    """What is wrong with the ledger, in sentences; empty when it balances."""
    with broker.store.reading() as look:
        return faults(look.entries())
