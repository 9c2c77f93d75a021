"""The cost of each team's use, with its share of idle capacity and of shared teams. Pure; money in USD.

A rule says how idle capacity and the cost of shared teams are divided. ``separate`` leaves them where they are;
``proportional`` divides idle capacity by the use of what was paid in advance, and shared cost by what each team spent;
``even`` divides among all teams that spent anything; ``fixed`` by given weights, also among teams that spent nothing.
If a rule applies to nobody, the amount stays in a row of its own. Spending without a team is a row of its own and bears
no shares. All rows add up to the spending and the idle cost, to the micro-dollar. A closed
month becomes a statement that never changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum

from broker.core.values.money import Money
from broker.ledger.finops.change import NOBODY, divide_by_weights

IDLE = "(idle)"


class SharingRule(StrEnum):
    """How an amount is divided among teams."""

    SEPARATE = "separate"
    PROPORTIONAL = "proportional"
    EVEN = "even"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class SharingRules:
    """How idle capacity and the cost of shared teams are divided, and the weights of a fixed rule by team."""

    idle: SharingRule = SharingRule.SEPARATE
    shared: SharingRule = SharingRule.SEPARATE
    shared_teams: tuple[str, ...] = ()
    weights: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TeamCost:
    """A team's row. ``cash`` and ``amortised``: of its own use, without capacity bought in advance; ``depreciation``:
    of owned machines while it used them, in no ledger; ``idle`` and ``shared``: its share, negative for a team whose
    cost is divided. ``on_own``: the part of its own use that was on owned and reserved machines."""

    team: str
    cash: Money = Money.ZERO
    amortised: Money = Money.ZERO
    depreciation: Money = Money.ZERO
    idle: Money = Money.ZERO
    shared: Money = Money.ZERO
    on_own: Money = Money.ZERO

    @property
    def rented(self) -> Money:
        """The part of its own use that was on on-demand and spot machines."""
        return self.own - self.on_own

    @property
    def own(self) -> Money:
        return self.cash + self.amortised + self.depreciation

    @property
    def total(self) -> Money:
        return self.own + self.idle + self.shared


def showback(costs: Iterable[TeamCost], idle: Money, rules: SharingRules) -> list[TeamCost]:
    """The rows, highest cost first, from each team's own spending and the total idle cost."""
    rows = {cost.team: cost for cost in costs}
    for team in rules.weights if SharingRule.FIXED in (rules.idle, rules.shared) else ():
        rows.setdefault(team, TeamCost(team))
    bearers = [row for team, row in rows.items() if team != NOBODY and team not in rules.shared_teams]
    by_use = {row.team: max((row.amortised + row.depreciation).micros, 0) for row in bearers}
    for team, amount in _divide(idle, rules.idle, by_use, bearers, rules.weights, IDLE).items():
        rows[team] = replace(rows.get(team, TeamCost(team)), idle=amount)
    by_cost = {row.team: max(row.own.micros, 0) for row in bearers}
    for shared_team in [rows[team] for team in dict.fromkeys(rules.shared_teams) if team in rows]:
        shares = _divide(shared_team.own, rules.shared, by_cost, bearers, rules.weights, shared_team.team)
        if shared_team.team in shares:
            continue  # nobody bears the amount, or it stays where it is
        for team, amount in {shared_team.team: -shared_team.own, **shares}.items():
            rows[team] = replace(rows[team], shared=rows[team].shared + amount)
    return sorted(rows.values(), key=lambda row: (-row.total.micros, row.team))


def total(rows: Sequence[TeamCost]) -> TeamCost:
    amounts = [field.name for field in fields(TeamCost) if field.name != "team"]
    return TeamCost("", **{name: sum((getattr(row, name) for row in rows), Money.ZERO) for name in amounts})


def _divide(
    amount: Money,
    rule: SharingRule,
    proportions: Mapping[str, int],
    bearers: Iterable[TeamCost],
    weights: Mapping[str, int],
    otherwise: str,
) -> Mapping[str, Money]:
    """The shares by team; the whole amount for ``otherwise`` if the rule keeps it apart or applies to nobody."""
    rule_weights = {
        SharingRule.SEPARATE: {},
        SharingRule.PROPORTIONAL: proportions,
        SharingRule.EVEN: {row.team: 1 for row in bearers if row.own},
        SharingRule.FIXED: {row.team: weights.get(row.team, 0) for row in bearers},
    }[rule]
    by_team = {team: weight for team, weight in sorted(rule_weights.items()) if weight}
    if not amount:
        return {}
    if not by_team:
        return {otherwise: amount}
    parts = divide_by_weights(amount.micros, list(by_team.values()))
    return {team: Money(part) for team, part in zip(by_team, parts, strict=True)}


@dataclass(frozen=True, slots=True)
class Correction:
    """An amount (USD) that a team is charged late: for ``month``, billed in ``billed_in`` (``2026-11``); null: with the
    statement that is frozen next."""

    month: str
    billed_in: str | None
    team: str
    amount: Money


@dataclass(frozen=True, slots=True)
class Statement:
    """The rows of a month by ``rules``, and the corrections of earlier frozen months that are billed with it: to the
    teams concerned; those of idle capacity to nobody. ``bought_in_advance``: charged to nobody (USD).
    ``entries``: the number of the last ledger entry that was counted; what is recorded after it is in a later
    statement. ``timezone``: of the month."""

    month: str
    frozen_at: datetime
    frozen_by: str
    rules: SharingRules
    rows: Sequence[TeamCost]
    corrections: Sequence[Correction]
    bought_in_advance: Money
    entries: int
    timezone: str = "UTC"

    @property
    def total(self) -> Money:
        """The total of all charges (USD)."""
        amounts = [*(row.total for row in self.rows), *(correction.amount for correction in self.corrections)]
        return sum(amounts, Money.ZERO)
