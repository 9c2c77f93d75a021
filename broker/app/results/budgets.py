"""Budgets as results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field

from broker.app.results.money import JobShareResult
from broker.app.results.notices import NoticeResult
from broker.app.results.values import Moment, Result, is_none
from broker.core.values.money import Money
from broker.ledger.forecast import Forecast

if TYPE_CHECKING:
    from broker.app.billing.budgets import BudgetLine
    from broker.store.outbox import Dispatch


class BudgetScope(Result):
    """Whose jobs a budget counts; empty lists restrict nothing."""

    teams: list[str]
    projects: list[str]
    workloads: list[str]
    users: list[str]
    environments: list[str]


class BudgetResult(Result):
    """A budget in its current period. Amounts in USD. ``period_name``: ``November 2026``; ``passed``: when each alert
    was first reached."""

    id: str
    period: str
    period_name: str
    timezone: str
    period_start: Moment
    period_end: Moment
    counts: list[str]
    limit: Money
    spent: Money
    held: Money
    left: Money
    action: str
    alerts: list[str]
    forecast: Forecast
    passed: dict[str, Moment]
    notices: list[NoticeResult]
    scope: BudgetScope
    source: str

    @classmethod
    def of(cls, line: BudgetLine, notices: Sequence[Dispatch] = (), **extra: Any) -> Self:
        """``notices``: the notices about the budget."""
        spec = line.spec
        return cls.from_parts(
            spec,
            line.use,
            line,
            counts=sorted(spec.counts),
            passed=dict(line.marks),
            notices=notices,
            scope=spec,
            source=str(line.source),
            **extra,
        )


class SpentUntil(Result):
    """The spend under a budget (USD) from the start of its period until then."""

    until: Moment
    total: Money


class BudgetDetails(BudgetResult):
    """A budget with what it holds for each job in each period. ``on_own``: the part of ``spent`` for owned and reserved
    capacity, ``rented``: for on-demand and spot capacity. ``days``: the spend by day, if a chart is asked for."""

    on_own: Money
    rented: Money
    held_by_job: list[JobShareResult]
    days: list[SpentUntil] | None = Field(default=None, exclude_if=is_none)


class BudgetList(Result):
    """Every budget, in file order."""

    budgets: list[BudgetResult]
