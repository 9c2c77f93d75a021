"""Showback and chargeback: the cost of each team's use with its share of idle and shared cost, and the statements of
closed months."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from broker.app.access.people import require_role
from broker.app.billing.months import parse_month, report_timezone, resolve_begun_month, resolve_month
from broker.app.billing.report import spend
from broker.app.billing.report_documents import ChargebackList, ChargebackStatement, ShowbackReport
from broker.app.wiring import Broker
from broker.core.access.people import Permission
from broker.core.actors import Actor
from broker.core.errors import InvalidInput, UnknownName
from broker.core.values.money import Money
from broker.ledger.finops.change import NOBODY
from broker.ledger.finops.focus.months import BillingMonth
from broker.ledger.finops.idle import idle_in
from broker.ledger.finops.showback import (
    IDLE,
    Correction,
    SharingRule,
    SharingRules,
    Statement,
    TeamCost,
    showback,
    total,
)

if TYPE_CHECKING:
    from broker.economics.reserve.holdings import Holding
    from broker.store.jobs.reader import StoreReader


_RuleName = Annotated[str, Field(max_length=40)]


@dataclass(frozen=True)
class Sharing:
    """How idle and shared cost are divided, as options and requests name it."""

    idle: Annotated[_RuleName, Field(description="How idle capacity is divided.")] = "separate"
    shared: Annotated[_RuleName, Field(description="How the cost of shared teams is divided.")] = "separate"
    shared_team: Annotated[
        list[str] | None, Field(max_length=100, description="A team whose cost is for everybody.")
    ] = None
    fixed: Annotated[str | None, Field(max_length=500, description="Weights: nlp=60,web=40.")] = None

    def rules(self) -> SharingRules:
        """The rules of these names. Raises `UnknownName`, `InvalidInput`."""
        weights: dict[str, int] = {}
        for pair in filter(None, (self.fixed or "").split(",")):
            team, _, weight = (field.strip() for field in pair.partition("="))
            if not team or not weight.isdecimal() or team in weights:
                raise InvalidInput(f"expected TEAM=WHOLE NUMBER, each team once, found {pair!r}", where="--fixed")
            weights[team] = int(weight)
        shared_teams = tuple(dict.fromkeys(self.shared_team or ()))
        return SharingRules(_rule("--idle", self.idle), _rule("--shared", self.shared), shared_teams, weights)


def _rule(option: str, name: str) -> SharingRule:
    if name not in list(SharingRule):
        raise UnknownName("rule", name, list(SharingRule), where=option)
    return SharingRule(name)


def showback_report(broker: Broker, month: str, rules: SharingRules, timezone: str | None = None) -> ShowbackReport:
    """The cost of each team's use of the month (``timezone`` None: `report_timezone`). Raises `InvalidInput` for a
    month that has not begun, and for rules without weights or teams that they need."""
    _check_rules(rules)
    zone_name, now = report_timezone(broker, timezone), broker.clock.now()
    billing_month = resolve_begun_month(broker, month, zone_name)
    end = min(billing_month.end, now)
    holdings = _holdings(broker)
    with broker.store.reading() as reader:
        rows, advance_payments = _team_costs(reader, holdings, billing_month.start, end, rules)
    spending = spend(broker, "team", since=billing_month.start) if billing_month.end > now else ()
    return ShowbackReport.from_parts(
        month=billing_month.name,
        timezone=zone_name,
        since=billing_month.start,
        until=end,
        over=now >= billing_month.end,
        rules=rules,
        rows=rows,
        total=total(rows),
        held={row.group: row.held for row in sorted(spending, key=lambda row: row.group) if row.held},
        bought_in_advance=advance_payments,
    )


def make_statement(broker: Broker, month: str, rules: SharingRules, *, by: Actor) -> ChargebackStatement:
    """Make the statement of a closed month, for good: all that was recorded about it, and the corrections of months
    frozen before that are in no statement yet. All statements are in the time zone of the first one
    (`report_timezone`).

    If the store has people, only those whose role has the permission to freeze statements may do this. Raises
    `NotAllowed`, and `InvalidInput` for a month that is open or has a statement, and for rules as in `showback_report`.
    """
    _check_rules(rules)
    billing_month, now = _statement_month(broker, month), broker.clock.now()
    if now < billing_month.closes:
        raise InvalidInput(
            f"{billing_month.name} is open until {billing_month.closes:%Y-%m-%d %H:%M} UTC",
            where="--month",
            hint=f"until then: gpubroker report showback --month {billing_month.name}",
        )
    require_role(broker, by, Permission.FREEZE_STATEMENTS)
    while (statement := _freeze_once(broker, billing_month, rules, now, by)) is None:
        pass  # another month was frozen meanwhile, and has the corrections
    return ChargebackStatement.of(statement, _later_corrections(broker, billing_month))


def _freeze_once(
    broker: Broker, month: BillingMonth, rules: SharingRules, now: datetime, by: Actor
) -> Statement | None:
    """The statement, as written; None if another was written since this one was calculated. Calculating it may take
    seconds at the end of a long month; it blocks no writers."""
    holdings = _holdings(broker)
    with broker.store.reading() as reader:
        earlier = reader.statements()
        rows, advance_payments = _team_costs(reader, holdings, month.start, month.end, rules)
        months = [parse_month(period.month, period.timezone) for period in earlier]
        late_costs = reader.recorded_after(_last_counted_entry(earlier), months)
        idle = [(period.name, _idle_correction(reader, holdings, period, earlier)) for period in months]
        last_entry = reader.last_entry()
    corrections = [
        Correction(corrected_month, month.name, team, amount)
        for (corrected_month, team), amount in late_costs.costs.items()
    ]
    corrections += [Correction(corrected_month, month.name, IDLE, amount) for corrected_month, amount in idle if amount]
    advance_payments += late_costs.bought_in_advance
    statement = Statement(
        month.name, now, by.identity, rules, rows, corrections, advance_payments, last_entry, month.timezone
    )
    with broker.store.writing() as tx:
        if existing := tx.statement(month.name):
            raise InvalidInput(
                f"the statement of {existing.month} was frozen at {existing.frozen_at:%Y-%m-%d %H:%M} UTC by "
                f"{existing.frozen_by}",
                where="--freeze",
                hint="it stays as it is; corrections are charged with the statement frozen next",
            )
        if len(tx.statements()) != len(earlier):
            return None
        tx.add_statement(statement)
    return statement


def chargeback_statement(broker: Broker, month: str) -> ChargebackStatement:
    """The statement of a month. Raises `InvalidInput` where none was frozen."""
    billing_month = _statement_month(broker, month)
    with broker.store.reading() as reader:
        statement = reader.statement(billing_month.name)
    if statement is None:
        raise InvalidInput(
            f"there is no statement of {billing_month.name}",
            where="--month",
            hint="make it with --freeze once the month is closed, three days after its end",
        )
    return ChargebackStatement.of(statement, _later_corrections(broker, billing_month))


def _statement_month(broker: Broker, month: str) -> BillingMonth:
    with broker.store.reading() as reader:
        frozen_statements = reader.statements()
    return resolve_month(broker, month, frozen_statements[0].timezone if frozen_statements else report_timezone(broker))


def statements(broker: Broker) -> ChargebackList:
    """All statements, newest month first."""
    with broker.store.reading() as reader:
        return ChargebackList.model_validate({"statements": reader.statements()})


def _team_costs(
    reader: StoreReader, holdings: Sequence[Holding], start: datetime, end: datetime, rules: SharingRules
) -> tuple[Sequence[TeamCost], Money]:
    """The costs by team, idle capacity shared out, and what was bought in advance in that time (USD)."""
    spending = reader.team_spending(start, end)
    return showback(spending.costs, _idle_cost(reader, holdings, start, end), rules), spending.bought_in_advance


def _idle_cost(reader: StoreReader, holdings: Sequence[Holding], start: datetime, end: datetime) -> Money:
    if not holdings:
        return Money.ZERO
    used_cells = reader.used_in(start, end, end).cells
    return sum((idle_capacity.cost for idle_capacity in idle_in(holdings, used_cells, start, end)), Money.ZERO)


def _idle_correction(
    reader: StoreReader, holdings: Sequence[Holding], month: BillingMonth, frozen_statements: Sequence[Statement]
) -> Money:
    """The cost of idle capacity of a frozen month by the present records, less what was charged for it. Capacity may be
    recorded, and its use become known, after the month was frozen."""
    rows = (row.idle for statement in frozen_statements if statement.month == month.name for row in statement.rows)
    earlier_corrections = (
        c.amount
        for statement in frozen_statements
        for c in statement.corrections
        if (c.month, c.team) == (month.name, IDLE)
    )
    return _idle_cost(reader, holdings, month.start, month.end) - sum([*rows, *earlier_corrections], Money.ZERO)


def _holdings(broker: Broker) -> Sequence[Holding]:
    return [recorded.holding for recorded in broker.store.holdings()]


def _last_counted_entry(frozen_statements: Sequence[Statement]) -> int:
    """The number of the last ledger entry that the statements take into account, or that concerns no frozen month."""
    return max((statement.entries for statement in frozen_statements), default=0)


def _later_corrections(broker: Broker, month: BillingMonth) -> Sequence[Correction]:
    holdings = _holdings(broker)
    with broker.store.reading() as reader:
        frozen_statements = reader.statements()
        late_costs = reader.recorded_after(_last_counted_entry(frozen_statements), [month])
        idle = _idle_correction(reader, holdings, month, frozen_statements)
    sorted_statements = sorted(frozen_statements, key=lambda statement: statement.entries)
    billed_corrections = [
        correction
        for statement in sorted_statements
        for correction in statement.corrections
        if correction.month == month.name
    ]
    unbilled_amounts = {
        **{team: amount for (_, team), amount in late_costs.costs.items()},
        **({IDLE: idle} if idle else {}),
    }
    return [
        *billed_corrections,
        *(Correction(month.name, None, team, amount) for team, amount in unbilled_amounts.items()),
    ]


def _check_rules(rules: SharingRules) -> None:
    if SharingRule.FIXED in (rules.idle, rules.shared) and not any(rules.weights.values()):
        raise InvalidInput("the fixed rule needs weights", where="--fixed", hint="nlp=60,web=40")
    if any(weight < 0 for weight in rules.weights.values()):
        raise InvalidInput("a weight is negative", where="--fixed", hint="weights are whole numbers from 0")
    if rules.shared is not SharingRule.SEPARATE and not rules.shared_teams:
        raise InvalidInput(
            "the team whose cost is shared is missing", where="--shared", hint="add --shared-team platform"
        )
    if NOBODY in rules.weights:
        raise InvalidInput(
            f"{NOBODY} is not a team and cannot bear cost", where="--fixed", hint="name teams: nlp=60,web=40"
        )
    if conflicting := sorted(set(rules.weights) & set(rules.shared_teams)):
        raise InvalidInput(f"{conflicting[0]} cannot both give its cost away and bear some", where="--fixed")
