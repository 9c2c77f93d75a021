"""What a wrong history costs: the strategy on recorded markets with one from another world, over Uniform Progress.

Run with GPUBROKER_TEST_DATA naming a folder with ``spot/<family>/…``: python -m tests.bench.bench_histories
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import fmean

from broker.placement.strategy.choose import session_for
from broker.placement.strategy.pacing import UniformProgress
from broker.placement.strategy.situation import StrategyTask
from tests.lab.replay import HOUR, ReplayMarket, replay
from tests.lab.traces import TracePrices, read_markets

DEADLINES = (52 * HOUR, 60 * HOUR)
STARTS = 4

Bits = Sequence[bool]


def shuffled(bits: Bits, seed: int) -> Bits:
    """As much capacity, without its order: no spell lasts."""
    mixed = list(bits)
    Random(seed).shuffle(mixed)
    return mixed


WORLDS: dict[str, Callable[[Bits, int], Bits]] = {
    "true": lambda bits, seed: bits,
    "empty": lambda bits, seed: (),
    "turned round": lambda bits, seed: [not bit for bit in bits],
    "shuffled": shuffled,
    "always there": lambda bits, seed: [True] * len(bits),
    "stale: the first eighth alone": lambda bits, seed: bits[: len(bits) // 8],
}


def compared(markets: Sequence[ReplayMarket], world: Callable[[Bits, int], Bits]) -> tuple[float, int]:
    """Mean over pools and deadlines of mean cost over that of Uniform Progress, and deadlines missed."""
    ratios, missed = [], 0
    for market in markets:
        ticks, gap = market.ticks, market.gap_seconds
        room = range(ticks // 2, ticks - round(max(DEADLINES) / gap))
        starts = Random(7).sample(room, STARTS)
        for deadline in DEADLINES:
            task = StrategyTask(48 * HOUR, deadline, 720, gap)
            mine, peer = [], []
            for start in starts:
                history = {each.pools[0].name: world(each.pools[0].available[:start], start) for each in markets}
                price = {each.pools[0].name: each.pools[0].price[:start] for each in markets}
                course, _ = session_for(
                    task, [market.pools[0].name], history, price, gap=gap, on_demand_price=market.on_demand_price
                )
                outcome = replay(market, start, task, course)
                missed += outcome.missed
                mine.append(outcome.cost)
                peer.append(replay(market, start, task, UniformProgress(task)).cost)
            ratios.append(fmean(mine) / fmean(peer))
    return fmean(ratios), missed


def recorded(
    families: Sequence[str] = ("aws-2022-10-26", "gcp-h100-2025-10"),
) -> Iterator[tuple[str, Sequence[ReplayMarket]]]:
    """Families of recorded markets, by name, ``name:16`` for gangs of 16; none where nobody says where they are."""
    data = Path(os.environ.get("GPUBROKER_TEST_DATA", "")) / "spot"
    if "GPUBROKER_TEST_DATA" not in os.environ or not data.is_dir():
        print("recorded traces are not part of the project: set GPUBROKER_TEST_DATA to a folder that has them")
        return
    for family in families:
        name, _, gang = family.partition(":")
        yield family, read_markets([data / name], TracePrices(gang=int(gang or 1)))


def main() -> None:
    for family, markets in recorded():
        for name, world in WORLDS.items():
            ratio, missed = compared(markets, world)
            print(f"{family:<17} history {name:<30} {ratio:6.3f} of Uniform Progress (at most 1.05)   {missed} missed")


if __name__ == "__main__":
    main()
