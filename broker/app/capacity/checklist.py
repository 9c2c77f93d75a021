"""The steps by which a person buys capacity by hand, as safely as through gpubroker."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from broker.app.capacity.capacity import provider_of
from broker.app.results.capacity import ChecklistStep, PurchaseChecklistResult
from broker.core.errors import BrokerError, InvalidInput, UnknownName, did_you_mean
from broker.core.purchases.quotes import SellsCapacity

if TYPE_CHECKING:
    from broker.app.wiring import Broker


def checklist(broker: Broker, provider: str, *, unlike: bool = False) -> PurchaseChecklistResult:
    """The checklist for a provider, known here or not. Sends no request, changes nothing. Raises `InvalidInput` for an
    empty name, and `UnknownName` for one that resembles a known name, unless ``unlike``."""
    if not provider.strip():
        raise InvalidInput("the provider's name is empty", where="PROVIDER")
    known = sorted({*broker.registries.providers, *(one.offer.provider for one in broker.store.market.series())})
    name = provider_of(broker, provider, owned=True)[0]
    if not unlike and name not in known and did_you_mean(name, known):
        raise UnknownName("provider", name, known)
    steps = (
        ("Compare: what the same use costs on demand, on spot and on owned machines", "gpubroker advise buy-or-rent"),
        ("See what the budget has left for the whole commitment, not for its first month", "gpubroker budget show"),
        (
            "Get the offer in writing: machines, network, place, first and last day, price in all, how it is paid, what"
            " ending it early costs, and whether it renews by itself",
            "",
        ),
        ("If it cannot be ended: have two people approve who are neither the buyer nor each other", ""),
        ("Order it once. No answer? Ask the provider before ordering again", ""),
        ("Keep the order's number and the signed contract or the invoice as a file", ""),
        (
            "Record it, with the file: it counts in plans, findings and the cost of a GPU-hour",
            f"gpubroker capacity add reservation GPU:COUNT --machines N --provider {quote(name)} --site PLACE"
            " --price USD --from DAY --until DAY --order NUMBER --proof FILE",
        ),
        ("Let jobs use it: name its machines to an engine (Slurm, Kubernetes, SkyPilot over SSH)", "gpubroker doctor"),
        ("Each month: what was used of it", "gpubroker policy findings"),
        ("A month before its end, and before it renews by itself: decide again", "gpubroker capacity plan"),
    )
    told = [ChecklistStep(what=what, command=command) for what, command in steps]
    return PurchaseChecklistResult(provider=name, sells=_products(broker, name), steps=told)


def _products(broker: Broker, name: str) -> list[str]:
    if name not in broker.registries.providers:
        return []
    try:
        provider = broker.provider(name)
    except BrokerError:
        return []
    return sorted(provider.products) if isinstance(provider, SellsCapacity) else []
