"""Names of providers and regions that a question uses: none of them is silently nothing."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from broker.core.errors import UnknownName
from broker.core.market.offers import Offer, OfferQuery

if TYPE_CHECKING:
    from broker.app.wiring import Broker


def check_names(broker: Broker, query: OfferQuery, found: Iterable[Offer]) -> None:
    """Raises `UnknownName` for a provider or region, or a pattern of them, that none of the offers ``found`` has and
    that fits none there ever was."""
    offers = list(found)
    providers = _in_vain(query.providers, {*broker.registries.providers, *(offer.provider for offer in offers)})
    regions = _in_vain(query.regions, {offer.region for offer in offers})
    if not (providers or regions):
        return
    every = [series.offer for series in broker.store.market.series()]
    known = {
        "provider": {*broker.registries.providers, *(offer.provider for offer in every)},
        "region": {offer.region for offer in every},
    }
    for kind, names in (("provider", providers), ("region", regions)):
        for name in _in_vain(names, known[kind]):
            raise UnknownName(kind, name, known[kind])


def _in_vain(names: Iterable[str], known: Iterable[str]) -> list[str]:
    known = set(known)
    return [name for name in names if not any(fnmatchcase(one, name) for one in known)]
