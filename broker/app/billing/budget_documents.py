"""Budgets as results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field

from broker.app.alerts.notify import NoticeResult
from broker.app.documents import Moment, Result, is_none
from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.ledger.budgets import BudgetShare
from broker.ledger.forecast import Forecast
from broker.reconciler.admission.hold_limits import HoldLimit

if TYPE_CHECKING:
    from broker.reconciler.admission.admission import Admission
    from broker.store.outbox import Dispatch


from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from broker.core.policy.policy import BudgetUse, Source
from broker.core.ports import BudgetSpec
from broker.ledger.budgets import budget_shares, period_name
from broker.ledger.journal import OpenHold
from broker.store.outbox import Dispatch


class CostTermResult(Result):
    """One part of an expected cost in USD, with how it came about."""

    name: str
    amount: Money
    how: str


class PeriodShare(Result):
    """How much of held money (USD) one period of a budget counts, and from when until when it can be used up."""

    period: str
    period_start: Moment
    period_end: Moment
    held: Money
    start: Moment = Field(validation_alias="from", serialization_alias="from")
    until: Moment


class BudgetShareResult(PeriodShare):
    """A share of the holds of a job."""

    budget: str
    timezone: str

    @classmethod
    def of(cls, share: BudgetShare) -> Self:
        return cls(budget=share.budget.id, timezone=share.budget.timezone, **_period_fields(share))


class JobShareResult(PeriodShare):
    """A share of the holds of a job under a budget."""

    job: str

    @classmethod
    def of(cls, job_id: str, share: BudgetShare) -> Self:
        return cls(job=job_id, **_period_fields(share))


def _period_fields(share: BudgetShare) -> dict[str, Any]:
    return {
        "period": share.period_name,
        "period_start": share.period[0],
        "period_end": share.period[1],
        "held": share.held,
        "start": share.start,
        "until": share.end,
    }


class HoldTerms(Result):
    """Money of one kind that is held: from when until when it can be used up, at which rate (USD an hour, all
    machines), and which limit of the job decides the amount. ``quantile``: where that is ``expected``, the share of
    runs (percent) for which it is enough."""

    money: MoneyKind
    held: Money
    start: Moment = Field(validation_alias="from", serialization_alias="from")
    until: Moment
    rate_per_hour: Money
    limited_by: HoldLimit | None
    quantile: float | None

    @classmethod
    def of(cls, admission: Admission) -> list[Self]:
        return [
            cls(
                money=kind,
                held=burn.amount,
                start=burn.start,
                until=burn.end,
                rate_per_hour=burn.rate,
                limited_by=admission.limited_by.get(kind),
                quantile=admission.quantile if admission.limited_by.get(kind) is HoldLimit.EXPECTED else None,
            )
            for kind, burn in admission.burns.items()
        ]


def budget_share_results(shares: Iterable[BudgetShare]) -> list[BudgetShareResult]:
    """The value of ``budget_shares``: how held money is divided among the periods of budgets."""
    return [BudgetShareResult.of(share) for share in shares]


class MoneyByKind(Result):
    """Amounts in USD by kind of money."""

    cash: Money
    amortised: Money
    sandbox: Money

    @classmethod
    def of(cls, amounts: Mapping[MoneyKind, Money]) -> Self:
        return cls(**{kind.value: amounts.get(kind, Money.ZERO) for kind in MoneyKind})

    @property
    def total(self) -> Money:
        return self.cash + self.amortised + self.sandbox


class BudgetScope(Result):
    """Whose jobs a budget counts; empty lists restrict nothing."""

    teams: list[str]
    projects: list[str]
    workloads: list[str]
    users: list[str]
    environments: list[str]


class BudgetStanding(StrEnum):
    """How a budget stands, the worst first: used up or exceeded by what is spent and held, expected to be exceeded by
    the end of its period, at least 80 % spent and held, or none of these."""

    EXCEEDED = "exceeded"
    EXPECTED_OVER = "expected_over"
    NEAR_LIMIT = "near_limit"
    ON_PLAN = "on_plan"


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
    standing: BudgetStanding
    action: str
    alerts: list[str]
    forecast: Forecast
    passed: dict[str, Moment]
    notices: list[NoticeResult]
    scope: BudgetScope
    source: str

    @property
    def margin(self) -> Money:
        """What will be left (USD) if all that is held or expected is spent; negative beyond the limit."""
        return min(self.left, self.limit - self.forecast.expected)

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


class BudgetEffect(Result):
    """A request and one period of a budget (USD): ``requested`` of ``held`` is held for the request, and is released if
    it is refused. ``left``: what is left if it is granted; negative beyond the limit."""

    budget: str
    period_name: str
    limit: Money
    spent: Money
    held: Money
    requested: Money
    left: Money

    @property
    def left_if_refused(self) -> Money:
        return self.left + self.requested


class BudgetList(Result):
    """Every budget, in file order."""

    budgets: list[BudgetResult]

    @property
    def most_urgent_first(self) -> list[BudgetResult]:
        """The budgets in the worst standing first; among these, the largest excess first."""
        return sorted(self.budgets, key=lambda budget: (list(BudgetStanding).index(budget.standing), budget.margin))


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """A budget of the active set and its state in the current period ``at`` a time (UTC). Money in USD. ``marks``: the
    thresholds that it passed, and when each was first detected (UTC). ``holds``: the holds of jobs that count under it.
    """

    spec: BudgetSpec
    limit: Money
    source: Source
    action: str
    alerts: tuple[str, ...]
    use: BudgetUse
    forecast: Forecast
    marks: Mapping[str, datetime]
    holds: Sequence[OpenHold]
    at: datetime

    @property
    def left(self) -> Money:
        """The amount (USD) that can still be held or spent in the period; negative if later charges exceeded the
        limit."""
        return self.limit - self.use.spent - self.use.held

    @property
    def standing(self) -> BudgetStanding:
        used = self.use.spent + self.use.held
        if used > self.limit or used == self.limit > Money.ZERO:
            return BudgetStanding.EXCEEDED
        if self.forecast.expected > self.limit:
            return BudgetStanding.EXPECTED_OVER
        return BudgetStanding.NEAR_LIMIT if used > self.limit.share(4, 5) else BudgetStanding.ON_PLAN

    @property
    def period_name(self) -> str:
        """``November 2026``"""
        return period_name(self.spec.period, self.spec.timezone, self.use.period_start)

    @property
    def held_by_job(self) -> list[tuple[str, BudgetShare]]:
        """The holds of each job in each period, by job: earliest period first, in each the largest first. Those of the
        current period add up to ``use.held``."""
        job_shares = [
            (hold.job_id, share)
            for hold in self.holds
            for share in budget_shares([self.spec], {hold.money: hold.burn.seen(self.at)})
        ]
        return sorted(job_shares, key=lambda job_share: (job_share[1].period, -job_share[1].held.micros, job_share[0]))
