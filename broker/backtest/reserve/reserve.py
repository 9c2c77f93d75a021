"""The backtest of reserve rules on hourly demand. `run_reserve_backtest` is the whole interface.

Rules and cost model are those of `broker.economics.reserve`; the product plans with the same code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from broker.backtest.reserve.demand import Demand, pattern_demand, read_demand
from broker.backtest.reserve.reserve_report import ReserveCell, ReserveReport
from broker.core.errors import InvalidInput, UnknownName
from broker.economics.reserve.mixture import Mixture
from broker.economics.reserve.planner import LONGEST_TERM, Planner
from broker.economics.reserve.replay import Buyer, PurchaseOutcome, ReserveTerms, replay
from broker.economics.reserve.yardsticks import OnDemand, StaggeredQuantile, optimum, static_best, wang, wang_randomised

OPTIMUM = "optimum"
STATIC_BEST = "static-best"
DEFAULT_WARM_UP = 336

_RULES: dict[str, Callable[[ReserveTerms], Sequence[Buyer]]] = {
    "gpubroker": lambda terms: [Planner(terms.term, terms.ratio)],
    "mixture": lambda terms: [Mixture(terms.term, terms.ratio)],
    "staggered-quantile": lambda terms: [StaggeredQuantile(terms.ratio)],
    "wang": lambda terms: [wang(terms)],
    "wang-randomised": wang_randomised,
    "on-demand": lambda terms: [OnDemand()],
}
POLICIES = (*_RULES, STATIC_BEST, OPTIMUM)
DEFAULT_POLICIES = ("gpubroker", "mixture", "staggered-quantile", "wang", STATIC_BEST, "on-demand", OPTIMUM)

Progress = Callable[[int, int, str], None]
"""Called with the cells done, the cells in total, and the current series."""


@dataclass(frozen=True, slots=True)
class ReserveReplay:
    """The measurement to run. ``term`` and ``warm_up`` in hours.

    ``warm_up``: hours at the start of every series that are history and cost nothing; by default two weeks, or the term
    if shorter, and none for a series with ``history``. ``history``: files of earlier demand, in the order of the
    series, those of ``patterns`` (`broker.backtest.reserve.demand`) last. ``end_known``: see
    `broker.economics.reserve.replay`.
    """

    files: Sequence[Path]
    term: int
    ratios: Sequence[float] = (0.6,)
    warm_up: int | None = None
    history: Sequence[Path] = ()
    end_known: bool = False
    policies: Sequence[str] = DEFAULT_POLICIES
    patterns: Sequence[str] = ()


def run_reserve_backtest(request: ReserveReplay, progress: Progress | None = None) -> ReserveReport:
    """Measure every policy on every series at every ratio. Deterministic. Raises `InvalidInput` or `UnknownName` before
    any work is done if that is impossible, and `MissingExtra` without SciPy."""
    _check(request)
    series = [
        *(read_demand(request.files) if request.files or not request.patterns else []),
        *pattern_demand(request.patterns),
    ]
    before = _history(request, series)
    default = 0 if request.history else min(request.term, DEFAULT_WARM_UP)
    warm_up = default if request.warm_up is None else request.warm_up
    for demand in series:
        if warm_up >= len(demand.hours):
            raise InvalidInput(
                f"{demand.name}: a warm-up of {warm_up} h leaves nothing of {len(demand.hours)} h to measure",
                where=demand.where,
                hint="give a longer series or a shorter --warmup",
            )
    total, cells = len(series) * len(request.ratios) * len(request.policies), list[ReserveCell]()
    for demand, history in zip(series, before, strict=True):
        for ratio in request.ratios:
            terms = ReserveTerms(request.term, ratio, request.end_known)
            for cell in _cells(request.policies, demand, history, warm_up, terms):
                cells.append(cell)
                if progress is not None:
                    progress(len(cells), total, demand.name)
    notes = _notes(request, series, before, warm_up)
    return ReserveReport(
        request.term, request.end_known, tuple(series), (warm_up,) * len(series), tuple(cells), tuple(notes)
    )


def _cells(
    policies: Sequence[str], demand: Demand, history: Sequence[int], warm_up: int, terms: ReserveTerms
) -> Iterator[ReserveCell]:
    counted = demand.hours[warm_up:]
    best = optimum(counted, terms)
    for policy in policies:
        if policy == OPTIMUM:
            outcomes = [best]
        elif policy == STATIC_BEST:
            outcomes = [static_best(counted, terms)]
        else:
            known = [*history, *demand.hours]
            outcomes = [replay(rule, known, terms, warm_up=len(history) + warm_up) for rule in _RULES[policy](terms)]
        yield _cell(demand.name, policy, terms, outcomes, best)


def _cell(
    series: str, policy: str, terms: ReserveTerms, outcomes: Sequence[PurchaseOutcome], best: PurchaseOutcome
) -> ReserveCell:
    return ReserveCell(
        series=series,
        ratio=terms.ratio,
        policy=policy,
        reserved=sum(outcome.reserved for outcome in outcomes) / len(outcomes),
        on_demand=sum(outcome.on_demand for outcome in outcomes) / len(outcomes),
        idle=sum(outcome.idle for outcome in outcomes) / len(outcomes),
        optimum=best.cost,
        outcome=outcomes[0] if len(outcomes) == 1 else None,
    )


def _history(request: ReserveReplay, series: Sequence[Demand]) -> list[Sequence[int]]:
    """The history of each series, in their order."""
    if not request.history:
        return [()] * len(series)
    before = read_demand(request.history)
    if len(before) != len(series):
        raise InvalidInput(
            f"{len(series)} series and {len(before)} histories",
            where="--history",
            hint="give one history for each series, in the same order",
        )
    return [demand.hours for demand in before]


def _notes(
    request: ReserveReplay, series: Sequence[Demand], before: Sequence[Sequence[int]], warm_up: int
) -> list[str]:
    notes = [f"{demand.name}: {note}" for demand in series for note in demand.notes]
    if request.warm_up is None:
        notes.append(f"no --warmup: the first {warm_up} h of each series are history and cost nothing")
    short = [d.name for d, history in zip(series, before, strict=True) if len(history) + warm_up < 24]
    if short:
        notes.append(f"less than a day of history before the first hour that counts: {', '.join(short)}")
    brief = [d.name for d in series if len(d.hours) - warm_up < request.term]
    if brief:
        notes.append(f"shorter than one term of {request.term} h: {', '.join(brief)}")
    if any(ratio >= 1 for ratio in request.ratios):
        notes.append("at a ratio of 1 or more reserved capacity costs as much as on-demand: reserving cannot pay")
    return notes


def _check(request: ReserveReplay) -> None:
    for policy in request.policies:
        if policy not in POLICIES:
            raise UnknownName("policy", policy, POLICIES)
    if not request.policies or not request.ratios:
        raise InvalidInput("a backtest needs at least one policy and one ratio")
    for ratio in request.ratios:
        if not (math.isfinite(ratio) and 0 < ratio <= 100):
            raise InvalidInput(
                f"expected the reserved over the on-demand price, above 0, such as 0.6; got {ratio!r}", where="--ratio"
            )
    if not 1 <= request.term <= LONGEST_TERM:
        raise InvalidInput(f"expected a term from 1h to {LONGEST_TERM}h, got {request.term} h", where="--term")
    if request.warm_up is not None and request.warm_up < 0:
        raise InvalidInput("a warm-up cannot be negative", where="--warmup")
