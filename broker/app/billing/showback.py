"""Showback and chargeback: what each team's use cost with its share of idle and shared cost, and the statements of
closed months."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.app.billing.report import spend
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput
from broker.core.values.money import Money
from broker.finops.focus.months import BillingMonth
from broker.finops.idle import idle_in
from broker.finops.showback import SharingRule, SharingRules, TeamCost, showback
from broker.finops.statements import Correction, Statement

_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Showback:
    """A month as it is known now, ``start`` until ``end`` (UTC); ``over``: whether it has ended. ``held``: what jobs of
    a team have set aside now, of a month that runs. ``bought``: paid in advance, charged to nobody (USD)."""

    month: BillingMonth
    start: datetime
    end: datetime
    over: bool
    rules: SharingRules
    rows: Sequence[TeamCost]
    held: Mapping[str, Money]
    bought: Money


@dataclass(frozen=True, slots=True)
class Chargeback:
    """A frozen statement, and what was corrected of its month since, billed with later ones."""

    statement: Statement
    since: Sequence[Correction]


def month_of(text: str) -> BillingMonth:
    """The month of ``2026-11``. Raises `InvalidInput`."""
    try:
        return BillingMonth.parse(text)
    except ValueError as error:
        raise InvalidInput(f"expected a month such as 2026-11, found {text!r}", where="--month") from error


def shown(broker: Broker, month: str, rules: SharingRules) -> Showback:
    """What each team's use of the month cost. Raises `InvalidInput` for a month that has not begun, and for rules that
    say nothing."""
    _check(rules)
    wanted, now = month_of(month), broker.clock.now()
    if wanted.start > now:
        present = BillingMonth.of(now).name
        raise InvalidInput(f"{wanted.name} has not begun", where="--month", hint=f"the month now is {present}")
    end = min(wanted.end, now)
    rows, bought = _rows(broker, wanted.start, end, now + _MOMENT, rules)
    held = {row.group: row.held for row in spend(broker, "team", since=wanted.start)} if wanted.end > now else {}
    return Showback(wanted, wanted.start, end, now >= wanted.end, rules, rows, held, bought)


def freeze(broker: Broker, month: str, rules: SharingRules, *, by: Actor) -> Chargeback:
    """Make the statement of a closed month, for good: what was posted until it closed, and the corrections of earlier
    months that were posted while it was open.

    Raises `InvalidInput` for a month that is open or has a statement, and for rules that say nothing.
    """
    _check(rules)
    wanted, now = month_of(month), broker.clock.now()
    if now < wanted.closes:
        raise InvalidInput(
            f"{wanted.name} is open until {wanted.closes:%Y-%m-%d %H:%M} UTC",
            where="--month",
            hint=f"until then: gpubroker report showback --month {wanted.name}",
        )
    rows, bought = _rows(broker, wanted.start, wanted.end, wanted.closes, rules)
    with broker.store.reading() as look:
        late = look.corrections_billed_in(wanted)
    corrections = [Correction(of, wanted.name, team, amount) for (of, team), amount in late.items()]
    statement = Statement(wanted.name, now, by.identity, rules, rows, corrections, bought)
    with broker.store.writing() as tx:
        if kept := tx.statement(wanted.name):
            raise InvalidInput(
                f"the statement of {kept.month} was frozen at {kept.frozen_at:%Y-%m-%d %H:%M} UTC by {kept.frozen_by}",
                where="--freeze",
                hint="it stays as it is; corrections are charged with later months",
            )
        tx.add_statement(statement)
    return Chargeback(statement, _since(broker, wanted))


def charged(broker: Broker, month: str) -> Chargeback:
    """The statement of a month. Raises `InvalidInput` where none was frozen."""
    wanted = month_of(month)
    with broker.store.reading() as look:
        statement = look.statement(wanted.name)
    if statement is None:
        raise InvalidInput(
            f"there is no statement of {wanted.name}",
            where="--month",
            hint="make it with --freeze once the month is closed, three days after its end",
        )
    return Chargeback(statement, _since(broker, wanted))


def statements(broker: Broker) -> Sequence[Statement]:
    """All statements, newest month first."""
    with broker.store.reading() as look:
        return look.statements()


def _rows(
    broker: Broker, start: datetime, end: datetime, posted_before: datetime, rules: SharingRules
) -> tuple[Sequence[TeamCost], Money]:
    with broker.store.reading() as look:
        spending = look.team_spending(start, end, posted_before)
        used = look.used_in(start, end, end).cells
    held = [recorded.holding for recorded in broker.store.holdings()]
    idle = sum((one.cost for one in idle_in(held, used, start, end)), Money.ZERO)
    return showback(spending.costs, idle, rules), spending.bought


def _since(broker: Broker, month: BillingMonth) -> Sequence[Correction]:
    with broker.store.reading() as look:
        late = look.corrections_of(month)
    return [Correction(month.name, billed, team, amount) for (billed, team), amount in late.items()]


def _check(rules: SharingRules) -> None:
    if SharingRule.FIXED in (rules.idle, rules.shared) and not any(rules.weights.values()):
        raise InvalidInput("a fixed rule divides by weights, and there are none", where="--fixed", hint="nlp=60,web=40")
    if any(weight < 0 for weight in rules.weights.values()):
        raise InvalidInput("a weight is negative", where="--fixed", hint="weights are whole numbers from 0")
    if rules.shared is not SharingRule.SEPARATE and not rules.teams:
        raise InvalidInput("no team is named whose cost is shared", where="--shared", hint="add --shared-team platform")
    if both := sorted(set(rules.weights) & set(rules.teams)):
        raise InvalidInput(f"{both[0]} cannot both give its cost away and bear some", where="--fixed")
