"""This machine as owned capacity: its NVIDIA GPUs, listed by NVML, and its CPUs."""

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from typing import Any, ClassVar

import psutil
from pydantic import Field

from broker.core.market.accelerators import card_share, lookup
from broker.core.market.local_gpus import LocalGpu, local_gpus
from broker.core.market.offers import (
    Availability,
    CapacityType,
    Interconnect,
    MoneyKind,
    Offer,
    OfferQuery,
    SkippedRow,
    part_price,
)
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
    """One offer for each kind of GPU and of MIG slice in this machine, and one for its CPUs.

    The machine is one machine: `slots` is 1 on each offer, and several jobs may share it. Where any card is cut, cards
    and slices cost their share of the memory of all; what is in no slice is a `SkippedRow`, and its owner's. Without a
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
        gpus: list[LocalGpu] = []
        try:
            binding = self._nvml()
        except ImportError as error:
            yield SkippedRow("nvml_unavailable", f"the NVML binding cannot be imported: {error}")
        else:
            gpus, skipped = local_gpus(binding)
            yield from skipped
        cards = {gpu.index: card_share(gpu.accelerator)[0] for gpu in gpus}
        memory = sum(map(_memory, cards.values()), Fraction(0))
        parts = {card: _memory(card) / memory for card in cards.values()}
        any_cut = any(gpu.uuid for gpu in gpus)
        all_linked = all(gpu.linked for gpu in gpus if not gpu.uuid)
        for (accelerator, is_slice), count in Counter((gpu.accelerator, bool(gpu.uuid)) for gpu in gpus).items():
            link = None if count == 1 or is_slice else Interconnect.NVLINK if all_linked else Interconnect.PCIE
            yield self._offer(accelerator, count, link, parts[card_share(accelerator)[0]] if any_cut else None)
        for index, card in cards.items():
            yield from self._stranded(card, [gpu for gpu in gpus if gpu.index == index], parts[card])
        yield self._offer(None, 0, None)

    def _stranded(self, card: str, gpus: Sequence[LocalGpu], part: Fraction) -> Iterator[SkippedRow]:
        """What of a card is in no slice. ``part``: the card's of the machine."""
        if left := 1 - sum(card_share(gpu.accelerator)[1] for gpu in gpus):
            cost = _portion(self._settings.amortised_per_hour or self._settings.marginal_price, part)
            stranded = cost - sum((part_price(cost, gpu.accelerator) for gpu in gpus), Money.ZERO)
            text = f"{left} of the memory of GPU {gpus[0].index} ({card}) is in no slice"
            yield SkippedRow("stranded_gpu", f"{text}: {stranded} an hour, its owner's")

    def _offer(
        self, accelerator: str | None, count: int, interconnect: Interconnect | None, part: Fraction | None = None
    ) -> Offer:
        """``part``: where any card is cut, the part of the machine that each card of these is."""

        def share(price: Money) -> Money:
            return price if part is None else part_price(_portion(price, part), accelerator) * count

        amortised = self._settings.amortised_per_hour
        return Offer(
            provider=self.name,
            region="local",
            zone=None,
            instance_type=self._settings.name or platform.node() or "this-machine",
            accelerator=accelerator,
            count=count,
            capacity_type=CapacityType.OWNED,
            price=share(self._settings.marginal_price),
            as_of=self._clock.now(),
            source=self.name,
            amortised=amortised and share(amortised),
            cpus=float(_cpus()),
            memory_gib=round(psutil.virtual_memory().total / _GIB, 1),
            interconnect=interconnect,
            availability=Availability.AVAILABLE,
            interruption_rate=0.0,
            slots=1,
            engine="local",
            money=MoneyKind.AMORTISED,
        )


def _memory(card: str) -> Fraction:
    return Fraction(lookup(card).memory_gb)


def _portion(price: Money, part: Fraction) -> Money:
    """That part of a price, so that all parts never cost more."""
    return Money(price.micros * part.numerator // part.denominator)


def _cpus() -> int:
    """The number of CPUs that this process may use; in a container it may be less than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return psutil.cpu_count() or 1
