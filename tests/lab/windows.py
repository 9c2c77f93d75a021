"""Every strategy on seeded windows of recorded markets: `measure`.

Windows lie between ``from_fraction`` and ``to_fraction`` of the trace; strategies may learn from everything before a
window's start, including the family's other pools. All pools, deadlines, changeovers and strategies of a family share
the same windows, so that figures are comparable pair by pair.
"""

import math
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

from broker.core.errors import InvalidInput, UnknownName
from broker.economics.units import quantile
from broker.placement.strategy.regimes import Regimes
from broker.placement.strategy.situation import Handover, StrategyTask
from tests.lab.command import Progress
from tests.lab.optimum import optimum
from tests.lab.replay import HOUR, ReplayMarket, ReplayOutcome, replay
from tests.lab.strategies import POLICIES, Preparation
from tests.lab.traces import TracePrices, read_markets

OMNISCIENT = "omniscient"
OVERLAP = "-overlap"
CAN_OVERLAP = ("gpubroker", "uniform-progress", OMNISCIENT)
"""Policies that, as ``gpubroker-overlap``, may boot a spot machine beside the working on-demand one."""
NAMES = (*POLICIES, OMNISCIENT, *(policy + OVERLAP for policy in CAN_OVERLAP))
DEFAULT_POLICIES = ("gpubroker", "uniform-progress", "greedy", "on-demand", OMNISCIENT)

_MOST_STATES = 2e10  # minutes for each window
_MOST_KEPT = 1e7  # values of 8 bytes

Key = tuple[str, str, float, float, str]
"""Family, pool, deadline, changeover, policy."""

Families = Sequence[tuple[Sequence[ReplayMarket], Sequence[int]]]
"""Markets that learn from each other, with the ticks at which windows start."""


@dataclass(frozen=True, slots=True)
class Window:
    """One replay: its first tick in the trace, the optimum's cost in USD, the strategy's, and the outcome; None for the
    omniscient optimum itself, of which only the cost is known."""

    start: int
    optimum: float
    cost: float
    outcome: ReplayOutcome | None


@dataclass(frozen=True, slots=True)
class PlacementCell:
    """One policy on one pool (or set of pools) at one deadline and changeover, over its windows.

    ``ratio_mean``: mean cost / mean optimum; ``ratio_p95``: 95th percentile of the windows' own ratios; ``missed``:
    windows that ended late; ``on_demand_share``: part of billed time; ``interruptions``: mean per window. The last two
    are None for the optimum. ``together``: how many pools the job could choose between.
    """

    family: str
    pool: str
    deadline_s: float
    changeover_s: float
    policy: str
    windows: tuple[Window, ...]
    together: int = 1

    @property
    def outcomes(self) -> list[ReplayOutcome]:
        return [window.outcome for window in self.windows if window.outcome]

    @property
    def mean_cost(self) -> float:
        return fmean(window.cost for window in self.windows)

    @property
    def ratio_mean(self) -> float:
        return sum(window.cost for window in self.windows) / sum(window.optimum for window in self.windows)

    @property
    def ratio_p95(self) -> float:
        return quantile([window.cost / window.optimum for window in self.windows], 0.95)

    @property
    def missed(self) -> int:
        return sum(outcome.missed for outcome in self.outcomes)

    @property
    def on_demand_share(self) -> float | None:
        billed = sum(outcome.billed_seconds for outcome in self.outcomes)
        return sum(outcome.on_demand_seconds for outcome in self.outcomes) / billed if billed else None

    @property
    def interruptions(self) -> float | None:
        found = [outcome.interruptions for outcome in self.outcomes]
        return sum(found) / len(found) if found else None


@dataclass(frozen=True, slots=True)
class Request:
    """The replay to run. Durations in seconds.

    ``traces``: files or folders. ``together``: the pools of a family are zones that one job may choose between.
    ``history``: whether strategies learn from what is before a window's start. ``prior``: what they start from, instead
    of the shipped one. ``restore``, None for a quarter of the changeover, and ``upload``: of a handover. ``zones``:
    only these pools. ``starts``: windows per pool, fewer if the trace is too short.
    """

    traces: Sequence[Path]
    work: float = 48 * HOUR
    deadlines: Sequence[float] = (60 * HOUR,)
    changeovers: Sequence[float] = (0.2 * HOUR,)
    policies: Sequence[str] = DEFAULT_POLICIES
    starts: int = 100
    seed: int = 7
    from_fraction: float = 0.5
    to_fraction: float = 1.0
    together: bool = False
    history: bool = True
    prior: Regimes | None = None
    restore: float | None = None
    upload: float = 0.0
    zones: Sequence[str] = ()
    prices: TracePrices = field(default_factory=TracePrices)


def measure(
    request: Request, progress: Progress | None = None, *, workers: int = 1
) -> tuple[list[PlacementCell], list[str]]:
    """Replay ``request``: every cell, and caveats. Deterministic for its seed and any number of ``workers``
    (processes). Raises `InvalidInput` or `UnknownName` before any work is done if it cannot be replayed."""
    _check(request)
    families = _families(request)
    per_start = len(request.deadlines) * len(request.changeovers)
    total = sum(len(starts) * len(markets) * per_start for markets, starts in families)
    cells: dict[Key, list[Window]] = {}
    done = 0
    for markets, starts in families:
        for windows in _replayed(request, markets, starts, workers):
            for key, window in windows:
                cells.setdefault(key, []).append(window)
            done += len(markets) * per_start
            if progress is not None:
                progress(done, total, markets[0].family)
    notes = dict.fromkeys(f"{m.family}: {note}" for markets, _ in families for m in markets for note in m.notes)
    order = {policy: i for i, policy in enumerate(request.policies)}
    ordered = sorted(cells, key=lambda key: (*key[:4], order[key[4]]))
    together = {(market.family, market.name): len(market.pools) for markets, _ in families for market in markets}
    return [PlacementCell(*key, tuple(cells[key]), together[key[:2]]) for key in ordered], list(notes)


def _replayed(
    request: Request, markets: Sequence[ReplayMarket], starts: Sequence[int], workers: int
) -> Iterator[list[tuple[Key, Window]]]:
    """The results of `_replay_start`, in the order of the starts."""
    if workers < 2:
        yield from (_replay_start(request, markets, start) for start in starts)
        return
    # Fresh interpreters: forking a process that may have threads can hang. The markets travel once per worker.
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin_work, (request, markets)) as pool:
        yield from pool.map(_work, starts)


_work_on: list[tuple[Request, Sequence[ReplayMarket]]] = []


def _begin_work(request: Request, markets: Sequence[ReplayMarket]) -> None:
    _work_on[:] = [(request, markets)]


def _work(start: int) -> list[tuple[Key, Window]]:
    return _replay_start(*_work_on[0], start)


def _replay_start(request: Request, markets: Sequence[ReplayMarket], start: int) -> list[tuple[Key, Window]]:
    """All windows that begin at one tick: they share the history."""
    longest = max(request.deadlines)
    preparation = Preparation(markets, start, request.history, request.prior)
    windows: list[tuple[Key, Window]] = []
    for market, changeover in product(markets, request.changeovers):
        tasks = [StrategyTask(request.work, deadline, changeover, market.gap_seconds) for deadline in request.deadlines]
        best = {task: optimum(market, start, task) for task in tasks}
        for policy, task in product(request.policies, tasks):
            key = (market.family, market.name, task.deadline, changeover, policy)
            least, strategy = best[task], policy.removesuffix(OVERLAP)
            if policy.endswith(OVERLAP):
                task = replace(task, handover=_handover(request, changeover))
            if strategy == OMNISCIENT:
                cost = optimum(market, start, task) if task.handover else least
                windows.append((key, Window(start, least, cost, None)))
                continue
            session = POLICIES[strategy](preparation, market, task, replace(task, deadline=longest))
            outcome = replay(market, start, task, session)
            windows.append((key, Window(start, least, outcome.cost, outcome)))
    return windows


def _handover(request: Request, changeover: float) -> Handover:
    restore = float(changeover // 4) if request.restore is None else request.restore
    return Handover(changeover - restore, restore, request.upload)


def _families(request: Request) -> Families:
    """Markets of the same folder and tick, with the starts of their windows."""
    markets = read_markets(request.traces, request.prices, zones=request.zones, together=request.together)
    groups: dict[tuple[str, float], list[ReplayMarket]] = {}
    for market in markets:
        groups.setdefault((market.family, market.gap_seconds), []).append(market)
    families = [_with_starts(request, group) for group in groups.values()]
    names = [family for family, _ in groups]
    return [([_apart(market, names.count(market.family)) for market in group], starts) for group, starts in families]


def _apart(market: ReplayMarket, ticks: int) -> ReplayMarket:
    """The market, with a note if its family has pools with that many different ticks."""
    note = f"pools with ticks of {ticks} lengths: each length has windows of its own, and learns from its own pools"
    return replace(market, notes=(*market.notes, note)) if ticks > 1 else market


def _with_starts(request: Request, markets: Sequence[ReplayMarket]) -> tuple[Sequence[ReplayMarket], Sequence[int]]:
    ticks = min(market.ticks for market in markets)
    gap = markets[0].gap_seconds
    first = math.ceil(request.from_fraction * ticks)
    end = math.floor(request.to_fraction * ticks)
    last = end - math.ceil(max(request.deadlines) / gap)
    if last < first:
        raise InvalidInput(
            f"{ticks * gap / HOUR:g} h of trace leave no room for a window of {max(request.deadlines) / HOUR:g} h"
            f" between {100 * request.from_fraction:g}% and {100 * request.to_fraction:g}% of it",
            where=markets[0].family,
            hint="use a longer trace, a shorter deadline, a smaller --from or a greater --to",
        )
    _refuse_too_fine(request, markets)
    room = range(first, last + 1)
    starts = sorted(random.Random(request.seed).sample(room, min(request.starts, len(room))))
    notes = [f"room for {len(starts)} windows, not for {request.starts}"] if len(starts) < request.starts else []
    if any(market.ticks != ticks for market in markets):
        notes.append(f"pools differ in length: windows lie in the first {ticks} ticks, as many as the shortest has")
    return [replace(market, notes=(*market.notes, *notes)) for market in markets], starts


def _refuse_too_fine(request: Request, markets: Sequence[ReplayMarket]) -> None:
    """Reject problems too large for the optimum, whose states are ticks, machines and steps of slack; it keeps those of
    as many ticks as a changeover takes."""
    gap, deadline = markets[0].gap_seconds, max(request.deadlines)
    machines = max(len(market.pools) for market in markets) + 1
    for changeover in request.changeovers:
        handover = _handover(request, changeover)
        stopped = math.floor(handover.upload + handover.restore) if OMNISCIENT + OVERLAP in request.policies else 0
        step = math.gcd(round(gap), math.floor(changeover), stopped)
        each_tick = machines * (deadline - request.work) / step
        if deadline / gap * each_tick > _MOST_STATES or changeover / gap * each_tick > _MOST_KEPT:
            raise InvalidInput(
                f"ticks of {gap:g} s are too fine for {deadline / HOUR:g} h with changeovers of {changeover:g} s",
                where=markets[0].family,
                hint="take longer ticks, a shorter deadline, or a changeover of so many whole ticks",
            )


def _check(request: Request) -> None:
    """Raises `InvalidInput` or `UnknownName` for a request that cannot be replayed on any market."""
    for policy in request.policies:
        if policy not in NAMES:
            raise UnknownName("policy", policy, NAMES, where="--policies")
    for option, values in (
        ("--policies", request.policies),
        ("--deadline", request.deadlines),
        ("--changeover", request.changeovers),
    ):
        if not values:
            raise InvalidInput("expected at least one", where=option)
    _check_numbers(request)
    deadline, changeover = min(request.deadlines), max(request.changeovers)
    if deadline < request.work:
        raise InvalidInput(
            f"a deadline of {deadline / HOUR:g} h is shorter than the work, {request.work / HOUR:g} h",
            where="--deadline",
        )
    if deadline < request.work + changeover:
        raise InvalidInput(
            f"a changeover of {changeover / HOUR:g} h is longer than the slack, {(deadline - request.work) / HOUR:g} h"
            f" with a deadline of {deadline / HOUR:g} h: even on-demand from the first second would be late",
            where="--changeover",
            hint="every deadline is replayed with every changeover: leave out what cannot be met",
        )


def _check_numbers(request: Request) -> None:
    """Each number by itself."""
    numbers = (request.work, *request.deadlines, *request.changeovers, request.restore or 0.0, request.upload)
    if not all(math.isfinite(number) for number in numbers):
        raise InvalidInput("work, deadlines and changeovers must be finite")
    if request.work <= 0:
        raise InvalidInput(f"work must be positive, found {request.work:g} s", where="--work")
    if request.starts < 1:
        raise InvalidInput(f"expected at least one start, found {request.starts}", where="--starts")
    if not 0 <= request.from_fraction < 1:
        raise InvalidInput(f"expected 0 ≤ from < 1, found {request.from_fraction:g}", where="--from")
    if not request.from_fraction < request.to_fraction <= 1:
        raise InvalidInput(f"expected from < to ≤ 1, found {request.to_fraction:g}", where="--to")
    if min(request.changeovers) <= 0:
        raise InvalidInput(
            f"expected a changeover above 0, found {min(request.changeovers):g} s",
            where="--changeover",
            hint="boot and restore take time on every cloud; 12m is usual, 1s is negligible",
        )
    handovers = [_handover(request, changeover) for changeover in request.changeovers]
    if not all(0 <= each.upload <= each.boot and each.restore >= 0 for each in handovers):
        raise InvalidInput(
            "expected a changeover of a restore and a boot, which is at least as long as the upload",
            where="--restore, --upload",
            hint="--changeover 12m --restore 3m --upload 1m",
        )
