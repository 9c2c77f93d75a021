"""The periods of reports. All of them begin and end in one time zone, that of the policy, which each report names."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import AwareDatetime, Field

from broker.app.billing.budgets import budget_rules
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, UnknownName
from broker.core.values.units import zone
from broker.ledger.budgets import period_containing
from broker.ledger.finops.focus.months import BillingMonth, BillingQuarter

MONTH, LAST_MONTH = "month", "last-month"
PERIODS = (MONTH, LAST_MONTH, "quarter", "last-quarter")
_MICROSECOND = timedelta(microseconds=1)


def report_timezone(broker: Broker, timezone: str | None = None) -> str:
    """The time zone of a report: as asked for, else `defaults: {timezone}` of the policy, else the only one
    besides UTC that budgets name; else UTC. Raises `InvalidInput` for an unknown one."""
    if timezone:
        try:
            return zone(timezone).key
        except ValueError as error:
            raise InvalidInput(str(error), where="--timezone", hint="such as Europe/Berlin") from error
    policy = broker.policy()
    zones = {rule.spec.timezone for rule in budget_rules(policy)} - {"UTC"}
    return policy.defaults.timezone or (zones.pop() if len(zones) == 1 else "UTC")


def parse_month(text: str, timezone: str) -> BillingMonth:
    """The month of ``2026-11``. Raises `InvalidInput`."""
    try:
        return BillingMonth.parse(text, timezone)
    except ValueError as error:
        hint = "or month, or last-month"
        raise InvalidInput(f"expected a month such as 2026-11, found {text!r}", where="--month", hint=hint) from error


def resolve_month(broker: Broker, text: str, timezone: str) -> BillingMonth:
    """The month of ``2026-11``, or ``month`` and ``last-month`` as of now. Raises `InvalidInput`."""
    current = BillingMonth.of(broker.clock.now(), timezone)
    named_months = {MONTH: current, LAST_MONTH: current.before}
    return named_months[text] if text in named_months else parse_month(text, timezone)


def resolve_begun_month(broker: Broker, text: str, timezone: str) -> BillingMonth:
    """As `resolve_month`. Raises `InvalidInput` also for a month that has not begun."""
    month, now = resolve_month(broker, text, timezone), broker.clock.now()
    if month.start > now:
        hint = f"the month now is {BillingMonth.of(now, timezone).name}"
        raise InvalidInput(f"{month.name} has not begun", where="--month", hint=hint)
    return month


def resolve_begun_period(broker: Broker, text: str, timezone: str) -> BillingMonth:
    """As `resolve_begun_month`, also of ``quarter``, ``last-quarter`` and ``2026-Q4``."""
    current = BillingQuarter.of(broker.clock.now(), timezone)
    quarters = {"quarter": current, "last-quarter": current.before}
    try:
        quarter = quarters.get(text) or BillingQuarter.parse(text, timezone)
    except ValueError:
        return resolve_begun_month(broker, text, timezone)
    if quarter.start > current.start:
        raise InvalidInput(f"{quarter.name} has not begun", where="--month", hint=f"the quarter now is {current.name}")
    return quarter


def months_before(now: datetime, timezone: str) -> datetime:
    """The default start of a report by month: eleven months before this one (UTC)."""
    month = BillingMonth.of(now, timezone)
    for _ in range(11):
        month = month.before
    return month.start


@dataclass(frozen=True)
class ReportPeriod:
    """Start and end (UTC, half-open; None: no bound), or instead a named ``period``: one of `PERIODS`, ``2026-11`` or
    ``2026-Q4``. ``timezone``: as asked for; None: `report_timezone`."""

    since: Annotated[AwareDatetime | None, Field(description="Start of the period, with a time zone.")] = None
    until: Annotated[AwareDatetime | None, Field(description="End of the period, exclusive.")] = None
    period: Annotated[
        str | None,
        Field(max_length=20, description="Instead: month, quarter, last-month, last-quarter, 2026-11, 2026-Q4."),
    ] = None
    timezone: Annotated[
        str | None,
        Field(max_length=50, description="Time zone of months, such as Europe/Berlin. Default: the policy's."),
    ] = None

    def bounds(self, broker: Broker) -> tuple[datetime | None, datetime | None]:
        """Start and end. Raises `InvalidInput` for both a name and a time, and for a period that ends before it begins;
        `UnknownName`."""
        if self.period is not None:
            if self.since or self.until:
                hint = "remove --since and --until"
                raise InvalidInput("a period has both a start and an end", where="--period", hint=hint)
            return period_bounds(self.period, broker.clock.now(), report_timezone(broker, self.timezone))
        if self.since and self.until and self.since >= self.until:
            raise InvalidInput("the period ends before it begins", where="--until", hint="give a time after --since")
        return self.since, self.until


ALL_TIME = ReportPeriod()


def period_bounds(name: str, now: datetime, timezone: str) -> tuple[datetime, datetime]:
    """The times (UTC, half-open) of one of `PERIODS`, of ``2026-11`` or ``2026-Q4``. Raises `UnknownName`."""
    if name in PERIODS:
        kind = name.removeprefix("last-")
        current = period_containing(kind, timezone, now)
        return current if name == kind else period_containing(kind, timezone, current[0] - _MICROSECOND)
    for length in (BillingQuarter, BillingMonth):
        with suppress(ValueError):
            period = length.parse(name, timezone)
            return period.start, period.end
    raise UnknownName("period", name, (*PERIODS, BillingMonth.of(now, timezone).name))


def begun_period_bounds(broker: Broker, name: str, timezone: str) -> tuple[datetime, datetime]:
    """As `period_bounds`, until now at most. Raises `InvalidInput` for a period that has not begun."""
    now = broker.clock.now()
    start, end = period_bounds(name, now, timezone)
    if start > now:
        raise InvalidInput(f"{name} has not begun", where="--period")
    return start, min(end, now)
