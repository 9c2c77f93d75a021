"""Held money as results: its budgets and periods, its time, and the limit that determines it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field

from broker.app.results.values import Moment, Result
from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.ledger.shares import BudgetShare
from broker.reconciler.admission.hold_limits import HoldLimit

if TYPE_CHECKING:
    from broker.reconciler.admission.admission import Admission


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
