"""The budgets and periods that count a hold, and the amount in each. Pure.

Rules judge budgets by the same shares (`broker.ledger.budgets.hold_by_period`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from broker.core.market.offers import MoneyKind
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.budgets import Window, hold_by_period, period_name, periods_touching


@dataclass(frozen=True, slots=True)
class BudgetShare:
    """The part of a hold (USD) in one period of a budget, and the time (UTC) in which it can be used.

    ``period``: the whole period, half-open, in UTC.
    """

    budget: BudgetSpec
    period: Window
    held: Money
    start: datetime
    end: datetime

    @property
    def period_name(self) -> str:
        """``November 2026``"""
        return period_name(self.budget.period, self.budget.timezone, self.period[0])


def budget_shares(budgets: Iterable[BudgetSpec], burns: Mapping[MoneyKind, Burn]) -> list[BudgetShare]:
    """A job's hold by kind of money, divided into the periods of its budgets: by budget, then by time.

    Periods without a hold are left out. The shares of one budget add up to what it counts of the hold; for fixed days
    only to what falls into them.
    """
    return [share for budget in budgets for share in _shares_in(budget, burns)]


def _shares_in(budget: BudgetSpec, burns: Mapping[MoneyKind, Burn]) -> Iterable[BudgetShare]:
    matching = [burn for kind, burn in burns.items() if kind in budget.counts and burn.amount > Money.ZERO]
    if not matching:
        return
    start, end = min(burn.start for burn in matching), max(burn.end for burn in matching)
    periods = periods_touching(budget.period, budget.timezone, (start, end))
    for period, held in zip(periods, hold_by_period(periods, matching), strict=True):
        if held:
            yield BudgetShare(budget, period, held, max(start, period[0]), min(end, period[1]))
