"""The simulated market: pools, their prices over time, and the jobs on their machines."""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.core.market.offers import Offer
from broker.core.values.money import Money
from broker.placement.queue.queue import Free
from tests.lab.simulation.workload import HOUR, WorkloadPool

# The queue gets the times at which capacity returns in at most this many steps.
_STEPS = 32


class PoolInUse:
    """One pool during a simulation. ``free``: machines that no job uses; None: no limit. ``offer``: as priced now."""

    __slots__ = ("_ends", "_micros", "_times", "busy", "free", "machines", "offer", "used_gpu_seconds", "used_seconds")

    def __init__(self, pool: WorkloadPool, prices: Sequence[tuple[int, int]]) -> None:
        self.offer = pool.offer
        self.machines = pool.offer.slots
        self.free = pool.offer.slots
        self.busy: dict[str, tuple[int, int]] = {}
        self.used_seconds = 0
        self.used_gpu_seconds = 0
        self._times = [at for at, _ in prices]
        self._micros = [micros for _, micros in prices]

    def room_for(self, nodes: int) -> bool:
        return self.free is None or self.free >= nodes

    def take(self, job: str, nodes: int, until: int) -> None:
        """``until``: the second at which the broker expects the machines back."""
        if self.free is not None:
            assert self.free >= nodes, "a pool cannot have less than 0 free machines"
            self.free -= nodes
            self.busy[job] = until, nodes

    def give_back(self, job: str, nodes: int) -> None:
        if self.free is not None:
            self.free += nodes
            del self.busy[job]

    def returns(self, now: int) -> Free:
        """The machines that are free now and later, in the form of the queue and in few steps."""
        assert self.free is not None
        ends = sorted(self.busy.values())
        size = -(-len(ends) // _STEPS) or 1
        steps = [
            (max(group[-1][0] - now, 360) / HOUR, sum(nodes for _, nodes in group))
            for group in (ends[first : first + size] for first in range(0, len(ends), size))
        ]
        return Free.of(self.free, steps)

    def price_at(self, at: int) -> Money | None:
        if not self._times:
            return self.offer.price
        return Money(self._micros[max(bisect_right(self._times, at) - 1, 0)])

    def changes(self, start: int, end: int) -> list[tuple[int, Money]]:
        """Prices that come into force after ``start`` and before ``end``."""
        first, after = bisect_right(self._times, start), bisect_right(self._times, end - 1)
        return [(self._times[i], Money(self._micros[i])) for i in range(first, after)]

    def set_price(self, at: int, moment: datetime) -> None:
        self.offer = replace(self.offer, price=self.price_at(at), as_of=moment)


@dataclass
class SimulatedMarket:
    """All pools. ``version`` grows with each change of prices: decisions about a class hold as long as it stays."""

    start: datetime
    pools: dict[str, PoolInUse]
    version: int = 0

    @classmethod
    def of(cls, pools: Sequence[WorkloadPool], start: datetime, seed: int, seconds: int) -> SimulatedMarket:
        made = {one.offer.id: PoolInUse(one, list(_prices(one, seed, seconds))) for one in pools}
        return cls(start, made)

    @property
    def offers(self) -> list[Offer]:
        return [pool.offer for pool in self.pools.values()]

    def change_times(self) -> Iterator[int]:
        """The seconds at which some price changes, ascending."""
        last = 0
        for at in heapq.merge(*(pool._times for pool in self.pools.values())):
            if at > last:
                last = at
                yield at

    def change(self, at: int) -> None:
        """Put the prices of that second into force."""
        moment = self.start + timedelta(seconds=at)
        for pool in self.pools.values():
            if pool._times:
                pool.set_price(at, moment)
        self.version += 1


def _prices(pool: WorkloadPool, seed: int, seconds: int) -> Iterator[tuple[int, int]]:
    """The prices of a pool as (second, micro-dollars): as recorded, or by chance; none for one price throughout. By
    chance, the logarithm moves half-way back to its mean in a day."""
    yield from pool.recorded
    if pool.path is None or pool.recorded:
        return
    assert pool.offer.price is not None
    chance = random.Random(f"{seed}/{pool.offer.pool}/prices")
    keeps = 0.5 ** (pool.path.step / (24 * HOUR))
    moves = pool.path.spread * math.sqrt(1 - keeps**2)
    away = chance.gauss(0.0, pool.path.spread)
    for at in range(0, seconds, pool.path.step):
        micros = round(pool.offer.price.micros * math.exp(away - pool.path.spread**2 / 2))
        yield at, max(micros if pool.path.most is None else min(micros, pool.path.most), 1)
        away = keeps * away + moves * chance.gauss(0.0, 1.0)
