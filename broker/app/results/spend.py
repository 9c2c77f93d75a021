"""Spend as a result."""

from __future__ import annotations

from broker.app.results.values import Figure, Moment, Result
from broker.core.values.money import Money


class SpendGroup(Result):
    """The spend of one group: money in USD by kind, machine and GPU time in hours. ``values``: what the group is in
    each dimension, in their order. ``held``: set aside now for its jobs. ``bought``: the part of the spend on owned and
    reserved machines; ``rented``: on on-demand and spot ones."""

    group: str
    values: list[str]
    cash: Money
    amortised: Money
    sandbox: Money
    held: Money
    bought: Money
    rented: Money
    gpu_hours: Figure
    machine_hours: Figure
    attempts: int
    jobs: int


class SpendTotal(Result):
    """The sums over all groups (USD). ``bought_in_advance``: paid in the period for capacity that is used later, and in
    no group; null in the report of single teams."""

    cash: Money
    amortised: Money
    sandbox: Money
    held: Money
    bought: Money
    rented: Money
    bought_in_advance: Money | None


class SpendReport(Result):
    """Spend by one or several dimensions (separated by commas), the most expensive group first; times null where the
    period is open."""

    by: str
    since: Moment | None
    until: Moment | None
    sandbox_only: bool
    rows: list[SpendGroup]
    total: SpendTotal
