"""Cost of the disks of rented machines: list prices by place from ``disk_cost.toml``."""

from __future__ import annotations

import tomllib
from datetime import date, timedelta
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources

from pydantic import BaseModel, ConfigDict, Field

from broker.core.values.money import Money
from broker.placement.pricing.storage_cost import MONTH

DEFAULT_GIB = 256
"""The disk that SkyPilot attaches to a machine whose job names no `disk_size` (sky/resources.py of 0.14)."""
PRICED_TIERS = (None, "medium")
"""The disk tiers of a job that the table's figures are for."""


class DiskRate(BaseModel):
    """One row: USD per GiB and month in places matching the pattern (shell-style over ``provider/region``). ``source``
    and ``as_of``: publisher and date."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    place: str
    usd_per_gib_month: str = Field(pattern=r"^[0-9]+(\.[0-9]+)?$")
    source: str
    as_of: date

    def per_hour(self, gib: float) -> Money:
        """USD an hour for a disk of that size."""
        month = Money.usd(self.usd_per_gib_month)
        return Money(round(month.micros * gib / (MONTH / timedelta(hours=1))))


@cache
def rates() -> tuple[DiskRate, ...]:
    """The table, in the order in which rows are tried."""
    text = resources.files(__package__).joinpath("disk_cost.toml").read_text(encoding="utf-8")
    return tuple(DiskRate.model_validate(row) for row in tomllib.loads(text)["rate"])


@cache
def disk_rate(place: str) -> DiskRate | None:
    """The rate at ``provider/region``; None if none is known."""
    return next((rate for rate in rates() if fnmatchcase(place, rate.place)), None)
