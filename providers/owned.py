"""This machine as owned capacity: its NVIDIA GPUs as NVML tells, and its CPUs."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from importlib import import_module
from typing import Any, ClassVar

import psutil
from pydantic import Field

from broker.core.errors import UnknownName
from broker.core.market.offers import Availability, CapacityType, Interconnect, MoneyKind, Offer, OfferQuery, SkippedRow
from broker.core.values.accelerators import canonical
from broker.core.values.clock import Clock
from broker.core.values.money import Money
from providers.registry import ProviderSettings

_GIB = 2**30
_HOURS_PER_KWH_OF_WATTS = 1000


class OwnedSettings(ProviderSettings):
    """What an hour of this machine costs. All amounts in USD; everything may be left out, and then the hour is free.

    ``watts``: what the whole machine draws under load; ``usd_per_kwh``: the electricity price; ``pue``: the site's
    power usage effectiveness (total power / computer power, ≥ 1); ``wear_per_hour``: what an hour of use takes off the
    machine's life. ``amortised_per_hour``: purchase price over life, for showback only; it never enters a decision.
    ``name``: what the machine is called in offers; its host name by default.
    """

    name: str = Field(default="", max_length=60)
    watts: Decimal = Field(default=Decimal(0), ge=0)
    usd_per_kwh: Decimal = Field(default=Decimal(0), ge=0)
    pue: Decimal = Field(default=Decimal(1), ge=1)
    wear_per_hour: Money = Money.ZERO
    amortised_per_hour: Money | None = None

    @property
    def marginal_price(self) -> Money:
        """USD per hour that running costs and idling does not: W / 1000 × $/kWh × PUE + wear."""
        return Money.usd(self.watts / _HOURS_PER_KWH_OF_WATTS * self.usd_per_kwh * self.pue) + self.wear_per_hour


def _nvml() -> Any:
    return import_module("pynvml")


class Owned:
    """One offer for each kind of GPU in this machine, and one for its CPUs.

    The machine is one machine: `slots` is 1 on each offer. Without a driver, or when NVML fails, the CPU offer comes
    all the same, with a `SkippedRow` that says what NVML said.
    """

    name = "owned"
    refresh_before_deciding = True
    Settings: ClassVar = OwnedSettings

    def __init__(self, *, clock: Clock, settings: OwnedSettings | None = None, nvml: Callable[[], Any] = _nvml) -> None:
        """``nvml`` gives the NVML binding (the module ``pynvml`` or one like it) when offers are asked for."""
        self._clock = clock
        self._settings = settings or OwnedSettings()
        self._nvml = nvml

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """Both kinds, whatever the query: looking costs milliseconds and nothing else."""
        gpus: Counter[str] = Counter()
        linked = False
        try:
            binding = self._nvml()
        except ImportError as error:
            yield SkippedRow("nvml_unavailable", f"the NVML binding cannot be imported: {error}")
        else:
            gpus, linked, skipped = _look(binding)
            yield from skipped
        for accelerator, count in gpus.items():
            link = None if count == 1 else Interconnect.NVLINK if linked else Interconnect.PCIE
            yield self._offer(accelerator, count, link)
        yield self._offer(None, 0, None)

    def _offer(self, accelerator: str | None, count: int, interconnect: Interconnect | None) -> Offer:
        return Offer(
            provider=self.name,
            region="local",
            zone=None,
            instance_type=self._settings.name or platform.node() or "this-machine",
            accelerator=accelerator,
            count=count,
            capacity_type=CapacityType.OWNED,
            price=self._settings.marginal_price,
            as_of=self._clock.now(),
            source=self.name,
            amortised=self._settings.amortised_per_hour,
            cpus=float(_cpus()),
            memory_gib=round(psutil.virtual_memory().total / _GIB, 1),
            interconnect=interconnect,
            availability=Availability.AVAILABLE,
            interruption_rate=0.0,
            slots=1,
            engine="local",
            money=MoneyKind.AMORTISED,
        )


def _cpus() -> int:
    """The CPUs this process may use, which in a container can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return psutil.cpu_count() or 1


def _look(nvml: Any) -> tuple[Counter[str], bool, list[SkippedRow]]:
    """The usable GPUs by canonical name, whether NVLink joins them, and what could not be used and why."""
    gpus: Counter[str] = Counter()
    linked: list[bool] = []
    skipped: list[SkippedRow] = []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return gpus, False, [SkippedRow("nvml_unavailable", f"no GPUs looked at: {error}")]
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                found = _device(nvml, index)
            except nvml.NVMLError as error:
                skipped.append(SkippedRow("gpu_unreadable", f"GPU {index}: {error}"))
                continue
            if isinstance(found, SkippedRow):
                skipped.append(found)
                continue
            name, has_link = found
            gpus[name] += 1
            linked.append(has_link)
    except nvml.NVMLError as error:
        skipped.append(SkippedRow("nvml_unavailable", f"the GPUs cannot be counted: {error}"))
    finally:
        _quietly(nvml, nvml.nvmlShutdown)
    return gpus, bool(linked) and all(linked), skipped


def _device(nvml: Any, index: int) -> tuple[str, bool] | SkippedRow:
    """The GPU's canonical name and whether its first NVLink is up. Raises the binding's NVMLError."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    raw = nvml.nvmlDeviceGetName(handle)
    name = raw.decode() if isinstance(raw, bytes) else str(raw)
    memory_gib = nvml.nvmlDeviceGetMemoryInfo(handle).total / _GIB
    mig = _quietly(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if mig is not None and mig[0]:
        return SkippedRow("gpu_in_mig_mode", f"GPU {index}: {name} is cut into MIG slices, which are not offered")
    try:
        accelerator = canonical(name, memory_gib)
    except UnknownName:
        return SkippedRow(
            "unknown_accelerator", f"GPU {index}: {name!r} ({memory_gib:.0f} GiB) is not in the GPU table"
        )
    return accelerator, bool(_quietly(nvml, nvml.nvmlDeviceGetNvLinkState, handle, 0))


def _quietly(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """The answer to an optional question; None where this GPU or driver does not know it."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None
