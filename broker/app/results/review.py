"""The review of a month as a result."""

from __future__ import annotations

from broker.app.results.values import Figure, Moment, Result
from broker.core.values.money import Money
from broker.economics.reserve.capacity_findings import CapacityFinding
from broker.finops.advice import AdviceKind, MonthAdvice
from broker.finops.change import Change, Part


class ReviewedMonth(Result):
    """One month, or the days of it that are compared (UTC). Money in USD: ``spent`` is the cost of use, cash and
    amortised; ``cash`` the amount payable, including capacity
    ``bought_in_advance``. Hours are of GPUs; ``price``: USD
    per GPU-hour, null without any. ``on_own``: use of owned and reserved capacity, ``rented``: of all other."""

    since: Moment
    until: Moment
    spent: Money
    cash: Money
    bought_in_advance: Money
    amortised: Money
    gpu_hours: Figure
    gpu_spent: Money
    price: Money | None
    spot_hours: Figure
    spot_spent: Money
    wasted: Money
    untagged: Money
    on_own: Money
    rented: Money


class ReviewedTeam(Result):
    """The cost of a team's use before and in the month (USD)."""

    team: str
    before: Money
    spent: Money


class ReviewedBudget(Result):
    """A monthly budget in force now, and the spend under it in the month (USD)."""

    name: str
    limit: Money
    spent: Money


class FollowedAdviceResult(Result):
    """Advice on the month before: its subject's cost ``then`` and ``now`` (USD)."""

    kind: AdviceKind
    about: str
    then: Money
    now: Money


class ReviewReport(Result):
    """A month against the one before. ``over``: whether the month has ended; otherwise as many days of both are
    compared. ``change`` (USD) is the sum of ``parts``, by their names, and that of ``causes`` and ``other_causes``."""

    month: str
    over: bool
    before: ReviewedMonth
    after: ReviewedMonth
    change: Money
    parts: dict[Part, Money]
    causes: list[Change]
    other_causes: Money
    teams: list[ReviewedTeam]
    budgets: list[ReviewedBudget]
    advice: list[MonthAdvice]
    followed: list[FollowedAdviceResult]
    capacity: list[CapacityFinding]
