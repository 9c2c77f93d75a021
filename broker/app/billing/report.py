"""Reports: what was spent, on what, for whom. Added up by the store, of the time asked about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from broker.app.wiring import Broker
from broker.core.errors import UnknownName
from broker.core.events.views import JobView
from broker.core.market.offers import MoneyKind, Offer
from broker.core.values.money import Money
from broker.ledger.entries import Balance, faults

if TYPE_CHECKING:
    from broker.store.jobs.journal import StoreReading
    from broker.store.ledger.spending import SpendingPeriod, Spent


@dataclass(frozen=True, slots=True)
class SpendRow:
    """One group's spend: cash and amortised (or sandbox) in USD, machine and GPU time in hours, jobs and attempts.

    Machine and GPU time, and the attempts, are those of the time asked about; an attempt counts once its machines have
    come up. ``held``: what is set aside now for jobs of the group, waiting ones included, whatever pays for the
    machines they have at the moment; a job counts where its latest attempt is. Money for a time that has passed is not
    held, so it is zero in reports that end before now.
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


def spend(
    broker: Broker, by: str, *, since: datetime | None = None, until: datetime | None = None, sandbox: bool = False
) -> list[SpendRow]:
    """Spend by one of `DIMENSIONS`, dearest first, of what was incurred in the half-open time (UTC; None: no bound).

    Sandbox money and machine time appear only with ``sandbox``, and then alone. Raises `UnknownName` for another
    dimension.
    """
    if by not in DIMENSIONS:
        raise UnknownName("dimension", by, DIMENSIONS)
    from broker.store.ledger.spending import SpendingPeriod, Spent  # most commands do without

    now = broker.clock.now()
    period = SpendingPeriod(since, until, now, sandbox)
    held: dict[str, Money] = {}
    with broker.store.reading() as look:
        found = dict(look.spent_by(by, period))
        if until is None or until > now:
            held = _held(look, by, period, found)
    rows = [_row(group, found.get(group) or Spent(), held.get(group, Money.ZERO)) for group in {*found, *held}]
    return sorted(rows, key=lambda r: (-(r.cash + r.amortised + r.sandbox).micros, r.group))


def _held(look: StoreReading, by: str, period: SpendingPeriod, found: dict[str, Spent]) -> dict[str, Money]:
    """What jobs hold, by group. Jobs that hold money and had no machines in the period are added to those of their
    group in ``found``."""
    from broker.store.ledger.spending import Spent

    amounts = {job_id: _amount(balance, period.sandbox) for job_id, balance in look.holding().items()}
    views = look.views([job_id for job_id, amount in amounts.items() if amount])
    counted = look.groups_of(by, period, [view.id for view in views])
    held: dict[str, Money] = {}
    for view in views:
        group = _group(by, view)
        held[group] = held.get(group, Money.ZERO) + amounts[view.id]
        if (view.id, group) not in counted:
            found.setdefault(group, Spent()).jobs += 1
    return held


def _group(by: str, view: JobView) -> str:
    if by in _OF_JOB:
        return _OF_JOB[by](view) or "(none)"
    return _OF_OFFER[by](view.latest.placement.offer) if view.latest else "(none)"


def _amount(balance: Mapping[MoneyKind, Balance], sandbox: bool) -> Money:
    kinds = (kind for kind in balance if (kind is MoneyKind.SANDBOX) is sandbox)
    return sum((balance[kind].held for kind in kinds), Money.ZERO)


def _row(group: str, spent: Spent, held: Money) -> SpendRow:
    return SpendRow(
        group=group,
        cash=spent.money.get(MoneyKind.CASH, Money.ZERO),
        amortised=spent.money.get(MoneyKind.AMORTISED, Money.ZERO),
        sandbox=spent.money.get(MoneyKind.SANDBOX, Money.ZERO),
        held=held,
        gpu_hours=spent.gpu_hours,
        machine_hours=spent.machine_hours,
        attempts=spent.attempts,
        jobs=spent.jobs,
    )


def ledger_faults(broker: Broker) -> list[str]:
    """What is wrong with the ledger, in sentences; empty when it balances."""
    with broker.store.reading() as look:
        return faults(look.all_entries())
