"""The simulated market: a pure function of scenario, seed and time, and a demo in which spot is always taken away."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.errors import InvalidInput, NoCapacity, UnknownName
from broker.core.market.accelerators import canonical
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.money import Money
from broker.engines.sandbox.market import DEFAULT_SEED, DEFAULT_START, Faults, World
from broker.engines.sandbox.scenario import BUILT_IN, Behaviour, load_scenario, parse_scenario
from tests.counts import FULL

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
DEMO = load_scenario("demo")
DEFAULT = load_scenario("default")
seeds = st.integers(min_value=0, max_value=2**32)
moments = st.timedeltas(min_value=timedelta(days=-30), max_value=timedelta(days=400)).map(lambda by: START + by)


def demo(seed: int) -> World:
    return World(DEMO, seed, START)


def shown(world: World, at: datetime, machine: str, capacity_type: CapacityType) -> list[Offer]:
    """What can be had of it then, cheapest first."""
    found = [
        offer
        for offer in world.offers_at(at)
        if offer.machine == machine and offer.capacity_type is capacity_type and offer.slots
    ]
    return sorted(found, key=lambda offer: offer.price or Money.ZERO)


# --- determinism -----------------------------------------------------------------------------------------------------


@given(seed=seeds, at=moments, other=moments)
@settings(max_examples=50 if FULL else 8)
def test_the_same_question_has_the_same_answer_in_any_order(seed: int, at: datetime, other: datetime) -> None:
    first, second = World(DEFAULT, seed, START), World(DEFAULT, seed, START)
    list(first.offers_at(other))
    assert list(first.offers_at(at)) == list(second.offers_at(at))


@pytest.mark.system
def test_another_process_sees_the_same_market() -> None:
    """Nothing hangs on the process, such as its hash seed."""
    pool = next(iter(demo(5).pools))
    code = (
        "from datetime import UTC, datetime; from broker.engines.sandbox.market import World;"
        "w = World.load('demo', 5, datetime(2026, 3, 2, 9, 0, tzinfo=UTC)); p = list(w.pools)[1];"
        "print(w.price(p, w.starts_at), w.capacity(p, w.starts_at), w.next_interruption(p, 'key', w.starts_at))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    world = demo(5)
    spot = list(world.pools)[1]
    here = (world.price(spot, START), world.capacity(spot, START), world.next_interruption(spot, "key", START))
    assert answers == {" ".join(map(str, here)) + "\n"}
    assert pool in world.pools


def test_the_start_needs_a_time_zone() -> None:
    with pytest.raises(ValueError, match="time zone"):
        World(DEMO, 1, START.replace(tzinfo=None))


# --- prices ----------------------------------------------------------------------------------------------------------


@given(seed=seeds, hours=st.floats(0, 200), length=st.floats(0.01, 30), pool=st.integers(0, 10_000))
@settings(max_examples=50 if FULL else 15)
def test_a_price_series_is_the_price_at_every_moment(seed: int, hours: float, length: float, pool: int) -> None:
    world = World(DEFAULT, seed, START)
    name = list(world.pools)[pool % len(world.pools)]
    start = START + timedelta(hours=hours)
    end = start + timedelta(hours=length)
    series = world.price_series(name, start, end)
    assert series[0] == (start, world.price(name, start))
    assert [at for at, _ in series] == sorted({at for at, _ in series})
    for number, (at, price) in enumerate(series):
        until = series[number + 1][0] if number + 1 < len(series) else end
        assert at < end
        assert world.price(name, at) == price
        assert world.price(name, until - timedelta(microseconds=1)) == price
        if number:
            assert price != series[number - 1][1]


@given(seed=seeds, at=moments)
@settings(max_examples=50 if FULL else 8)
def test_prices_stay_within_what_the_scenario_says(seed: int, at: datetime) -> None:
    world = World(DEFAULT, seed, START)
    for offer in world.offers_at(at):
        pool = world.pool(offer.pool)
        least = pool.list_price.scaled(pool.behaviour.level[0] * (1 - pool.behaviour.swing)).micros
        most = pool.list_price.scaled(pool.behaviour.level[1] * (1 + pool.behaviour.swing)).micros
        assert offer.price is not None
        assert offer.price == world.price(offer.pool, at)
        assert least - 100 <= offer.price.micros <= most + 1
        assert offer.price.micros % 100 == 0


def test_spot_moves_and_on_demand_does_not() -> None:
    world = World(DEFAULT, 1, START)
    for name, pool in world.pools.items():
        changes = len(world.price_series(name, START, START + timedelta(days=2)))
        assert (changes > 10) == (pool.capacity_type is CapacityType.SPOT), name


# --- capacity and interruptions --------------------------------------------------------------------------------------


@given(seed=seeds, at=moments, pool=st.integers(0, 10_000))
@settings(max_examples=100 if FULL else 10)
def test_a_sell_out_of_spot_takes_its_machines(seed: int, at: datetime, pool: int) -> None:
    """Until a machine is taken its pool had capacity all the time, and none from then on if a sell-out took it."""
    world = World(DEFAULT, seed, START)
    spot = [name for name, found in world.pools.items() if found.capacity_type is CapacityType.SPOT]
    name = spot[pool % len(spot)]
    taken = world.next_interruption(name, "machine", at)
    assert taken is not None
    assert taken >= at
    if world.capacity(name, at) == 0:
        assert taken == at
    else:
        life = taken - at
        for part in range(20):
            assert world.capacity(name, at + life * part / 20) > 0


def test_only_spot_is_taken_back() -> None:
    world = demo(1)
    for name, pool in world.pools.items():
        taken = world.next_interruption(name, "machine", START)
        assert (taken is None) == (pool.capacity_type is not CapacityType.SPOT)
    assert all(
        (offer.interruption_rate or 0) > 0
        for offer in world.offers_at(START)
        if offer.capacity_type is CapacityType.SPOT
    )


def test_machines_take_their_time_to_boot() -> None:
    times = {demo(1).boot(f"machine-{number}") for number in range(20)}
    assert len(times) == 20
    assert all(timedelta(seconds=45) <= time <= timedelta(seconds=120) for time in times)


def test_a_pool_that_is_not_there_is_named_with_the_one_meant() -> None:
    name = next(iter(demo(1).pools))
    with pytest.raises(UnknownName, match="did you mean"):
        demo(1).price(name + "x", START)


# --- what the built-in scenarios promise -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_market_is_broad_and_nobody_takes_it_for_real(name: str) -> None:
    world = World.load(name)
    assert world.scenario.name == name
    assert len({zone.region for zone in world.scenario.zones}) >= 4
    assert {"A100", "H100", "L4", None} <= {kind.accelerator for kind in world.scenario.machines}
    assert {pool.capacity_type for pool in world.pools.values()} == {
        CapacityType.ON_DEMAND,
        CapacityType.SPOT,
        CapacityType.RESERVED,
    }
    for pool in world.pools.values():
        assert pool.name.startswith("sandbox/sandbox-")
        assert pool.kind.accelerator is None or canonical(pool.kind.accelerator) == pool.kind.accelerator
    for offer in world.offers_at(DEFAULT_START):
        assert world.pool(offer.pool).name == offer.pool


def ride(world: World, work: timedelta, start_up: timedelta) -> tuple[Money, int]:
    """What a job costs that always takes the cheapest spot pool, and how often it is interrupted. Every start takes
    ``start_up``, and machines bill from launch."""
    now, cost, interruptions = START, Money.ZERO, 0
    while work > timedelta(0):
        pool = shown(world, now, "L4:1", CapacityType.SPOT)[0].pool
        started = now + start_up
        taken = world.next_interruption(pool, f"machine-{interruptions}", now) or datetime.max.replace(tzinfo=UTC)
        until = min(taken, started + work)
        cost += world.price(pool, now).for_duration(until - now)
        interruptions += until == taken
        work -= max(until - started, timedelta(0))
        now = until
    return cost, interruptions


@pytest.mark.parametrize("start_up", [timedelta(minutes=minutes) for minutes in (1, 5, 15, 30)])
def test_the_demo_has_two_interruptions_whatever_the_seed_and_the_speed_of_the_machine(start_up: timedelta) -> None:
    work = timedelta(hours=2)
    for seed in [DEFAULT_SEED, *range(40)]:
        world = demo(seed)
        cost, interruptions = ride(world, work, start_up)
        on_demand = shown(world, START, "L4:1", CapacityType.ON_DEMAND)[0].price
        assert on_demand is not None
        assert interruptions == 2
        assert cost < on_demand.for_duration(work).scaled(0.8)


def test_in_the_demo_there_is_always_spot_elsewhere() -> None:
    spot = [pool for pool in demo(0).pools.values() if pool.capacity_type is CapacityType.SPOT]
    always_open = {pool.kind.instance_type for pool in spot if not pool.behaviour.outage_chance}
    assert always_open == {kind.instance_type for kind in DEMO.machines}


# --- faults on command -----------------------------------------------------------------------------------------------


def test_faults_strike_when_told_to_and_are_mended_by_a_reset() -> None:
    world = demo(1)
    pool = next(iter(world.pools))
    world.faults.sold_out.add("*/sandbox-1xa100/*")
    world.faults.failing_launches |= {2}
    world.faults.lost_machines.add("job-7-*")
    assert world.capacity(pool, START) == 0
    assert [world.faults.launch_error(number, pool) is None for number in (1, 2, 3)] == [True, False, True]
    assert isinstance(world.faults.launch_error(2, pool), NoCapacity)
    assert world.faults.is_lost("job-7-1")
    assert not world.faults.is_lost("job-8-1")


def test_faults_of_one_world_are_not_those_of_another() -> None:
    demo(1).faults.sold_out.add("*")
    assert all(world.faults == Faults() for world in (demo(1), demo(2)))


def test_a_scenario_can_begin_with_faults() -> None:
    world = World(parse_scenario(SMALL + "[faults]\nsold_out = ['*']\nfailing_launches = [1]\n", "here"), 1, START)
    assert [offer.slots for offer in world.offers_at(START)] == [0, 0]
    assert world.faults.launch_error(1, "pool") is not None


# --- scenario files --------------------------------------------------------------------------------------------------

SMALL = """
name = "small"
[behaviours.steady]
[[zones]]
name = "sandbox-here-a"
region = "sandbox-here"
spot = "steady"
on_demand = "steady"
[[machines]]
instance_type = "sandbox-cpu"
cpus = 2
memory_gib = 4
on_demand = "0.10"
spot = "0.04"
"""


def test_a_scenario_of_ones_own_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    world = World.load(str(file), 1, START)
    assert list(world.pools) == [
        "sandbox/sandbox-here-a/sandbox-cpu/cpu/on_demand",
        "sandbox/sandbox-here-a/sandbox-cpu/cpu/spot",
    ]
    assert world.next_interruption(list(world.pools)[1], "machine", START) is None  # no hazard, no sell-outs


def bad_scenarios() -> Iterator[tuple[str, str]]:
    yield SMALL.replace("sandbox-here-a", "us-east-1a"), "starts with 'sandbox-'"
    yield SMALL.replace('"sandbox-cpu"', '"p5.48xlarge"'), "starts with 'sandbox-'"
    yield SMALL.replace('"0.10"', '"0"'), "above 0"
    yield SMALL.replace('"0.10"', "0.10"), "decimal string"
    yield SMALL.replace('spot = "steady"', 'spot = "wild"'), "'wild'"
    yield SMALL.replace("cpus = 2", "cpus = 2\naccelerator = 'L4'"), "expected both accelerator"
    yield SMALL.replace("cpus = 2", "cpus = 2\ncolour = 'red'"), "colour"
    yield SMALL.replace("[behaviours.steady]", "[behaviours.steady]\nlevel = [2, 1]"), "least, most"
    yield (
        SMALL.replace(
            "[behaviours.steady]", "[behaviours.steady]\noutage_after_hours = [1, 23]\noutage_hours = [1, 2]"
        ),
        ("within its cycle"),
    )
    yield SMALL + SMALL.partition("[[machines]]")[2].join(["[[machines]]", ""]), "twice"
    yield "name =", "not a TOML file"


@pytest.mark.parametrize(("text", "says"), list(bad_scenarios()))
def test_a_bad_scenario_is_an_input_error_that_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_scenario(text, "market.toml")
    assert says in str(caught.value)
    assert caught.value.where == "market.toml"


def test_a_file_that_is_not_there_is_an_input_error_with_the_built_in_names() -> None:
    with pytest.raises(InvalidInput) as caught:
        load_scenario("nowhere.toml")
    assert "default, demo" in caught.value.hint


def test_the_published_rate_follows_the_fates() -> None:
    assert Behaviour(life_hours=(1, 3)).interruptions_per_hour == 0.5
    assert Behaviour(hazard_per_hour=0.1).interruptions_per_hour == 0.1
    often = Behaviour(hazard_per_hour=0.1, outage_chance=1, cycle_hours=2, outage_hours=(1, 1))
    assert often.interruptions_per_hour == 0.5
