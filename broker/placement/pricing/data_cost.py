"""Cost of data: of keeping checkpoints during and after a job, and of moving data between regions. Dated list prices
from ``storage_cost.toml`` and ``egress.toml``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from fnmatch import fnmatchcase
from functools import cache

from broker.core.packaged import packaged
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
def keeping_rates() -> tuple[KeepingRate, ...]:
    """The table, in the order in which rows are tried."""
    return tuple(
        KeepingRate(row["store"], Money.usd(row["usd_per_gb_month"]), row["source"], row["as_of"])
        for row in packaged("broker.placement.pricing", "storage_cost.toml")["rate"]
    )


@cache
def keeping_rate(store: str) -> KeepingRate | None:
    """The rate of a store at ``provider/region`` (``provider/?`` if the region is unknown); None if no row matches."""
    return next((rate for rate in keeping_rates() if fnmatchcase(store, rate.store)), None)


@dataclass(frozen=True, slots=True)
class EgressRate:
    """One row: USD per GB (10⁹ bytes) from a place matching ``origin`` to one matching ``destination``.

    Patterns are shell-style over ``provider/region``. ``source`` and ``as_of``: publisher and date.
    """

    origin: str
    destination: str
    per_gb: Money
    source: str
    as_of: date


FREE = EgressRate("*", "*", Money.ZERO, "stays in its region", date.min)


@cache
def egress_rates() -> tuple[EgressRate, ...]:
    """The table, in the order in which rows are tried."""
    return tuple(
        EgressRate(row["from"], row["to"], Money.usd(row["usd_per_gb"]), row["source"], row["as_of"])
        for row in packaged("broker.placement.pricing", "egress.toml")["rate"]
    )


@cache
def egress_rate(origin: str, destination: str) -> EgressRate:
    """The rate for data going from ``origin`` to ``destination`` (both ``provider/region``); free within one region."""
    if origin == destination:
        return FREE
    return next(
        rate
        for rate in egress_rates()
        if fnmatchcase(origin, rate.origin) and fnmatchcase(destination, rate.destination)
    )
