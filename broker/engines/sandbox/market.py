"""The sandbox world: a simulated GPU market as a pure function of a scenario, a seed and the time.

Nothing here waits, keeps state or reads a clock. The same scenario, seed and start give the same prices, capacity and
interruptions in every process, for any time and in any order of calls. So the provider that lists the market, the
engine that runs machines on it and a back-test agree without communication. Times are UTC in the broker's clock, prices
USD per hour for a whole machine. Every random value is a hash of the seed and its purpose.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import blake2b

from broker.core.errors import BrokerError, NoCapacity, UnknownName
from broker.core.market.offers import SANDBOX, Availability, CapacityType, MoneyKind, Offer
from broker.core.values.money import Money
from broker.engines.sandbox.scenario import Behaviour, MachineKind, Scenario, Zone, load_scenario

DEFAULT_SEED = 7
# The default start of a market; fixed, so that every process of one user sees the same market.
DEFAULT_START = datetime(2026, 1, 1, tzinfo=UTC)
_PRICE_STEP_MICROS = 100  # clouds quote prices with four decimals
_STEPS_PER_KNOT = 6
_HORIZON = timedelta(days=90)
_STEADY = Behaviour()


@dataclass(frozen=True, slots=True)
class SimulatedPool:
    """The capacity of one kind of machine in a zone, as one capacity type. ``list_price``: USD per hour."""

    zone: Zone
    kind: MachineKind
    capacity_type: CapacityType
    list_price: Money
    behaviour: Behaviour
    name: str
    term_months: int | None = None


@dataclass(slots=True)
class Faults:
    """Faults to inject. All fields may be changed at any time; `reset` removes all faults.

    ``sold_out``: patterns of pool names that have no capacity. ``failing_launches``: the numbers of launches that fail,
    from 1; the engine counts launches, so that the count survives a restart. ``lost_machines``: patterns of the keys of
    machines that disappear.
    """

    sold_out: set[str] = field(default_factory=set)
    failing_launches: set[int] = field(default_factory=set)
    lost_machines: set[str] = field(default_factory=set)

    def launch_error(self, number: int, pool: str) -> BrokerError | None:
        """The error of the ``number``-th launch, for the caller to raise; None if it does not fail."""
        if number not in self.failing_launches:
            return None
        return NoCapacity(
            f"launch {number} failed because of a fault set in the sandbox", where=pool, hint="try another offer"
        )

    def is_sold_out(self, pool: str) -> bool:
        return any(fnmatchcase(pool, pattern) for pattern in self.sold_out)

    def is_lost(self, machine_key: str) -> bool:
        return any(fnmatchcase(machine_key, pattern) for pattern in self.lost_machines)


class World:
    """One simulated market. Immutable but for ``faults``; cheap to make, safe to share between threads."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int = DEFAULT_SEED,
        starts_at: datetime = DEFAULT_START,
        faults: Faults | None = None,
    ) -> None:
        """``starts_at``: the broker time at which the scenario begins, timezone-aware; ValueError if it is not."""
        if starts_at.utcoffset() is None:
            raise ValueError("starts_at needs a time zone")
        self.scenario = scenario
        self.seed = seed
        self.starts_at = starts_at.astimezone(UTC)
        table = scenario.faults
        self.faults = faults or Faults(set(table.sold_out), set(table.failing_launches), set(table.lost_machines))

    @classmethod
    def load(cls, scenario: str = "default", seed: int = DEFAULT_SEED, starts_at: datetime = DEFAULT_START) -> World:
        """The world of a built-in scenario or of a scenario file. Raises `InvalidInput` as `load_scenario` does."""
        return cls(load_scenario(scenario), seed, starts_at)

    @cached_property
    def pools(self) -> dict[str, SimulatedPool]:
        """All pools by name; a pool's name is that of its offers (`Offer.pool`)."""
        all_pools = (
            pool
            for zone in self.scenario.zones
            for kind in self.scenario.machines
            if zone.has(kind)
            for pool in self._pools_of(zone, kind)
        )
        return {pool.name: pool for pool in all_pools}

    def pool(self, name: str) -> SimulatedPool:
        """Raises `UnknownName`."""
        if name not in self.pools:
            raise UnknownName("sandbox pool", name, self.pools)
        return self.pools[name]

    def price(self, pool: str, at: datetime) -> Money:
        """The price of an hour in the pool at that time, USD per machine. Raises `UnknownName`."""
        simulated_pool = self.pool(pool)
        return self._price_in_step(simulated_pool, self._price_step(simulated_pool, at))

    def price_series(self, pool: str, start: datetime, end: datetime) -> tuple[tuple[datetime, Money], ...]:
        """The price in effect at ``start``, then every change before ``end``, in order of time."""
        simulated_pool = self.pool(pool)
        first, last = self._price_step(simulated_pool, start), self._price_step(simulated_pool, end)
        step = timedelta(minutes=simulated_pool.behaviour.step_minutes)
        series = [(start, self._price_in_step(simulated_pool, first))]
        if simulated_pool.behaviour.swing:
            for number in range(first + 1, last + 1):
                at, price = self.starts_at + number * step, self._price_in_step(simulated_pool, number)
                if at < end and price != series[-1][1]:
                    series.append((at, price))
        return tuple(series)

    def capacity(self, pool: str, at: datetime) -> int:
        """The number of machines in the pool at that time, including used ones; 0: sold out. Raises `UnknownName`."""
        simulated_pool = self.pool(pool)
        if self.faults.is_sold_out(pool) or self._outage_at(simulated_pool, at) is not None:
            return 0
        min_machines, max_machines = simulated_pool.behaviour.machines
        hour = math.floor((at - self.starts_at) / timedelta(hours=1))
        return min_machines + int(self._draw("machines", pool, hour) * (max_machines - min_machines + 1))

    def boot(self, machine_key: str) -> timedelta:
        """The machine's time from its launch to the start of the job."""
        return timedelta(seconds=self._between(self.scenario.boot_seconds, "boot", machine_key))

    def next_interruption(self, pool: str, machine_key: str, started_at: datetime) -> datetime | None:
        """When the market takes back a machine of the pool that started at ``started_at``; None if not within 90 days.

        It is the machine's own end or the pool's next sell-out, whichever comes first. Notice comes `Scenario.notice`
        earlier. Only spot machines are taken back; one that starts while its pool is sold out, at once.
        """
        simulated_pool = self.pool(pool)
        if simulated_pool.capacity_type is not CapacityType.SPOT:
            return None
        fate = self._own_fate(simulated_pool, machine_key, started_at)
        for start, end in self._outages(simulated_pool, started_at, fate):
            if end > started_at:
                return max(start, started_at)
        return fate if fate <= started_at + _HORIZON else None

    def offers_at(self, at: datetime) -> Iterator[Offer]:
        """The market's offers at that time, including sold-out pools, which are marked unavailable.

        Reserved pools are commitments for sale: prices to compare with, which no engine runs.
        """
        for pool in self.pools.values():
            free_machines = self.capacity(pool.name, at)
            is_spot = pool.capacity_type is CapacityType.SPOT
            yield Offer(
                provider=SANDBOX,
                region=pool.zone.region,
                zone=pool.zone.name,
                instance_type=pool.kind.instance_type,
                accelerator=pool.kind.accelerator,
                count=pool.kind.count,
                capacity_type=pool.capacity_type,
                price=self.price(pool.name, at),
                as_of=at.astimezone(UTC),
                source=SANDBOX,
                term_months=pool.term_months,
                cpus=pool.kind.cpus,
                memory_gib=pool.kind.memory_gib,
                interconnect=pool.kind.interconnect,
                availability=Availability.AVAILABLE if free_machines else Availability.UNAVAILABLE,
                unavailable_because="" if free_machines else "sold out in the simulated market",
                interruption_rate=pool.behaviour.interruptions_per_hour if is_spot else 0.0,
                slots=free_machines,
                engine=SANDBOX if pool.term_months is None else None,  # a commitment is not capacity
                money=MoneyKind.SANDBOX,
                billing=self.scenario.billing,
                max_age=self.scenario.max_age,
            )

    def _pools_of(self, zone: Zone, kind: MachineKind) -> Iterator[SimulatedPool]:
        behaviours = self.scenario.behaviours
        yield self._make_pool(zone, kind, CapacityType.ON_DEMAND, kind.on_demand, behaviours[zone.on_demand])
        if kind.spot is not None:
            yield self._make_pool(zone, kind, CapacityType.SPOT, kind.spot, behaviours[zone.spot])
        for months, price in kind.reserved.items():
            yield self._make_pool(zone, kind, CapacityType.RESERVED, price, _STEADY, months)

    def _make_pool(
        self,
        zone: Zone,
        kind: MachineKind,
        capacity_type: CapacityType,
        price: Money,
        behaviour: Behaviour,
        term_months: int | None = None,
    ) -> SimulatedPool:
        sample_offer = Offer(
            provider=SANDBOX,
            region=zone.region,
            zone=zone.name,
            instance_type=kind.instance_type,
            accelerator=kind.accelerator,
            count=kind.count,
            capacity_type=capacity_type,
            price=price,
            as_of=self.starts_at,
            source=SANDBOX,
            term_months=term_months,
        )
        return SimulatedPool(
            zone, kind, capacity_type, price.scaled(zone.price_factor), behaviour, sample_offer.pool, term_months
        )

    def _price_step(self, pool: SimulatedPool, at: datetime) -> int:
        return math.floor((at - self.starts_at) / timedelta(minutes=pool.behaviour.step_minutes))

    def _price_in_step(self, pool: SimulatedPool, step: int) -> Money:
        """List price × the pool's level × a slow drift with a little jitter on it, in steps of a hundredth cent."""
        factor = self._between(pool.behaviour.level, "level", pool.name)
        if pool.behaviour.swing:
            knot, within = divmod(step, _STEPS_PER_KNOT)
            before, after = self._draw("drift", pool.name, knot), self._draw("drift", pool.name, knot + 1)
            drift = before + (after - before) * within / _STEPS_PER_KNOT
            noise = 0.8 * drift + 0.2 * self._draw("jitter", pool.name, step)
            factor *= 1 + pool.behaviour.swing * (2 * noise - 1)
        micros = pool.list_price.scaled(factor).micros
        return Money(max(micros - micros % _PRICE_STEP_MICROS, _PRICE_STEP_MICROS))

    def _own_fate(self, pool: SimulatedPool, machine_key: str, started_at: datetime) -> datetime:
        """When the machine alone is taken back; just beyond the horizon if never."""
        behaviour = pool.behaviour
        never = _HORIZON + timedelta(microseconds=1)
        if behaviour.life_hours is not None:
            life = timedelta(hours=self._between(behaviour.life_hours, "life", pool.name, machine_key))
        elif behaviour.hazard_per_hour:
            hours = -math.log1p(-self._draw("fate", pool.name, machine_key)) / behaviour.hazard_per_hour
            life = timedelta(hours=min(hours, never / timedelta(hours=1)))
        else:
            life = never
        return started_at + min(life, never)

    def _outage_at(self, pool: SimulatedPool, at: datetime) -> tuple[datetime, datetime] | None:
        return next((outage for outage in self._outages(pool, at, at) if outage[0] <= at < outage[1]), None)

    def _outages(self, pool: SimulatedPool, start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
        """The sell-outs (begin, end) of all cycles between ``start`` and ``end``, if they begin by ``end``."""
        behaviour = pool.behaviour
        if not behaviour.outage_chance:
            return
        cycle = timedelta(hours=behaviour.cycle_hours)
        origin = self.starts_at - timedelta(hours=behaviour.stagger_hours * self._draw("stagger", pool.name))
        for number in range((start - origin) // cycle, (end - origin) // cycle + 1):
            if self._draw("outage", pool.name, number) >= behaviour.outage_chance:
                continue
            after = self._between(behaviour.outage_after_hours, "outage after", pool.name, number)
            duration = self._between(behaviour.outage_hours, "outage for", pool.name, number)
            outage_start = origin + number * cycle + timedelta(hours=after)
            if outage_start <= end:
                yield outage_start, outage_start + timedelta(hours=duration)

    def _between(self, span: tuple[float, float], *purpose: object) -> float:
        return span[0] + (span[1] - span[0]) * self._draw(*purpose)

    def _draw(self, *purpose: object) -> float:
        """A number in [0, 1): uniform over seeds, and the same for the same seed and purpose (``what``)."""
        text = "\x1f".join(map(str, (self.seed, *purpose)))
        return int.from_bytes(blake2b(text.encode(), digest_size=7).digest()) / 2**56
