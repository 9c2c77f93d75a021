"""Cost of keeping checkpoints during and after a job: list prices of stores from ``storage_cost.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from datetime import date, timedelta
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources

from broker.core.values.money import Money

MONTH = timedelta(hours=730)
"""A month of cloud billing: a twelfth of 365 days."""


@dataclass(frozen=True, slots=True)
class KeepingRate:
    """One row: USD per GB (10⁹ bytes) and month in a store matching the pattern ``store`` (shell-style over
    ``provider/region``). ``source`` and ``as_of``: publisher and date.
    """

    store: str
    per_gb_month: Money
    source: str
    as_of: date

    def cost(self, size: float, time: timedelta) -> Money:
        """USD for that many bytes over that time."""
        return Money(round(self.per_gb_month.micros * size / 1e9 * (time / MONTH)))


@cache
def rates() -> tuple[KeepingRate, ...]:
    """The table, in the order in which rows are tried."""
    text = resources.files(__package__).joinpath("storage_cost.toml").read_text(encoding="utf-8")
    return tuple(
        KeepingRate(row["store"], Money.usd(row["usd_per_gb_month"]), row["source"], row["as_of"])
        for row in tomllib.loads(text)["rate"]
    )


@cache
def keeping_rate(store: str) -> KeepingRate | None:
    """The rate of a store at ``provider/region`` (``provider/?`` if the region is unknown); None if no row matches."""
    return next((rate for rate in rates() if fnmatchcase(store, rate.store)), None)
