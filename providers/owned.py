"""This machine as owned capacity: its NVIDIA GPUs, listed by NVML, and its CPUs."""

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from importlib import import_module
from typing import Any, ClassVar

import psutil
from pydantic import Field

from broker.core.market.local_gpus import local_gpus
from broker.core.market.offers import Availability, CapacityType, Interconnect, MoneyKind, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import Clock
from broker.core.values.money import Money
from providers.registry import ProviderSettings

_GIB = 2**30
_HOURS_PER_KWH_OF_WATTS = 1000


class OwnedSettings(ProviderSettings):
    """The cost of an hour of this machine, in USD. All fields are optional; without any, an hour is free.

    ``watts``: power of the whole machine under load; ``usd_per_kwh``: electricity price; ``pue``: the site's power
    usage effectiveness (total power / computer power, ≥ 1); ``wear_per_hour``: loss of value per hour of use.
    ``amortised_per_hour``: purchase price / life, for showback only; decisions do not use it. ``name``: the machine's
    name in offers; default: its host name.
    """

    name: str = Field(default="", max_length=60)
    watts: Decimal = Field(default=Decimal(0), ge=0)
    usd_per_kwh: Decimal = Field(default=Decimal(0), ge=0)
    pue: Decimal = Field(default=Decimal(1), ge=1)
    wear_per_hour: Money = Money.ZERO
    amortised_per_hour: Money | None = None

    @property
    def marginal_price(self) -> Money:
        """The extra cost of a used hour over an idle one, USD: W / 1000 × $/kWh × PUE + wear."""
        return Money.usd(self.watts / _HOURS_PER_KWH_OF_WATTS * self.usd_per_kwh * self.pue) + self.wear_per_hour


def _nvml() -> Any:
    return import_module("pynvml")


class Owned:
    """One offer for each kind of GPU in this machine, and one for its CPUs.

    The machine is one machine: `slots` is 1 on each offer, and several jobs may share it. Without a
    driver, or if NVML fails, only the CPU offer is returned, with a `SkippedRow` that has NVML's error.
    """

    name = "owned"
    refresh_before_deciding = True
    Settings: ClassVar = OwnedSettings

    def __init__(self, *, clock: Clock, settings: OwnedSettings | None = None, nvml: Callable[[], Any] = _nvml) -> None:
        """``nvml`` returns the NVML binding (the module ``pynvml``); `offers` calls it."""
        self._clock = clock
        self._settings = settings or OwnedSettings()
        self._nvml = nvml

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """All offers, whatever the query: it takes milliseconds and costs nothing."""
        gpus: Counter[str] = Counter()
        all_linked = False
        try:
            binding = self._nvml()
        except ImportError as error:
            yield SkippedRow("nvml_unavailable", f"the NVML binding cannot be imported: {error}")
        else:
            cards, skipped = local_gpus(binding)
            yield from skipped
            gpus.update(gpu.accelerator for gpu in cards)
            all_linked = bool(cards) and all(gpu.linked for gpu in cards)
        for accelerator, count in gpus.items():
            link = None if count == 1 else Interconnect.NVLINK if all_linked else Interconnect.PCIE
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
    """The number of CPUs that this process may use; in a container it may be less than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return psutil.cpu_count() or 1
