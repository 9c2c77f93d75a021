"""A recorded spot market: pools that share a tick, each with availability and price per tick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from broker.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class PoolRecord:
    """One pool's record: ``available[i]`` and ``price[i]`` (USD per hour, all machines that the job needs) hold from
    tick i until tick i + 1."""

    name: str
    available: tuple[bool, ...]
    price: tuple[float, ...]
    on_demand_price: float

    def __post_init__(self) -> None:
        if len(self.available) != len(self.price):
            raise ValueError(f"{self.name}: {len(self.available)} ticks of availability, {len(self.price)} of prices")


@dataclass(frozen=True)
class ReplayMarket:
    """Pools a job may choose between, aligned tick by tick; possibly only one.

    ``gap_seconds``: length of a tick. ``family``: pools with a common origin, which learn from each other. ``notes``:
    caveats for readers of figures (holes, cut ends). ``kin``: pools of the family that no job may use; a strategy
    learns from their history before its start. ``begins``: the recorded start; tick 0 of all pools of a family is
    assumed to be the same moment.
    """

    family: str
    name: str
    gap_seconds: float
    pools: tuple[PoolRecord, ...]
    notes: tuple[str, ...] = ()
    kin: tuple[PoolRecord, ...] = ()
    begins: str = ""

    def __post_init__(self) -> None:
        if not self.pools:
            raise ValueError("a market needs a pool")
        if len({len(pool.available) for pool in self.pools}) != 1:
            raise InvalidInput(f"the pools of {self.name} differ in length", hint="cut them to the same ticks")

    @property
    def ticks(self) -> int:
        return len(self.pools[0].available)

    @property
    def on_demand_price(self) -> float:
        """The cheapest on-demand price, USD per hour; on-demand is assumed to be available there."""
        return min(pool.on_demand_price for pool in self.pools)

    @cached_property
    def spot(self) -> Sequence[Mapping[str, float]]:
        """Per tick: the prices of the pools that have capacity."""
        return [{pool.name: pool.price[i] for pool in self.pools if pool.available[i]} for i in range(self.ticks)]
