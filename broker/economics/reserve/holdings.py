"""Capacity that was paid for or promised: owned machines, reservations, commitments; what an hour of them costs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from broker.core.errors import InvalidInput
from broker.core.values.money import Money
from broker.economics.energy import energy_usd_per_hour
from broker.economics.units import not_negative, whole


class HoldingKind(StrEnum):
    """The kind of holding. A commitment is a payment for a discount, without capacity of its own."""

    OWNED = "owned"
    RESERVATION = "reservation"
    COMMITMENT = "commitment"


@dataclass(frozen=True, slots=True)
class Holding:
    """``gpus`` accelerators held from ``starts`` until ``ends`` (UTC): the end of the term, or of the machines' life.

    ``provider``: who it is held from, for owned machines what their site is called; ``site``: region or place.
    ``upfront``: paid once, for all of it; ``hourly``: paid for every hour of the time whether used or not, for all of
    it. ``watts``: what all of it draws in use, for owned machines. ``order_id``: what the provider
    calls it, if it has a name there; ``proof``: the SHA-256 of a document that proves it (hex). Raises InvalidInput.
    """

    kind: HoldingKind
    accelerator: str
    gpus: int
    provider: str
    site: str
    starts: datetime
    ends: datetime
    upfront: Money = Money.ZERO
    hourly: Money = Money.ZERO
    watts: float = 0.0
    note: str = ""
    order_id: str = ""
    proof: str = ""

    def __post_init__(self) -> None:
        whole("GPUs", self.gpus)
        not_negative("power", self.watts, "W")
        if self.starts.tzinfo is None or self.ends.tzinfo is None:
            raise InvalidInput("a holding needs times with a time zone")
        if self.ends <= self.starts:
            raise InvalidInput(f"it ends {self.ends.isoformat()}, before it starts, {self.starts.isoformat()}")
        if min(self.upfront.micros, self.hourly.micros) < 0:
            raise InvalidInput("payments cannot be negative")

    @property
    def hours(self) -> float:
        """The whole time, in hours."""
        return (self.ends - self.starts) / timedelta(hours=1)

    def active(self, at: datetime) -> bool:
        """Whether it is held at that time."""
        return self.starts <= at < self.ends

    @property
    def usd_per_gpu_hour(self) -> float:
        """The cost of a GPU-hour, used or not: all payments spread evenly. USD."""
        upfront = float(self.upfront.dollars) / self.hours
        return (upfront + float(self.hourly.dollars)) / self.gpus

    def energy_usd_per_gpu_hour(self, kwh_usd: float, pue: float) -> float:
        """The extra cost of a GPU-hour in use. USD."""
        return energy_usd_per_hour(self.watts, kwh_usd, pue) / self.gpus


@dataclass(frozen=True, slots=True)
class RecordedHolding:
    """A recorded holding: its number, when (UTC) and by whom it was added."""

    number: int
    holding: Holding
    added_at: datetime
    added_by: str
