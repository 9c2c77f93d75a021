"""Spend by period and dimension, summed by the store; and as a file, CSV or Parquet with the extra ``parquet``.

People open CSV in spreadsheets, which calculate text that begins like a formula: names of places come from providers,
names of users from their machines. Such text gets an apostrophe before it; amounts, negative ones too, stay numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from broker.app.billing.focus import check_output_path, write_table
from broker.app.billing.months import ALL_TIME, MONTH, ReportPeriod, begun_period_bounds, months_before, report_timezone
from broker.app.billing.report_documents import ForecastsReport, SpendGroup, SpendReport, SpendTotal
from broker.app.finished_runs import finished_runs, peaks
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, UnknownName
from broker.core.events.views import JobView
from broker.core.market.offers import MoneyKind, Offer
from broker.core.values.money import Money
from broker.ledger.budgets import periods_touching
from broker.ledger.entries import Balance, faults
from broker.ledger.finops.accuracy import measured_speeds, prediction_errors
from broker.ledger.finops.focus.months import BillingMonth

if TYPE_CHECKING:
    from broker.store.jobs.reader import StoreReader
    from broker.store.ledger.spending import GroupSpending, SpendingPeriod


_JOB_DIMENSIONS: dict[str, Callable[[JobView], str | None]] = {
    "team": lambda view: view.job.team,
    "project": lambda view: view.job.project,
    "user": lambda view: view.user,
    "workload": lambda view: view.job.workload.value,
    "environment": lambda view: view.job.environment,
    "job": lambda view: view.id,
}
_OFFER_DIMENSIONS: dict[str, Callable[[Offer], str]] = {
    "provider": lambda offer: offer.provider,
    "region": lambda offer: offer.region,
    "capacity_type": lambda offer: offer.capacity_type.value,
    "accelerator": lambda offer: offer.accelerator or "cpu",
    "instance_type": lambda offer: offer.instance_type,
}
DIMENSIONS = (*_JOB_DIMENSIONS, *_OFFER_DIMENSIONS, MONTH)
_SUM_FIELDS = ("cash", "amortised", "sandbox", "held", "bought", "rented")
_MICROSECOND = timedelta(microseconds=1)


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
    other_names = [name for name in names if name != MONTH]
    if MONTH not in names:
        rows = _spend_groups(broker, by, SpendingPeriod(since, until, now, sandbox))
    else:
        month_index, rows, zone_name = names.index(MONTH), [], report_timezone(broker, timezone)
        with broker.store.reading() as reader:
            first_use = reader.first_machine_time() or now  # each earlier month would scan all later machine time
        earliest = max(since or months_before(now, zone_name), first_use)
        for start, end in periods_touching(MONTH, zone_name, (earliest, max(until or now + _MICROSECOND, earliest))):
            first, last = max(start, since or start), min(end, until or end)
            if first >= last:
                continue
            month = BillingMonth(start, end, zone_name).name
            for row in _spend_groups(broker, ",".join(other_names), SpendingPeriod(first, last, now, sandbox)):
                rows.append(row.with_values((*row.values[:month_index], month, *row.values[month_index:])))
    return sorted(rows, key=lambda r: (-(r.cash + r.amortised + r.sandbox).micros, r.values))


RowCache = Callable[[tuple[Hashable, ...], Callable[[], Sequence[SpendGroup]]], Sequence[SpendGroup]]
"""From a key and a function, the rows of the function, or its cached rows for the same key."""


def bought_in_advance(
    broker: Broker, *, since: datetime | None = None, until: datetime | None = None, sandbox: bool = False
) -> Money:
    """The payments in the period (as in `spend`) for capacity bought in advance (USD). No row of `spend` contains them:
    rows contain the use of such capacity, as amortized cost."""
    from broker.store.ledger.spending import SpendingPeriod  # most commands do without

    with broker.store.reading() as reader:
        return reader.bought_in_advance(SpendingPeriod(since, until, broker.clock.now(), sandbox))


def spend_report(
    broker: Broker,
    dimensions: str,
    teams: Collection[str] | None = None,
    *,
    period: ReportPeriod = ALL_TIME,
    sandbox: bool = False,
    only: Mapping[str, str] | None = None,
    cached: RowCache = lambda _, rows: rows(),
) -> SpendReport:
    """As `spend`, of these teams alone (None: of all, and of no team); by month from `months_before` on if no start is
    given. ``only``: of these values of other dimensions. What was bought in advance is known for all teams only."""
    zone_name, (since, until) = report_timezone(broker, period.timezone), period.bounds(broker)
    names = [name.strip().replace("-", "_") for name in dimensions.split(",")]
    filters = dict(only or {})
    if MONTH in (*filters, *names) and since is None:
        since = months_before(broker.clock.now(), zone_name)
    all_dimensions = ",".join([*filters, *names])
    adds_team = (
        "team" not in all_dimensions.split(",") and teams is not None
    )  # a job has one team, so that no job counts twice
    by = f"team,{all_dimensions}" if adds_team else all_dimensions
    rows = cached(
        (by, since, until, sandbox, zone_name),
        lambda: spend(broker, by, since=since, until=until, sandbox=sandbox, timezone=zone_name),
    )
    if teams is not None:
        rows = _team_rows(rows, by.split(",").index("team"), teams, keeps_team=not adds_team)
    filter_values, filter_count = tuple(filters.values()), len(filters)
    rows = [row.with_values(row.values[filter_count:]) for row in rows if row.values[:filter_count] == filter_values]
    advance_payments = None
    if teams is None and not filters:
        advance_payments = bought_in_advance(broker, since=since, until=until, sandbox=sandbox)
    sums = {name: sum((getattr(row, name) for row in rows), Money.ZERO) for name in _SUM_FIELDS}
    return SpendReport(
        by=",".join(names),
        since=since,
        until=until,
        timezone=zone_name,
        sandbox_only=sandbox,
        rows=rows,
        total=SpendTotal(bought_in_advance=advance_payments, **sums),
    )


def _team_rows(
    rows: Iterable[SpendGroup], team_index: int, teams: Collection[str], *, keeps_team: bool
) -> list[SpendGroup]:
    """The rows of these teams, without the team if it is not ``keeps_team``. ``team_index``: of the team."""
    rows_by_values: dict[tuple[str, ...], SpendGroup] = {}
    for row in rows:
        if row.values[team_index] in teams:
            values = row.values if keeps_team else row.values[1:]
            total = rows_by_values[values] + row if values in rows_by_values else row
            rows_by_values[values] = total.with_values(values)
    return sorted(rows_by_values.values(), key=lambda r: (-(r.cash + r.amortised + r.sandbox).micros, r.values))


def _spend_groups(broker: Broker, by: str, period: SpendingPeriod) -> list[SpendGroup]:
    """Rows by dimensions of jobs and offers; without dimensions, one row."""
    from broker.store.ledger.spending import SEPARATOR, GroupSpending  # most commands do without

    now, until = period.now, period.until
    held_by_group: dict[str, Money] = {}
    with broker.store.reading() as reader:
        spend_by_group = dict(reader.spent_by(by, period))
        if until is None or until > now:
            held_by_group = _held_by_group(reader, by, period, spend_by_group)
    return [
        _row(
            tuple(group.split(SEPARATOR)) if by else (),
            spend_by_group.get(group) or GroupSpending(),
            held_by_group.get(group, Money.ZERO),
        )
        for group in {*spend_by_group, *held_by_group}
    ]


def _held_by_group(
    reader: StoreReader, by: str, period: SpendingPeriod, spend_by_group: dict[str, GroupSpending]
) -> dict[str, Money]:
    """All holds by group: of jobs, launches outside gpubroker and purchases. Jobs with holds but no machines in the
    period are added to ``spend_by_group``."""
    from broker.store.ledger.spending import SEPARATOR, GroupSpending

    amounts = {id: _amount(balance, period.sandbox) for id, balance in reader.holding().items()}
    amounts = {id: amount for id, amount in amounts.items() if amount}
    values: dict[str, Mapping[str, str | None]] = {view.id: _job_values(view) for view in reader.views(list(amounts))}
    jobs = set(values)
    launch_ids = sorted(amounts.keys() - jobs)
    for id, entries in reader.entries_of(launch_ids):
        tags = entries[-1].tags
        values[id] = asdict(tags) | {"job": id, "accelerator": tags.accelerator or "cpu"}
        jobs |= {id} if tags.attempt else set()  # a purchase is not a job
    counted_groups = reader.groups_of(by, period, list(jobs))
    held_by_group: dict[str, Money] = {}
    for id, dimension_values in values.items():
        group = SEPARATOR.join(dimension_values.get(name) or "(none)" for name in by.split(",")) if by else ""
        held_by_group[group] = held_by_group.get(group, Money.ZERO) + amounts[id]
        if id in jobs and (id, group) not in counted_groups:
            spend_by_group.setdefault(group, GroupSpending()).jobs += 1
    return held_by_group


def _job_values(view: JobView) -> Mapping[str, str | None]:
    """The values of a job, and of the place of its latest attempt."""
    job_values = {name: value(view) for name, value in _JOB_DIMENSIONS.items()}
    offer_values = (
        {name: value(view.latest.placement.offer) for name, value in _OFFER_DIMENSIONS.items()} if view.latest else {}
    )
    return {**job_values, **offer_values}


def _amount(balance: Mapping[MoneyKind, Balance], sandbox: bool) -> Money:
    kinds = (kind for kind in balance if (kind is MoneyKind.SANDBOX) is sandbox)
    return sum((balance[kind].held for kind in kinds), Money.ZERO)


def _row(values: tuple[str, ...], spent: GroupSpending, held: Money) -> SpendGroup:
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
    with broker.store.reading() as reader:
        return faults(reader.all_entries())


_HOURS = ("gpu_hours", "machine_hours")
_COUNTS = ("attempts", "jobs")


def write_spend(out: Path, report: SpendReport) -> None:
    """Write every row, with columns of the money that was asked for alone.

    Raises `InvalidInput` for another ending, an existing file, or a folder that is not writable,
    and `MissingExtra`."""
    check_output_path(out)
    money = [*(("sandbox",) if report.sandbox_only else ("cash", "amortised")), "held", "bought", "rented"]
    kinds = {Decimal: money, float: _HOURS, int: _COUNTS}
    columns = dict.fromkeys(report.by.split(","), str) | {name: kind for kind in kinds for name in kinds[kind]}
    write_table(out, columns, [_cells(row, money) for row in report.rows])


def _cells(row: SpendGroup, money: Iterable[str]) -> list[str | Decimal | float | int]:
    amounts = [Decimal(getattr(row, name).micros).scaleb(-6) for name in money]
    return [*row.values, *amounts, *(round(getattr(row, name), 6) for name in _HOURS), row.attempts, row.jobs]


def forecasts_report(
    broker: Broker, period: str, team: str | None = None, timezone: str | None = None
) -> ForecastsReport:
    """Predictions against outcomes of a period (`months.named_period`). Raises `UnknownName`, and `InvalidInput` for a
    period that has not begun."""
    zone_name = report_timezone(broker, timezone)
    start, end = begun_period_bounds(broker, period, zone_name)
    with broker.store.reading() as reader:
        runs = finished_runs(reader, start, end, team)
    unpredicted_count = sum(run.expected_hours is None for run in runs)
    return ForecastsReport(
        since=start,
        until=end,
        timezone=zone_name,
        team=team,
        runs=len(runs),
        unpredicted=unpredicted_count,
        unpredicted_share=unpredicted_count / len(runs) if runs else None,
        errors=list(prediction_errors(runs)),
        measured=list(measured_speeds(runs, peaks())),
    )
