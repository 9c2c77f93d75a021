"""Showback and chargeback as results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from broker.app.results.values import Moment, Result
from broker.core.values.money import Money
from broker.finops.showback import Correction, SharingRules, Statement, total


class TeamCostResult(Result):
    """What a team's own use cost, in cash and of what was paid before, its share of idle and shared cost (negative
    where it gives its own away), and all of it (USD). ``on_own``: the part of its own use on owned and reserved
    machines, ``rented``: on on-demand and spot ones."""

    team: str
    cash: Money
    amortised: Money
    idle: Money
    shared: Money
    on_own: Money
    rented: Money
    total: Money


class ShowbackReport(Result):
    """The cost of each team's use in a month, most expensive first, as known now. ``over``: whether the month has
    ended; ``held``: set aside now by team, of a month that runs; ``bought_in_advance``: charged to nobody
    (USD).
    """

    month: str
    since: Moment
    until: Moment
    over: bool
    rules: SharingRules
    rows: list[TeamCostResult]
    total: TeamCostResult
    held: dict[str, Money]
    bought_in_advance: Money


class ChargebackStatement(Result):
    """The statement of a month, as it was frozen. ``corrections`` of months frozen before are billed with it, and part
    of ``charged``; ``corrected_since`` are those of this month, billed with statements frozen later (USD)."""

    month: str
    frozen_at: Moment
    frozen_by: str
    rules: SharingRules
    rows: list[TeamCostResult]
    total: TeamCostResult
    corrections: list[Correction]
    charged: Money
    bought_in_advance: Money
    corrected_since: list[Correction]

    @classmethod
    def of(cls, one: Statement, corrected_since: Sequence[Correction]) -> Self:
        return cls.from_parts(one, total=total(one.rows), charged=one.total, corrected_since=corrected_since)


class FrozenMonth(Result):
    """A month whose statement is frozen, and what it charges (USD)."""

    month: str
    frozen_at: Moment
    frozen_by: str
    charged: Money

    @classmethod
    def of(cls, one: Statement) -> Self:
        return cls.from_parts(one, charged=one.total)


class ChargebackList(Result):
    """All statements, newest month first."""

    statements: list[FrozenMonth]
