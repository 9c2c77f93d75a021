"""Showback and chargeback as results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from broker.app.billing.showback import Chargeback, Showback
from broker.app.results.values import Moment, Result
from broker.core.values.money import Money
from broker.finops.showback import SharingRule, SharingRules, TeamCost, total
from broker.finops.statements import Correction, Statement


class SharingRulesResult(Result):
    """How idle capacity and the cost of shared teams are divided, and the weights of a fixed rule by team."""

    idle: SharingRule
    shared: SharingRule
    shared_teams: list[str]
    weights: dict[str, int]

    @classmethod
    def of(cls, rules: SharingRules) -> Self:
        return cls.from_parts(rules, shared_teams=rules.teams, weights=dict(rules.weights))


class TeamCostResult(Result):
    """What a team's own use cost, in cash and of what was paid before, its share of idle and shared cost (negative
    where it gives its own away), and all of it (USD). ``on_own``: the part of its own use on owned and reserved
    machines, ``rented``: on on-demand and spot ones; null in statements of earlier versions."""

    team: str
    cash: Money
    amortised: Money
    idle: Money
    shared: Money
    on_own: Money | None
    rented: Money | None
    total: Money


class CorrectionResult(Result):
    """An amount (USD) charged to a team late: for ``month``, with the statement of ``billed_in``; null: with the
    statement that is frozen next."""

    month: str
    billed_in: str | None
    team: str
    amount: Money


class ShowbackReport(Result):
    """The cost of each team's use in a month, most expensive first, as known now. ``over``: whether the month has
    ended; ``held``: set aside now by team, of a month that runs; ``bought``: paid in advance, charged to nobody (USD).
    """

    month: str
    since: Moment
    until: Moment
    over: bool
    rules: SharingRulesResult
    rows: list[TeamCostResult]
    total: TeamCostResult
    held: dict[str, Money]
    bought: Money

    @classmethod
    def of(cls, found: Showback) -> Self:
        return cls.from_parts(
            found,
            month=found.month.name,
            since=found.start,
            until=found.end,
            rows=_rows(found.rows),
            total=TeamCostResult.model_validate(total(found.rows)),
            held={team: amount for team, amount in sorted(found.held.items()) if amount},
        )


class ChargebackStatement(Result):
    """The statement of a month, as it was frozen. ``corrections`` of months frozen before are billed with it, and part
    of ``charged``; ``corrected_since`` are those of this month, billed with statements frozen later (USD)."""

    month: str
    frozen_at: Moment
    frozen_by: str
    rules: SharingRulesResult
    rows: list[TeamCostResult]
    total: TeamCostResult
    corrections: list[CorrectionResult]
    charged: Money
    bought: Money
    corrected_since: list[CorrectionResult]

    @classmethod
    def of(cls, found: Chargeback) -> Self:
        one = found.statement
        return cls.from_parts(
            one,
            rows=_rows(one.rows),
            total=TeamCostResult.model_validate(total(one.rows)),
            corrections=_corrections(one.corrections),
            charged=one.total,
            corrected_since=_corrections(found.since),
        )


class FrozenMonth(Result):
    """A month whose statement is frozen, and what it charges (USD)."""

    month: str
    frozen_at: Moment
    frozen_by: str
    charged: Money


class ChargebackList(Result):
    """All statements, newest month first."""

    statements: list[FrozenMonth]

    @classmethod
    def of(cls, found: Sequence[Statement]) -> Self:
        return cls(statements=[FrozenMonth.from_parts(one, charged=one.total) for one in found])


def _rows(rows: Sequence[TeamCost]) -> list[TeamCostResult]:
    return [TeamCostResult.model_validate(row) for row in rows]


def _corrections(corrections: Sequence[Correction]) -> list[CorrectionResult]:
    return [CorrectionResult.model_validate(one) for one in corrections]
