"""The cost of reservation rules on hourly demand: the broker's planner, other rules, and the optimum.

Every rule starts with nothing reserved, knows only the hours before the present one, and pays for reservations whether
used or not. Costs are in on-demand unit-hours; the optimum knows the demand in advance. Demand is recorded (one number
per line, or a CSV with one column per series), or a pattern of a year.

    python -m tests.lab.reserve demand.csv --term 720h --ratio 0.6
    python -m tests.lab.reserve a.csv b.csv --term 30d --ratio 0.4 --ratio 0.7 --warmup 14d --json
    python -m tests.lab.reserve --pattern half-day --pattern burst --ratio 0.6
    python -m tests.lab.reserve november.csv --history october.csv --policies gpubroker,wang,optimum
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from broker.app.capacity.demand_files import Demand, read_demand
from broker.cli.render.tables import Column, cell_table_parts
from broker.core.errors import InvalidInput, UnknownName
from broker.economics.reserve.planner import LONGEST_TERM, Planner
from broker.economics.reserve.replay import Buyer, PurchaseOutcome, ReserveTerms, replay
from tests.lab import command
from tests.lab.reserve_rules import Mixture, OnDemand, StaggeredQuantile, optimum, static_best, wang, wang_randomised

OPTIMUM = "optimum"
STATIC_BEST = "static-best"
WARM_UP = 336

RULES: Mapping[str, Callable[[ReserveTerms], Sequence[Buyer]]] = {
    "gpubroker": lambda terms: [Planner(terms.term, terms.ratio)],
    "mixture": lambda terms: [Mixture(terms.term, terms.ratio)],
    "staggered-quantile": lambda terms: [StaggeredQuantile(terms.ratio)],
    "wang": lambda terms: [wang(terms)],
    "wang-randomised": wang_randomised,
    "on-demand": lambda terms: [OnDemand()],
}
POLICIES = (*RULES, STATIC_BEST, OPTIMUM)
DEFAULT_POLICIES = ("gpubroker", "mixture", "staggered-quantile", "wang", STATIC_BEST, "on-demand", OPTIMUM)

PATTERN_HOURS = WARM_UP + 8760
"""Two weeks of known history, and a year that is measured."""
_PATTERNS: Mapping[str, tuple[Callable[[int], int], str]] = {
    "constant": (lambda hour: 10, "10 at all hours"),
    "half-day": (lambda hour: 12 if hour % 24 < 12 else 4, "12 for half of each day, else 4"),
    "weekday": (lambda hour: 20 if hour // 24 % 7 < 5 else 5, "20 on weekdays, 5 on weekends"),
    "quarter-end": (lambda hour: 12 if hour // 24 % 91 >= 77 else 4, "12 in the last two weeks of a quarter, else 4"),
    "ramp": (lambda hour: 5 + 15 * hour // PATTERN_HOURS, "rising from 5 to 20"),
    "stop": (lambda hour: 10 if hour < PATTERN_HOURS - 4380 else 0, "10, and nothing in the last half year"),
    "burst": (lambda hour: 20 if hour // 48 % 15 == 7 else 4, "two days of 20 a month, else 4"),
}
PATTERNS = tuple(_PATTERNS)


def pattern_demand(name: str) -> Demand:
    """Synthetic demand of a year, always the same. Raises `UnknownName`."""
    if name not in _PATTERNS:
        raise UnknownName("pattern", name, PATTERNS)
    units, meaning = _PATTERNS[name]
    hours = tuple(units(hour) for hour in range(PATTERN_HOURS))
    return Demand(name, hours, where=f"pattern {name}", notes=(f"synthetic, {meaning}",))


def main(arguments: Sequence[str]) -> int:
    parser = command.parser(__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="hourly demand")
    parser.add_argument("--demand", action="append", default=[], type=Path, metavar="FILE", help="same as FILE")
    parser.add_argument("--pattern", action="append", default=[], help=f"repeatable: {', '.join(PATTERNS)}")
    parser.add_argument("--term", type=command.hours, default=720, help="of a reservation; default: 720h")
    parser.add_argument("--ratio", action="append", type=float, help="reserved over on-demand price; default: 0.6")
    parser.add_argument("--warmup", type=command.hours, help="start of each series that is history and costs nothing")
    parser.add_argument("--history", action="append", default=[], type=Path, metavar="FILE", help="one for each series")
    parser.add_argument("--end", choices=["unknown", "known"], default="unknown", help="do rules know where it ends?")
    parser.add_argument("--policies", type=command.names, default=DEFAULT_POLICIES, help=", ".join(POLICIES))
    given = parser.parse_args(arguments)
    files, patterns = [*given.files, *given.demand], dict.fromkeys(given.pattern)
    series = [*(read_demand(files) if files or not patterns else []), *map(pattern_demand, patterns)]
    history = [demand.hours for demand in read_demand(given.history)] if given.history else []
    ratios = dict.fromkeys(given.ratio or [0.6])
    terms = [_terms(given.term, ratio, end_known=given.end == "known") for ratio in ratios]
    with command.progress() as told:
        found = measure(series, terms, given.policies, warm_up=given.warmup, history=history, progress=told)
    command.show(found, lambda console: tables(console, found), as_json=given.json)
    return 0


def _terms(term: int, ratio: float, *, end_known: bool) -> ReserveTerms:
    if not 1 <= term <= LONGEST_TERM:
        raise InvalidInput(f"expected a term from 1h to {LONGEST_TERM}h, got {term} h", where="--term")
    if not (math.isfinite(ratio) and 0 < ratio <= 100):
        expected = "expected the reserved over the on-demand price, above 0, such as 0.6"
        raise InvalidInput(f"{expected}; got {ratio!r}", where="--ratio")
    return ReserveTerms(term, ratio, end_known)


def measure(
    series: Sequence[Demand],
    terms: Sequence[ReserveTerms],
    policies: Sequence[str] = DEFAULT_POLICIES,
    *,
    warm_up: int | None = None,
    history: Sequence[Sequence[int]] = (),
    progress: command.Progress | None = None,
) -> dict[str, Any]:
    """The document: every policy on every series on all terms, which differ in their ratio. Deterministic.

    ``warm_up``: hours at the start of every series that are history and cost nothing; by default two weeks, or the term
    if shorter, and none for series with a ``history``: earlier demand, in the order of the series.
    """
    if unknown := [policy for policy in policies if policy not in POLICIES]:
        raise UnknownName("policy", unknown[0], POLICIES, where="--policies")
    if history and len(history) != len(series):
        raise InvalidInput(f"{len(series)} series and {len(history)} histories", where="--history")
    known = history or [()] * len(series)
    start = (0 if history else min(terms[0].term, WARM_UP)) if warm_up is None else warm_up
    for demand in series:
        if not 0 <= start < len(demand.hours):
            said = f"{demand.name}: a warm-up of {start} h leaves nothing of {len(demand.hours)} h to measure"
            raise InvalidInput(said, where=demand.where, hint="give a longer series or a shorter --warmup")
    cells: list[_Cell] = []
    for demand, before in zip(series, known, strict=True):
        for each in terms:
            best = optimum(demand.hours[start:], each)
            for policy in policies:
                outcomes = [best] if policy == OPTIMUM else _outcomes(policy, demand, before, start, each)
                cells.append(_Cell(demand.name, each.ratio, policy, outcomes, best.cost))
                if progress is not None:
                    progress(len(cells), len(series) * len(terms) * len(policies), demand.name)
    return {
        "term_s": terms[0].term * 3600,
        "end": "known" if terms[0].end_known else "unknown",
        "unit": "on-demand unit-hours",
        "cells": [cell.as_dict() for cell in cells],
        "means": list(_means(cells)),
        "series": [_about(demand, start) for demand in series],
        "notes": _notes(series, terms, known, start, said=warm_up is not None),
    }


def _outcomes(
    policy: str, demand: Demand, before: Sequence[int], start: int, terms: ReserveTerms
) -> list[PurchaseOutcome]:
    if policy == STATIC_BEST:
        return [static_best(demand.hours[start:], terms)]
    hours = [*before, *demand.hours]
    return [replay(rule, hours, terms, warm_up=len(before) + start) for rule in RULES[policy](terms)]


@dataclass(frozen=True, slots=True)
class _Cell:
    """One rule on one series at one ratio. ``outcomes``: several of a randomised rule; its cost is their mean."""

    series: str
    ratio: float
    policy: str
    outcomes: Sequence[PurchaseOutcome]
    optimum: float

    @property
    def cost_over_optimum(self) -> float | None:
        """None where the optimum costs nothing and the rule does not."""
        cost = fmean(outcome.cost for outcome in self.outcomes)
        return cost / self.optimum if self.optimum else None if cost else 1.0

    def as_dict(self) -> dict[str, Any]:
        """``units_bought``, ``most_held``: None for a mean over several runs."""
        over = self.cost_over_optimum
        only = self.outcomes[0] if len(self.outcomes) == 1 else None
        return {
            "series": self.series,
            "ratio": self.ratio,
            "policy": self.policy,
            "cost": self._mean(lambda outcome: outcome.cost),
            "optimum_cost": round(float(self.optimum), 6),
            "cost_over_optimum": None if over is None else round(over, 6),
            "reserved_cost": self._mean(lambda outcome: outcome.reserved),
            "on_demand_cost": self._mean(lambda outcome: outcome.on_demand),
            "idle_unit_hours": self._mean(lambda outcome: outcome.idle),
            "units_bought": sum(units for _, units in only.purchases) if only else None,
            "most_held": max(only.held) if only else None,
        }

    def _mean(self, figure: Callable[[PurchaseOutcome], float]) -> float:
        return round(fmean(map(figure, self.outcomes)), 6)


def _means(cells: Sequence[_Cell]) -> Iterator[dict[str, Any]]:
    """Each rule at each ratio over all series that cost something."""
    groups: dict[tuple[float, str], list[float]] = {}
    for cell in cells:
        if (over := cell.cost_over_optimum) is not None:
            groups.setdefault((cell.ratio, cell.policy), []).append(over)
    for (ratio, policy), found in groups.items():
        mean, worst = round(fmean(found), 6), round(max(found), 6)
        yield {
            "ratio": ratio, "policy": policy, "series": len(found), "mean_cost_over_optimum": mean,
            "worst_cost_over_optimum": worst,
        }  # fmt: skip


def _about(demand: Demand, start: int) -> dict[str, Any]:
    counted = demand.hours[start:]
    return {
        "series": demand.name,
        "file": demand.where,
        "hours": len(demand.hours),
        "warmup_s": start * 3600,
        "mean": round(fmean(counted), 6),
        "peak": max(counted),
        "notes": list(demand.notes),
    }


def _notes(
    series: Sequence[Demand], terms: Sequence[ReserveTerms], known: Sequence[Sequence[int]], start: int, *, said: bool
) -> list[str]:
    notes = [f"{demand.name}: {note}" for demand in series for note in demand.notes]
    if not said:
        notes.append(f"no --warmup: the first {start} h of each series are history and cost nothing")
    short = [demand.name for demand, before in zip(series, known, strict=True) if len(before) + start < 24]
    if short:
        notes.append(f"less than a day of history before the first hour that counts: {', '.join(short)}")
    term = terms[0].term
    if brief := [demand.name for demand in series if len(demand.hours) - start < term]:
        notes.append(f"shorter than one term of {term} h: {', '.join(brief)}")
    if any(each.ratio >= 1 for each in terms):
        notes.append("at a ratio of 1 or more reserved capacity costs as much as on-demand: reserving cannot pay")
    return notes


def tables(console: Console, found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Cost over optimum of each rule on each series, the mean over the series, and the assumptions."""
    for ratio in dict.fromkeys(cell["ratio"] for cell in found["cells"]):
        term = f"reserved at {ratio:g} of on-demand for {found['term_s'] // 3600} h"
        yield Text(f"Cost over optimum · {term} · end {found['end']}", style="bold")
        yield from (*_table(console, found, ratio), "")
    yield Text("Costs are in on-demand unit-hours; 1 is the optimum, which knows the demand in advance.", style="dim")
    yield from (Text(note, style="dim") for note in found["notes"])


def _table(console: Console, found: Mapping[str, Any], ratio: float) -> list[RenderableType]:
    by = {(cell["series"], cell["policy"]): cell for cell in found["cells"] if cell["ratio"] == ratio}
    policies = [policy for policy in dict.fromkeys(policy for _, policy in by) if policy != OPTIMUM]
    columns = [
        Column("series", folds=True),
        *(Column(policy, 0 if policy == "gpubroker" else 1 + POLICIES.index(policy), "right") for policy in policies),
        Column("optimum's cost", 9, "right"),
    ]
    costs = {series: cell["optimum_cost"] for (series, _), cell in by.items()}
    rows: list[list[str | Text]] = [
        [series, *_overs([by[series, policy]["cost_over_optimum"] for policy in policies]), f"{cost:,.0f}"]
        for series, cost in costs.items()
    ]
    if len(rows) > 1:
        means = {mean["policy"]: mean["mean_cost_over_optimum"] for mean in found["means"] if mean["ratio"] == ratio}
        rows.append([Text("mean", style="bold"), *_overs([means.get(policy) for policy in policies]), ""])
    return cell_table_parts(console, columns, rows)


def _overs(values: Sequence[float | None]) -> list[Text]:
    """The cells of a row; the least in bold."""
    least = min((value for value in values if value is not None), default=None)
    return [Text("–") if value is None else Text(f"{value:.3f}", "bold" if value == least else "") for value in values]


if __name__ == "__main__":
    command.run(main)
