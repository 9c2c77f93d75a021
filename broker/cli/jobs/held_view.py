"""Held money as text: its budgets, periods and time, and the limit that decides the amount."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from broker.cli.render import formats
from broker.core.values.money import Money

if TYPE_CHECKING:
    from broker.app.results.money import BudgetShareResult

_MOST_PERIODS = 4  # of one budget in a sentence


def shares_of(shares: Iterable[BudgetShareResult]) -> list[str]:
    """One line per budget: ``$12.40 of budget team-a for November 2026 and $7.60 for December 2026 (UTC)``."""
    lines = []
    for budget, mine in groupby(shares, lambda one: one.budget):
        first, *others = mine
        shown, more = others[: _MOST_PERIODS - 1], others[_MOST_PERIODS - 1 :]
        parts = [f"{formats.money(first.held)} of budget {budget} for {first.period}"]
        parts += [f"{formats.money(one.held)} for {one.period}" for one in shown]
        if more:
            rest = sum((one.held for one in more), Money.ZERO)
            parts.append(
                f"{formats.money(rest)} for {formats.plural(len(more), 'more period')} until {more[-1].until:%Y-%m-%d}"
            )
        *all_but_last, last = parts
        joined = f"{', '.join(all_but_last)} and {last}" if all_but_last else last
        lines.append(f"{joined} ({first.timezone})")
    return lines


def covers(quantile: float) -> str:
    """The coverage of a hold that follows from the job's work: ``enough for 95 % of runs …``."""
    share = f"{quantile:g} % of runs of this `work:` (the policy's `hold_quantile`)"
    return f"enough for {share}; more is held while it runs, if it takes longer"
