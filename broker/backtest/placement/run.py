"""The backtest: every strategy on seeded windows of recorded markets. `run_backtest` is the whole interface.

Windows lie between ``from_fraction`` and ``to_fraction`` of the trace; strategies may learn from everything before a
window's start, including the family's other pools. All pools, deadlines, changeovers and strategies of a family share
the same windows, so that figures are comparable pair by pair.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import product
from multiprocessing import get_context
from pathlib import Path

from broker.backtest.placement.market import ReplayMarket
from broker.backtest.placement.replay import HOUR, replay
from broker.backtest.placement.report import PlacementCell, PlacementReport, ReplayWindow
from broker.backtest.placement.strategies import POLICIES, Preparation
from broker.backtest.placement.trace_files import TracePrices
from broker.backtest.placement.traces import read_markets
from broker.core.errors import InvalidInput, MissingExtra, UnknownName
from broker.placement.strategy.situation import StrategyTask

OMNISCIENT = "omniscient"
DEFAULT_POLICIES = ("gpubroker", "uniform-progress", "greedy", "on-demand", OMNISCIENT)

_MOST_STATES = 2e10  # minutes for each window
_MOST_KEPT = 1e7  # values of 8 bytes

Key = tuple[str, str, float, float, str]
"""Family, pool, deadline, changeover, policy."""

Progress = Callable[[int, int, str], None]
"""Called with the windows done, the windows in total, and the current item."""


@dataclass(frozen=True, slots=True)
class PlacementReplay:
    """The replay to run. Durations in seconds.

    ``traces``: files or folders. ``together``: the pools of a family are zones that one job may choose between.
    ``zones``: only pools of these names. ``starts``: windows per pool, fewer if the trace is too short.
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
    zones: Sequence[str] = ()
    prices: TracePrices = field(default_factory=TracePrices)


def run_backtest(request: PlacementReplay, progress: Progress | None = None, *, workers: int = 1) -> PlacementReport:
    """Replay ``request``. Deterministic for its seed and any number of ``workers`` (processes). Raises `InvalidInput`
    or `UnknownName` before any work is done if it cannot be replayed, and `MissingExtra` without NumPy."""
    check(request)
    if find_spec("numpy") is None:
        raise MissingExtra("backtest", "a backtest")
    return run_on(request, _families(request), progress, workers=workers)


def run_on(
    request: PlacementReplay,
    families: Sequence[tuple[Sequence[ReplayMarket], Sequence[int]]],
    progress: Progress | None = None,
    *,
    workers: int = 1,
) -> PlacementReport:
    """Replay ``request`` on given markets: families (markets that learn from each other) with the ticks at which
    windows start. The request's traces, zones, parts, starts and prices are ignored.
    """
    per_start = len(request.deadlines) * len(request.changeovers)
    total = sum(len(starts) * len(markets) * per_start for markets, starts in families)
    cells: dict[Key, list[ReplayWindow]] = {}
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
    found = tuple(PlacementCell(*key, tuple(cells[key]), together[key[:2]]) for key in ordered)
    return PlacementReport(request.work, request.seed, found, tuple(notes), request.prices.gang)


def _replayed(
    request: PlacementReplay, markets: Sequence[ReplayMarket], starts: Sequence[int], workers: int
) -> Iterator[list[tuple[Key, ReplayWindow]]]:
    """The results of `_replay_start`, in the order of the starts."""
    if workers < 2:
        yield from (_replay_start(request, markets, start) for start in starts)
        return
    # Fresh interpreters: forking a process that may have threads can hang. The markets travel once per worker.
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin_work, (request, markets)) as pool:
        yield from pool.map(_work, starts)


_work_on: list[tuple[PlacementReplay, Sequence[ReplayMarket]]] = []


def _begin_work(request: PlacementReplay, markets: Sequence[ReplayMarket]) -> None:
    _work_on[:] = [(request, markets)]


def _work(start: int) -> list[tuple[Key, ReplayWindow]]:
    return _replay_start(*_work_on[0], start)


def _replay_start(
    request: PlacementReplay, markets: Sequence[ReplayMarket], start: int
) -> list[tuple[Key, ReplayWindow]]:
    """All windows that begin at one tick: they share the history."""
    from broker.backtest.placement.optimum import optimum  # needs NumPy, which the base install lacks

    longest = max(request.deadlines)
    preparation = Preparation(markets, start)
    windows: list[tuple[Key, ReplayWindow]] = []
    for market, changeover, deadline in product(markets, request.changeovers, request.deadlines):
        task = StrategyTask(request.work, deadline, changeover, market.gap_seconds)
        best = optimum(market, start, task)
        for policy in request.policies:
            key = (market.family, market.name, deadline, changeover, policy)
            if policy == OMNISCIENT:
                windows.append((key, ReplayWindow(start, best, best, None)))
                continue
            session = POLICIES[policy](preparation, market, task, replace(task, deadline=longest))
            outcome = replay(market, start, task, session)
            windows.append((key, ReplayWindow(start, best, outcome.cost, outcome)))
    return windows


def _families(request: PlacementReplay) -> list[tuple[Sequence[ReplayMarket], Sequence[int]]]:
    """Markets that learn from each other (same folder, same tick) with the starts of their windows."""
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


def _with_starts(
    request: PlacementReplay, markets: Sequence[ReplayMarket]
) -> tuple[Sequence[ReplayMarket], Sequence[int]]:
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
    starts, note = draw(range(first, last + 1), request)
    notes = [note] if note else []
    if any(market.ticks != ticks for market in markets):
        notes.append(f"pools differ in length: windows lie in the first {ticks} ticks, as many as the shortest has")
    return [replace(market, notes=(*market.notes, *notes)) for market in markets], starts


def _refuse_too_fine(request: PlacementReplay, markets: Sequence[ReplayMarket]) -> None:
    """Reject problems too large for the optimum, whose states are ticks, machines and steps of slack; it keeps those of
    as many ticks as a changeover takes."""
    gap, deadline = markets[0].gap_seconds, max(request.deadlines)
    machines = max(len(market.pools) for market in markets) + 1
    for changeover in request.changeovers:
        step = math.gcd(round(gap), math.floor(changeover))
        each_tick = machines * (deadline - request.work) / step
        if deadline / gap * each_tick > _MOST_STATES or changeover / gap * each_tick > _MOST_KEPT:
            raise InvalidInput(
                f"ticks of {gap:g} s are too fine for {deadline / HOUR:g} h with changeovers of {changeover:g} s",
                where=markets[0].family,
                hint="take longer ticks, a shorter deadline, or a changeover of so many whole ticks",
            )


def draw(room: Sequence[int], request: PlacementReplay) -> tuple[Sequence[int], str]:
    """The ticks at which windows start, drawn by the seed, in order; and a note if there is room for fewer than
    requested.
    """
    drawn = sorted(random.Random(request.seed).sample(room, min(request.starts, len(room))))  # noqa: S311 - not a secret
    return drawn, "" if len(drawn) == request.starts else f"room for {len(drawn)} windows, not for {request.starts}"


def check(request: PlacementReplay) -> None:
    """Raises `InvalidInput` or `UnknownName` for a request that cannot be replayed on any market."""
    for policy in request.policies:
        if policy != OMNISCIENT and policy not in POLICIES:
            raise UnknownName("policy", policy, [*POLICIES, OMNISCIENT], where="--policies")
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


def _check_numbers(request: PlacementReplay) -> None:
    """Each number by itself."""
    numbers = (request.work, *request.deadlines, *request.changeovers)
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
