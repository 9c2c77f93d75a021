"""Capacity that is held: recorded by people, reported by providers, known as owned machines."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from broker.core.actors import Actor
from broker.core.errors import BrokerError, MissingExtra, NoLogin, did_you_mean
from broker.core.market.capacity import Reservation
from broker.core.market.offers import SANDBOX, CapacityType, Offer, OfferQuery
from broker.core.ports import HasReservations
from broker.economics.reserve.holdings import Holding, RecordedHolding

if TYPE_CHECKING:
    from broker.app.wiring import Broker


@dataclass(frozen=True, slots=True)
class CapacityInventory:
    """All capacity that is held. ``machines``: owned ones that offer themselves. ``asked``: providers that were asked
    and answered; ``problems``: what the others said, by name."""

    now: datetime
    recorded: tuple[RecordedHolding, ...]
    reported: tuple[Reservation, ...]
    machines: tuple[Offer, ...]
    asked: tuple[str, ...]
    problems: tuple[tuple[str, str], ...]


def capacity(broker: Broker, *, ask: bool = True) -> CapacityInventory:
    """What is held now. With ``ask``, every provider that knows of reservations and has a login is asked over the
    network; those that fail are named, and the rest still counts."""
    from broker.app.market.market import freshen

    freshen(broker)
    owned = broker.store.offers(OfferQuery(capacity_types=(CapacityType.OWNED,)))
    reported, asked, problems = _reported(broker) if ask else ([], [], [])
    return CapacityInventory(
        now=broker.clock.now(),
        recorded=tuple(broker.store.holdings()),
        reported=tuple(reported),
        machines=tuple(offer for offer in owned if offer.provider != SANDBOX and offer.accelerator),
        asked=tuple(asked),
        problems=tuple(problems),
    )


def provider_of(broker: Broker, name: str, *, owned: bool) -> tuple[str, str]:
    """The provider as it is written here, whatever the capitals, and what is doubtful about it, or nothing. What is
    owned may stand at a site of any name; that is doubtful where it is nearly a name that is known."""
    told = {series.offer.provider for series in broker.store.market.series()}
    known = {one.lower(): one for one in (*told, *broker.registries.providers)}
    if name.lower() in known:
        return known[name.lower()], ""
    meant, unknown = did_you_mean(name, known.values()), f"no provider here is called {name!r}"
    if owned:
        return name, f"{unknown}{meant} It is taken for a site of your own" if meant else ""
    return name, f"{unknown}{meant}" if meant else f"{unknown}; known are {', '.join(sorted(known.values()))}"


def add(broker: Broker, holding: Holding, *, by: Actor) -> RecordedHolding:
    """Put it on record, as added by that person."""
    return broker.store.add_holding(holding, by=by.identity)


def remove(broker: Broker, number: int, *, by: Actor) -> RecordedHolding:
    """Take it off the record. Raises `UnknownName` when there is none of that number."""
    return broker.store.remove_holding(number, by=by.identity)


def _reported(broker: Broker) -> tuple[list[Reservation], list[str], list[tuple[str, str]]]:
    found: list[Reservation] = []
    asked: list[str] = []
    problems: list[tuple[str, str]] = []
    for name in broker.registries.providers:
        try:
            provider = broker.provider(name)
            if not isinstance(provider, HasReservations):
                continue
            found += provider.reservations()
            asked.append(name)
        except (NoLogin, MissingExtra):
            continue  # nobody uses this provider here
        except BrokerError as error:
            problems.append((name, str(error)))
    return found, asked, problems
