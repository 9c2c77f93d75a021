"""Watches on prices and their state."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

from broker.core.market.offers import CapacityType, Offer, OfferQuery
from broker.core.values.money import Money
from broker.core.values.units import print_duration


class Trigger(StrEnum):
    """The condition of a watch.

    ``BELOW``: the cheapest available offer costs less than a price. ``RISES``: it costs more than some time ago by a
    given part. ``AVAILABLE``: a provider reports an offer as available. ``STALE``: no successful poll of a provider for
    some time.
    """

    BELOW = "below"
    RISES = "rises"
    AVAILABLE = "available"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class Watch:
    """A condition on some offers.

    ``machines``: ``H100`` or ``H100:8`` (exact count), ``cpu``; for these, ``providers``, ``regions`` (both may be
    patterns) and ``capacity_types`` an empty tuple means any. ``price``: USD per GPU-hour (per hour for CPU machines),
    for ``BELOW``. ``part``: 0.2 for a fifth more, and ``within``: compared with that long ago, for ``RISES``. ``age``:
    for ``STALE``. ``targets``: names of notification settings; all if empty. ``pause``: minimum time between two
    notices. Times are UTC.
    """

    name: str
    trigger: Trigger
    made_at: datetime
    made_by: str
    machines: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    capacity_types: tuple[CapacityType, ...] = ()
    price: Money | None = None
    part: float | None = None
    within: timedelta | None = None
    age: timedelta | None = None
    targets: tuple[str, ...] = ()
    pause: timedelta = timedelta(hours=1)

    @property
    def query(self) -> OfferQuery:
        """The filter for the store; `fits` is stricter about counts."""
        return OfferQuery(
            accelerators=tuple(dict.fromkeys(machine.partition(":")[0] for machine in self.machines)),
            capacity_types=self.capacity_types,
            providers=self.providers,
            regions=self.regions,
        )

    def fits(self, offer: Offer) -> bool:
        if not self.machines:
            return True
        if offer.accelerator is None:
            return "cpu" in self.machines
        return offer.accelerator in self.machines or offer.machine in self.machines

    def fits_provider(self, name: str) -> bool:
        return not self.providers or any(fnmatchcase(name, pattern) for pattern in self.providers)

    @property
    def about(self) -> str:
        """The offers in words: ``H100:8 spot from aws in us-*``."""
        kinds = " or ".join(kind.value.replace("_", "-") for kind in self.capacity_types)
        subject = " ".join(filter(None, [_join_or(self.machines) or "any machine", kinds]))
        providers = f" from {_join_or(self.providers)}" if self.providers else ""
        return f"{subject}{providers}{f' in {_join_or(self.regions)}' if self.regions else ''}"

    @property
    def sentence(self) -> str:
        """The condition in words: ``H100:8 spot below $2.00 per GPU-hour``."""
        match self.trigger:
            case Trigger.BELOW:
                unit = "per hour" if self.machines == ("cpu",) else "per GPU-hour"
                return f"{self.about} below {self.price} {unit}"
            case Trigger.RISES:
                return f"{self.about} up by {self.part or 0:.0%} or more within {_print_length(self.within)}"
            case Trigger.AVAILABLE:
                return f"{self.about} available"
            case Trigger.STALE:
                return (
                    f"{_join_or(self.providers) or 'any provider'} without a successful poll for "
                    f"{_print_length(self.age)}"
                )


@dataclass(frozen=True, slots=True)
class WatchState:
    """The state of a watch at its last check.

    ``firing``: for what the condition is true now: providers for ``STALE``, else one empty name. ``since``: when it
    last became true or false. ``noticed_at``: time of the last notice; ``number``: how many. ``seen``: the finding in
    words. ``known``: whether it could be evaluated.
    """

    firing: tuple[str, ...] = ()
    since: datetime | None = None
    noticed_at: datetime | None = None
    number: int = 0
    seen: str = ""
    known: bool = False
    checked_at: datetime | None = None


def _join_or(names: Sequence[str]) -> str:
    return " or ".join(names)


def _print_length(length: timedelta | None) -> str:
    return print_duration(length or timedelta(0))
