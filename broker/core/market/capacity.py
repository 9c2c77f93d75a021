"""Provider reports other than offers: quotas, held capacity, reservations for sale, machines, charges."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from broker.core.market.offers import CapacityType
from broker.core.values.money import Money

TAG = "gpubroker"
STORE_TAG = "gpubroker-store"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine (or gang) that exists or is starting.

    ``key``: the attempt's key. ``handle``: the engine's. ``store``: id of the requesting store; empty if not recorded,
    which proves nothing. ``since``: when it was requested or came up (UTC); None if unknown. ``evidence``: one line for
    people.
    """

    key: str
    handle: str
    store: str = ""
    since: datetime | None = None
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class MachineOutside:
    """A machine (its cloud's ``id``) that started outside the bought capacity requested for it: it is billed on
    demand from ``since`` (UTC)."""

    id: str
    since: datetime


@runtime_checkable
class ListsMachines(Protocol):
    """An engine that can list its machines."""

    def machines(self) -> Iterator[Machine]:
        """Every machine that is or may be gpubroker's, without those that ended. Read-only. Raises what
        `broker.core.ports.Engine.submit` raises."""

    def end(self, handle: str) -> None:
        """End a machine that `machines` reported, whatever its state. Returns at once; repeat until it is no longer
        reported; a missing machine is no error. Raises what `machines` raises.
        """


@dataclass(frozen=True, slots=True)
class Quota:
    """Account limit on running capacity: ``limit`` in ``unit`` (``vCPU``, ``GPU``, ``machine``), for machines whose
    names begin with one of ``families``, in one region, for one or all capacity types.
    """

    provider: str
    region: str
    name: str
    limit: float
    unit: str
    families: tuple[str, ...] = ()
    capacity_type: CapacityType | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Capacity, or a price, that the account holds for a time, paid whether used or not.

    ``machines`` of ``instance_type``; ``free``: unused ones, None if unknown. ``kind``: the provider's term.
    ``holds_capacity``: False for a discount without capacity. ``open``: any machine of that type uses it automatically.
    ``mark``: the id of the purchase in gpubroker's tag. Times are UTC; ``ends`` None: until it is cancelled.
    """

    id: str
    provider: str
    region: str
    zone: str | None
    instance_type: str
    machines: int
    kind: str
    starts: datetime | None = None
    ends: datetime | None = None
    free: int | None = None
    holds_capacity: bool = True
    open: bool = True
    mark: str = ""


@dataclass(frozen=True, slots=True)
class ReservationOffer:
    """Capacity that can be bought for a stretch of time: ``machines`` of ``instance_type`` from ``starts`` to ``ends``
    (UTC) for ``total``, paid when it is bought; ``per_machine_hour``: the total over machines × hours."""

    id: str
    provider: str
    region: str
    zone: str | None
    instance_type: str
    accelerator: str
    count: int
    machines: int
    starts: datetime
    ends: datetime
    total: Money
    per_machine_hour: Money
    as_of: datetime


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine of the account with gpubroker's tag. ``key``: the attempt's key, from the tag. ``state``: the
    provider's term; ``billed``: whether it is billed in that state. ``since``: its start (UTC). ``store``: id of the
    requesting store, from its other tag; empty without one.
    """

    id: str
    provider: str
    region: str
    zone: str | None
    instance_type: str
    key: str
    state: str
    billed: bool
    since: datetime | None = None
    capacity_type: CapacityType = CapacityType.ON_DEMAND
    store: str = ""


@dataclass(frozen=True, slots=True)
class Charge:
    """A provider's charge from ``starts`` to ``ends`` (UTC). ``key``: the attempt's key, empty without our tag.
    ``estimated``: may still change. ``amount`` is negative for credits. ``account``: empty where not known.
    """

    provider: str
    starts: datetime
    ends: datetime
    amount: Money
    key: str = ""
    estimated: bool = True
    about: Mapping[str, str] = field(default_factory=dict)
    account: str = ""
