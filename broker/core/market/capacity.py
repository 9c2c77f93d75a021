"""What a provider may tell beside its offers: quotas, capacity held, capacity for sale ahead, machines, charges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from broker.core.market.offers import CapacityType
from broker.core.values.money import Money


@dataclass(frozen=True, slots=True)
class Quota:
    """How much the account may run at once. ``limit`` in ``unit`` (``vCPU``, ``GPU``, ``machine``), of machines whose
    names begin with one of ``families``, in one region, however they are had or as one ``capacity_type``."""

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

    ``machines`` of ``instance_type``; ``free``: how many are not in use, None when not known. ``kind``: the provider's
    word for it. ``holds_capacity``: False for a mere discount. ``open``: any machine of that type uses it, without
    naming it. Times are UTC; ``ends`` is None for what goes on until it is given back.
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
    """A machine of the account that carries gpubroker's tag. ``key``: the attempt's key, as the tag says. ``state``:
    the provider's word; ``billed``: whether it costs by the hour in that state. ``since``: when it started (UTC).
    ``store``: the id of the store that asked for it, as its other tag says; empty where it has none."""

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
    """What the provider charged from ``starts`` to ``ends`` (UTC). ``key``: the attempt's key, empty when the charge
    carries no tag of ours. ``estimated``: may still change. ``amount`` is negative for credits."""

    provider: str
    starts: datetime
    ends: datetime
    amount: Money
    key: str = ""
    estimated: bool = True
    about: Mapping[str, str] = field(default_factory=dict)
