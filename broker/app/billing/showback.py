"""Showback and chargeback: the cost of each team's use with its share of idle and shared cost, and the statements of
closed months."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from broker.app.access.people import only_permitted
from broker.app.billing.months import begun, month_named, month_of, report_timezone
from broker.app.billing.report import spend
from broker.app.results.reports import ChargebackList, ChargebackStatement, ShowbackReport
from broker.app.wiring import Broker
from broker.core.access.permissions import Permission
from broker.core.actors import Actor
from broker.core.errors import InvalidInput, UnknownName
from broker.core.values.money import Money
from broker.finops.change import NOBODY
from broker.finops.focus.months import BillingMonth
from broker.finops.idle import idle_in
from broker.finops.showback import IDLE, Correction, SharingRule, SharingRules, Statement, TeamCost, showback, total

if TYPE_CHECKING:
    from broker.economics.reserve.holdings import Holding
    from broker.store.jobs.reading import StoreReading


def sharing_rules(idle: str, shared: str, shared_team: Iterable[str] | None, fixed: str | None) -> SharingRules:
    """The rules of these names. ``shared_team``: the teams whose cost is shared; ``fixed``: weights, ``nlp=60,web=40``.
    Raises `UnknownName`, `InvalidInput`."""
    weights: dict[str, int] = {}
    for pair in filter(None, (fixed or "").split(",")):
        team, _, weight = (part.strip() for part in pair.partition("="))
        if not team or not weight.isdecimal() or team in weights:
            raise InvalidInput(f"expected TEAM=WHOLE NUMBER, each team once, found {pair!r}", where="--fixed")
        weights[team] = int(weight)
    return SharingRules(
        _rule("--idle", idle), _rule("--shared", shared), tuple(dict.fromkeys(shared_team or ())), weights
    )


def _rule(option: str, name: str) -> SharingRule:
    if name not in list(SharingRule):
        raise UnknownName("rule", name, list(SharingRule), where=option)
    return SharingRule(name)


def shown(broker: Broker, month: str, rules: SharingRules, timezone: str | None = None) -> ShowbackReport:
    """The cost of each team's use of the month (``timezone`` None: `report_timezone`). Raises `InvalidInput` for a
    month that has not begun, and for rules without weights or teams that they need."""
    _check(rules)
    local, now = report_timezone(broker, timezone), broker.clock.now()
    wanted = begun(broker, month, local)
    end = min(wanted.end, now)
    holdings = _holdings(broker)
    with broker.store.reading() as look:
        rows, bought = _rows(look, holdings, wanted.start, end, rules)
    spending = spend(broker, "team", since=wanted.start) if wanted.end > now else ()
    return ShowbackReport.from_parts(
        month=wanted.name,
        timezone=local,
        since=wanted.start,
        until=end,
        over=now >= wanted.end,
        rules=rules,
        rows=rows,
        total=total(rows),
        held={row.group: row.held for row in sorted(spending, key=lambda row: row.group) if row.held},
        bought_in_advance=bought,
    )


def freeze(broker: Broker, month: str, rules: SharingRules, *, by: Actor) -> ChargebackStatement:
    """Make the statement of a closed month, for good: all that was recorded about it, and the corrections of months
    frozen before that are in no statement yet. All statements are in the time zone of the first one
    (`report_timezone`).

    If the store has people, only those whose role has the permission to freeze statements may do this. Raises
    `NotAllowed`, and `InvalidInput` for a month that is open or has a statement, and for rules as in `shown`.
    """
    _check(rules)
    wanted, now = _statement_month(broker, month), broker.clock.now()
    if now < wanted.closes:
        raise InvalidInput(
            f"{wanted.name} is open until {wanted.closes:%Y-%m-%d %H:%M} UTC",
            where="--month",
            hint=f"until then: gpubroker report showback --month {wanted.name}",
        )
    with broker.store.access.reading() as access:
        if access.people():
            only_permitted(access, by, Permission.FREEZE_STATEMENTS)
    while (statement := _frozen(broker, wanted, rules, now, by)) is None:
        pass  # another month was frozen meanwhile, and has the corrections
    return ChargebackStatement.of(statement, _since(broker, wanted))


def _frozen(broker: Broker, month: BillingMonth, rules: SharingRules, now: datetime, by: Actor) -> Statement | None:
    """The statement, as written; None if another was written since this one was calculated. Calculating it may take
    seconds at the end of a long month; it blocks no writers."""
    holdings = _holdings(broker)
    with broker.store.reading() as look:
        earlier = look.statements()
        rows, bought = _rows(look, holdings, month.start, month.end, rules)
        months = [month_of(one.month, one.timezone) for one in earlier]
        late = look.recorded_after(_counted(earlier), months)
        idle = [(one.name, _idle_later(look, holdings, one, earlier)) for one in months]
        last = look.last_entry()
    corrections = [Correction(of, month.name, team, amount) for (of, team), amount in late.costs.items()]
    corrections += [Correction(of, month.name, IDLE, amount) for of, amount in idle if amount]
    bought += late.bought_in_advance
    made = Statement(month.name, now, by.identity, rules, rows, corrections, bought, last, month.timezone)
    with broker.store.writing() as tx:
        if kept := tx.statement(month.name):
            raise InvalidInput(
                f"the statement of {kept.month} was frozen at {kept.frozen_at:%Y-%m-%d %H:%M} UTC by {kept.frozen_by}",
                where="--freeze",
                hint="it stays as it is; corrections are charged with the statement frozen next",
            )
        if len(tx.statements()) != len(earlier):
            return None
        tx.add_statement(made)
    return made


def charged(broker: Broker, month: str) -> ChargebackStatement:
    """The statement of a month. Raises `InvalidInput` where none was frozen."""
    wanted = _statement_month(broker, month)
    with broker.store.reading() as look:
        statement = look.statement(wanted.name)
    if statement is None:
        raise InvalidInput(
            f"there is no statement of {wanted.name}",
            where="--month",
            hint="make it with --freeze once the month is closed, three days after its end",
        )
    return ChargebackStatement.of(statement, _since(broker, wanted))


def _statement_month(broker: Broker, month: str) -> BillingMonth:
    with broker.store.reading() as look:
        frozen = look.statements()
    return month_named(broker, month, frozen[0].timezone if frozen else report_timezone(broker))


def statements(broker: Broker) -> ChargebackList:
    """All statements, newest month first."""
    with broker.store.reading() as look:
        return ChargebackList.model_validate({"statements": look.statements()})


def _rows(
    look: StoreReading, holdings: Sequence[Holding], start: datetime, end: datetime, rules: SharingRules
) -> tuple[Sequence[TeamCost], Money]:
    spending = look.team_spending(start, end)
    return showback(spending.costs, _idle(look, holdings, start, end), rules), spending.bought_in_advance


def _idle(look: StoreReading, holdings: Sequence[Holding], start: datetime, end: datetime) -> Money:
    if not holdings:
        return Money.ZERO
    used = look.used_in(start, end, end).cells
    return sum((one.cost for one in idle_in(holdings, used, start, end)), Money.ZERO)


def _idle_later(
    look: StoreReading, holdings: Sequence[Holding], month: BillingMonth, frozen: Sequence[Statement]
) -> Money:
    """The cost of idle capacity of a frozen month by the present records, less what was charged for it. Capacity may be
    recorded, and its use become known, after the month was frozen."""
    rows = (row.idle for one in frozen if one.month == month.name for row in one.rows)
    later = (c.amount for one in frozen for c in one.corrections if (c.month, c.team) == (month.name, IDLE))
    return _idle(look, holdings, month.start, month.end) - sum([*rows, *later], Money.ZERO)


def _holdings(broker: Broker) -> Sequence[Holding]:
    return [recorded.holding for recorded in broker.store.holdings()]


def _counted(frozen: Sequence[Statement]) -> int:
    """The number of the last ledger entry that the statements take into account, or that concerns no frozen month."""
    return max((one.entries for one in frozen), default=0)


def _since(broker: Broker, month: BillingMonth) -> Sequence[Correction]:
    holdings = _holdings(broker)
    with broker.store.reading() as look:
        frozen = look.statements()
        late = look.recorded_after(_counted(frozen), [month])
        idle = _idle_later(look, holdings, month, frozen)
    in_order = sorted(frozen, key=lambda one: one.entries)
    billed = [correction for one in in_order for correction in one.corrections if correction.month == month.name]
    unbilled = {**{team: amount for (_, team), amount in late.costs.items()}, **({IDLE: idle} if idle else {})}
    return [*billed, *(Correction(month.name, None, team, amount) for team, amount in unbilled.items())]


def _check(rules: SharingRules) -> None:
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
    if both := sorted(set(rules.weights) & set(rules.shared_teams)):
        raise InvalidInput(f"{both[0]} cannot both give its cost away and bear some", where="--fixed")
