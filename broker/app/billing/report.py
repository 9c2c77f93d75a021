"""Spend by period and dimension, summed by the store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from broker.app.billing.months import EVER, MONTH, ReportPeriod, months_before, report_timezone
from broker.app.results.reports import SpendGroup, SpendReport, SpendTotal
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, UnknownName
from broker.core.events.views import JobView
from broker.core.market.offers import MoneyKind, Offer
from broker.core.values.money import Money
from broker.finops.focus.months import BillingMonth
from broker.ledger.budgets import periods_touching
from broker.ledger.entries import Balance, faults

if TYPE_CHECKING:
    from broker.store.jobs.reading import StoreReading
    from broker.store.ledger.spending import SpendingPeriod, Spent


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
DIMENSIONS = (*_OF_JOB, *_OF_OFFER, MONTH)
_SUMS = ("cash", "amortised", "sandbox", "held", "bought", "rented")
_MOMENT = timedelta(microseconds=1)


def spend(
    broker: Broker,
    by: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    sandbox: bool = False,
    timezone: str | None = None,
) -> list[SpendGroup]:
    """Spend by one of `DIMENSIONS`, or by several (``team,user,month``), most expensive first, incurred in the
    half-open period (UTC; None: no bound; by month: `months_before` until now). ``timezone``: of months; None:
    `report_timezone`.

    With ``sandbox``, only sandbox money and machine time; without it, none. Raises `UnknownName` for an unknown
    dimension, and `InvalidInput` for a repeated one.
    """
    names = by.split(",")
    for name in names:
        if name not in DIMENSIONS:
            raise UnknownName("dimension", name, DIMENSIONS)
    if len(set(names)) < len(names):
        raise InvalidInput(f"a dimension is named twice: {by}", where="--by")
    from broker.store.ledger.spending import SpendingPeriod  # most commands do without

    now = broker.clock.now()
    others = [name for name in names if name != MONTH]
    if MONTH not in names:
        rows = _rows(broker, by, SpendingPeriod(since, until, now, sandbox))
    else:
        place, rows, local = names.index(MONTH), [], report_timezone(broker, timezone)
        with broker.store.reading() as look:
            begins = look.first_machine_time() or now  # each earlier month would scan all later machine time
        earliest = max(since or months_before(now, local), begins)
        for start, end in periods_touching(MONTH, local, (earliest, max(until or now + _MOMENT, earliest))):
            name, first, last = BillingMonth(start, end, local).name, max(start, since or start), min(end, until or end)
            if first >= last:
                continue
            for row in _rows(broker, ",".join(others), SpendingPeriod(first, last, now, sandbox)):
                rows.append(row.named((*row.values[:place], name, *row.values[place:])))
    return sorted(rows, key=lambda r: (-(r.cash + r.amortised + r.sandbox).micros, r.values))


Shared = Callable[[tuple[Hashable, ...], Callable[[], Sequence[SpendGroup]]], Sequence[SpendGroup]]
"""From a key and a function, the rows of the function, or its cached rows for the same key."""


def bought_in_advance(
    broker: Broker, *, since: datetime | None = None, until: datetime | None = None, sandbox: bool = False
) -> Money:
    """The payments in the period (as in `spend`) for capacity bought in advance (USD). No row of `spend` contains them:
    rows contain the use of such capacity, as amortized cost."""
    from broker.store.ledger.spending import SpendingPeriod  # most commands do without

    with broker.store.reading() as look:
        return look.bought_in_advance(SpendingPeriod(since, until, broker.clock.now(), sandbox))


def spend_report(
    broker: Broker,
    dimensions: str,
    teams: Collection[str] | None = None,
    *,
    period: ReportPeriod = EVER,
    sandbox: bool = False,
    only: Mapping[str, str] | None = None,
    shared: Shared = lambda _, rows: rows(),
) -> SpendReport:
    """As `spend`, of these teams alone (None: of all, and of no team); by month from `months_before` on if no start is
    given. ``only``: of these values of other dimensions. What was bought in advance is known for all teams only."""
    local, (since, until) = report_timezone(broker, period.timezone), period.bounds(broker)
    names = [name.strip().replace("-", "_") for name in dimensions.split(",")]
    kept = dict(only or {})
    if MONTH in (*kept, *names) and since is None:
        since = months_before(broker.clock.now(), local)
    whole = ",".join([*kept, *names])
    of_teams = "team" not in whole.split(",") and teams is not None  # a job has one team, so that no job counts twice
    by = f"team,{whole}" if of_teams else whole
    rows = shared(
        (by, since, until, sandbox, local),
        lambda: spend(broker, by, since=since, until=until, sandbox=sandbox, timezone=local),
    )
    if teams is not None:
        rows = _of_teams(rows, by.split(",").index("team"), teams, named=not of_teams)
    wanted, more = tuple(kept.values()), len(kept)
    rows = [row.named(row.values[more:]) for row in rows if row.values[:more] == wanted]
    ahead = None
    if teams is None and not kept:
        ahead = bought_in_advance(broker, since=since, until=until, sandbox=sandbox)
    sums = {name: sum((getattr(row, name) for row in rows), Money.ZERO) for name in _SUMS}
    return SpendReport(
        by=",".join(names),
        since=since,
        until=until,
        timezone=local,
        sandbox_only=sandbox,
        rows=rows,
        total=SpendTotal(bought_in_advance=ahead, **sums),
    )


def _of_teams(rows: Iterable[SpendGroup], place: int, teams: Collection[str], *, named: bool) -> list[SpendGroup]:
    """The rows of these teams, without the team if it is not ``named``. ``place``: of the team."""
    found: dict[tuple[str, ...], SpendGroup] = {}
    for row in rows:
        if row.values[place] in teams:
            values = row.values if named else row.values[1:]
            found[values] = (found[values] + row if values in found else row).named(values)
    return sorted(found.values(), key=lambda r: (-(r.cash + r.amortised + r.sandbox).micros, r.values))


def _rows(broker: Broker, by: str, period: SpendingPeriod) -> list[SpendGroup]:
    """Rows by dimensions of jobs and offers; without dimensions, one row."""
    from broker.store.ledger.spending import SEPARATOR, Spent  # most commands do without

    now, until = period.now, period.until
    held: dict[str, Money] = {}
    with broker.store.reading() as look:
        found = dict(look.spent_by(by, period))
        if until is None or until > now:
            held = _held(look, by, period, found)
    return [
        _row(tuple(group.split(SEPARATOR)) if by else (), found.get(group) or Spent(), held.get(group, Money.ZERO))
        for group in {*found, *held}
    ]


def _held(look: StoreReading, by: str, period: SpendingPeriod, found: dict[str, Spent]) -> dict[str, Money]:
    """All holds by group: of jobs, launches outside gpubroker and purchases. Jobs with holds but no machines in the
    period are added to ``found``."""
    from broker.store.ledger.spending import SEPARATOR, Spent

    amounts = {id: _amount(balance, period.sandbox) for id, balance in look.holding().items()}
    amounts = {id: amount for id, amount in amounts.items() if amount}
    values: dict[str, Mapping[str, str | None]] = {view.id: _of_job(view) for view in look.views(list(amounts))}
    jobs = set(values)
    others = sorted(amounts.keys() - jobs)
    for id, entries in look.entries_of(others):
        tags = entries[-1].tags
        values[id] = asdict(tags) | {"job": id, "accelerator": tags.accelerator or "cpu"}
        jobs |= {id} if tags.attempt else set()  # a purchase is not a job
    counted = look.groups_of(by, period, list(jobs))
    held: dict[str, Money] = {}
    for id, of in values.items():
        group = SEPARATOR.join(of.get(name) or "(none)" for name in by.split(",")) if by else ""
        held[group] = held.get(group, Money.ZERO) + amounts[id]
        if id in jobs and (id, group) not in counted:
            found.setdefault(group, Spent()).jobs += 1
    return held


def _of_job(view: JobView) -> Mapping[str, str | None]:
    """The values of a job, and of the place of its latest attempt."""
    of_job = {name: value(view) for name, value in _OF_JOB.items()}
    placed = {name: value(view.latest.placement.offer) for name, value in _OF_OFFER.items()} if view.latest else {}
    return {**of_job, **placed}


def _amount(balance: Mapping[MoneyKind, Balance], sandbox: bool) -> Money:
    kinds = (kind for kind in balance if (kind is MoneyKind.SANDBOX) is sandbox)
    return sum((balance[kind].held for kind in kinds), Money.ZERO)


def _row(values: tuple[str, ...], spent: Spent, held: Money) -> SpendGroup:
    cash, amortised, sandbox = (
        spent.money.get(kind, Money.ZERO) for kind in (MoneyKind.CASH, MoneyKind.AMORTISED, MoneyKind.SANDBOX)
    )
    return SpendGroup(
        group=", ".join(values),
        values=values,
        cash=cash,
        amortised=amortised,
        sandbox=sandbox,
        held=held,
        gpu_hours=spent.gpu_hours,
        machine_hours=spent.machine_hours,
        attempts=spent.attempts,
        jobs=spent.jobs,
        bought=spent.bought,
        rented=cash + amortised + sandbox - spent.bought,
    )


def ledger_faults(broker: Broker) -> list[str]:
    """The faults of the ledger in words; empty if it balances."""
    with broker.store.reading() as look:
        return faults(look.all_entries())
