"""Facts of an action that a rule read, and whether approved facts cover others. Pure.

A rule that requires an approval names the facts its verdict depends on; amount, time and number of GPUs belong to every
question. An approval covers these facts. A later action is covered only if each of its facts has the approved value or,
for ordered figures, one that is no worse. Other facts may change: a rule about money covers every place.
"""

from collections.abc import Iterable
from enum import StrEnum

from broker.core.records import Record

Value = str | bool | int | float | None


class Aspect(StrEnum):
    """The subject of a fact. Money is in micro-dollars, times are in microseconds since 1970 UTC."""

    PROVIDER = "provider"
    REGION = "region"
    ZONE = "zone"
    INSTANCE_TYPE = "instance_type"
    ACCELERATOR = "accelerator"
    CAPACITY_TYPE = "capacity_type"
    MONEY = "money"
    PRICE_SOURCE = "price_source"
    REFERENCE_PRICE = "reference_price"
    INTERCONNECT = "interconnect"
    DATA_LOCATION = "data_location"
    SENSITIVE_DATA = "sensitive_data"
    FREEZE = "freeze"  # the end of the freeze
    GPUS_PER_MACHINE = "gpus_per_machine"
    NODES = "nodes"
    GPUS = "gpus"
    PRICE = "price"  # per machine and hour
    PRICE_PER_GPU = "price_per_gpu"  # per hour
    RATE = "rate"  # per hour, all machines
    EXPECTED_COST = "expected_cost"
    EXPECTED_HOURS = "expected_hours"
    INTERRUPTIONS = "interruptions"  # expected per hour
    ATTEMPTS = "attempts"  # including the one to be made
    EMISSIONS = "emissions"  # kg CO2e of the whole job
    GPUS_AT_ONCE = "gpus_at_once"  # of all jobs the rule counts, this one included
    JOBS_AT_ONCE = "jobs_at_once"
    BUDGET = "budget"  # spent and held in the period that begins at `Fact.of`
    ENDS_BY = "ends_by"
    PRICE_DATE = "price_date"
    SPOT_SHARE = "spot_share"  # percent
    HELD_USE = "held_use"  # percent of what is held of the accelerator, over the last days


_AT_LEAST = frozenset({Aspect.PRICE_DATE, Aspect.SPOT_SHARE, Aspect.HELD_USE})
_AT_MOST = frozenset(
    {
        Aspect.GPUS_PER_MACHINE, Aspect.NODES, Aspect.GPUS, Aspect.PRICE, Aspect.PRICE_PER_GPU, Aspect.RATE,
        Aspect.EXPECTED_COST, Aspect.EXPECTED_HOURS, Aspect.INTERRUPTIONS, Aspect.ATTEMPTS, Aspect.EMISSIONS,
        Aspect.GPUS_AT_ONCE, Aspect.JOBS_AT_ONCE, Aspect.BUDGET, Aspect.ENDS_BY,
    }
)  # fmt: skip


class Fact(Record):
    """One fact of an action. ``value``: None if unknown. ``of``: identifies it if there are several of an aspect."""

    aspect: Aspect
    value: Value
    of: str = ""


def covers(approved: Iterable[Fact], now: Iterable[Fact]) -> bool:
    """Whether every fact of ``now`` was approved, or is no worse than an approved one."""
    approved_values = {(fact.aspect, fact.of): fact.value for fact in approved}
    return all(
        (fact.aspect, fact.of) in approved_values
        and _is_no_worse(fact.aspect, fact.value, approved_values[fact.aspect, fact.of])
        for fact in now
    )


def _is_no_worse(aspect: Aspect, value: Value, approved: Value) -> bool:
    if value == approved:
        return True
    if not isinstance(value, int | float) or not isinstance(approved, int | float):
        return False  # unknown, or without an order
    return (aspect in _AT_MOST and value <= approved) or (aspect in _AT_LEAST and value >= approved)
