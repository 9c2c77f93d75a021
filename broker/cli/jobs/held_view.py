"""Held money as text: its budgets, periods and time, and the limit that decides the amount."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from broker.cli.render import formats
from broker.core.values.money import Money
from broker.core.values.units import print_duration
from broker.ledger.shares import BudgetShare
from broker.reconciler.admission.hold_limits import HoldLimit

if TYPE_CHECKING:
    from broker.app.jobs.preview import Preview
    from broker.reconciler.admission.admission import Admission

_MOST_PERIODS = 4  # of one budget in a sentence


def shares_of(shares: Iterable[BudgetShare]) -> list[str]:
    """One line per budget: ``$12.40 of budget team-a for November 2026 and $7.60 for December 2026 (UTC)``."""
    lines = []
    for budget, mine in groupby(shares, lambda one: one.budget):
        first, *others = mine
        shown, more = others[: _MOST_PERIODS - 1], others[_MOST_PERIODS - 1 :]
        parts = [f"{formats.money(first.held)} of budget {budget.id} for {first.period_name}"]
        parts += [f"{formats.money(one.held)} for {one.period_name}" for one in shown]
        if more:
            rest = sum((one.held for one in more), Money.ZERO)
            parts.append(
                f"{formats.money(rest)} for {formats.plural(len(more), 'more period')} until {more[-1].end:%Y-%m-%d}"
            )
        *all_but_last, last = parts
        joined = f"{', '.join(all_but_last)} and {last}" if all_but_last else last
        lines.append(f"{joined} ({budget.timezone})")
    return lines


def why(admission: Admission, seen: Preview) -> list[str]:
    """For each kind of money: for how long, at which rate, and which limit of the job decides the amount."""
    lines = []
    for kind, burn in admission.burns.items():
        amount, lasts = f"{formats.money(burn.amount)} {kind}", burn.end - burn.start
        at_once = burn.amount - burn.rate.for_duration(lasts)
        pays = f"for up to {formats.length(lasts)} from now at up to {formats.rate(burn.rate)}/h"
        if at_once.micros >= 10_000:
            pays += f", and {formats.money(at_once)} at the start for moving data"
        lines.append(
            f"{amount} is held at submission, {pays}; {_limit(admission.limited_by.get(kind), seen, admission)}"
        )
    return lines


def _limit(limit: HoldLimit | None, seen: Preview, admission: Admission) -> str:
    longest = print_duration(seen.max_duration)
    if limit is HoldLimit.MAX_COST:
        return f"limited by max_cost ({formats.money(seen.job.max_cost)}), before max_duration ({longest})"
    if limit is HoldLimit.SESSION:
        return f"more is held while the session runs, for {longest} at most"
    if limit is HoldLimit.EXPECTED:
        return f"{covers(admission.quantile)}, for {longest} at most"
    named = "max_duration" if seen.job.max_duration is not None else "the default max_duration"
    return f"limited by {named} ({longest} plus the time to stop)"


def covers(quantile: float) -> str:
    """The coverage of a hold that follows from the job's work: ``enough for 95 % of runs …``."""
    share = f"{quantile:g} % of runs of this `work:` (the policy's `hold_quantile`)"
    return f"enough for {share}; more is held while it runs, if it takes longer"
