"""The cost of a better result: the difference in cost over the difference in a reported metric. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from broker.core.values.money import Money


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A successful run, its total cost (USD), and its last report of the metric. ``owner``: team and project."""

    owner: str
    job_id: str
    cost: Money
    value: float


@dataclass(frozen=True, slots=True)
class QualityCost:
    """The cheapest and the most expensive run of an owner. ``per_point``: USD per difference of 1 in the metric, in
    either direction; None if both have the same value."""

    owner: str
    cheapest: ScoredRun
    dearest: ScoredRun
    per_point: Money | None


def quality_costs(runs: Iterable[ScoredRun]) -> Sequence[QualityCost]:
    """By owner with at least two runs, in the order of their names."""
    owners: defaultdict[str, list[ScoredRun]] = defaultdict(list)
    for run in runs:
        owners[run.owner].append(run)
    found = []
    for owner, theirs in sorted(owners.items()):
        if len(theirs) < 2:
            continue
        in_order = sorted(theirs, key=lambda run: (run.cost.micros, run.job_id))
        cheapest, dearest = in_order[0], in_order[-1]
        apart = abs(dearest.value - cheapest.value)
        per_point = (dearest.cost - cheapest.cost).scaled(1 / apart) if apart else None
        found.append(QualityCost(owner, cheapest, dearest, per_point))
    return found
