"""Names of providers and regions in queries and jobs. An unknown name is reported instead of an empty result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from broker.core.errors import UnknownName, did_you_mean
from broker.core.job.jobs import Job
from broker.core.market.offers import Offer, OfferQuery

if TYPE_CHECKING:
    from broker.app.wiring import Broker


def check_names(broker: Broker, query: OfferQuery, found: Iterable[Offer]) -> None:
    """Raises `UnknownName` for a provider or region of the query, or a pattern of such names, that matches neither the
    offers ``found`` nor any offer ever stored."""
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


def unknown_providers(broker: Broker, job: Job) -> Iterator[str]:
    """One warning for each provider that the job names and that is neither registered nor in a stored offer."""
    named = [*((request.infra or "*").partition("/")[0] for request in job.resources), *job.constraints.providers]
    plain = [name for name in dict.fromkeys(named) if not set("*?[") & set(name)]
    if all(name in broker.registries.providers for name in plain):
        return
    known = {*broker.registries.providers, *(series.offer.provider for series in broker.store.market.series())}
    for name in plain:
        if name not in known:
            meant = did_you_mean(name, known) or "; `gpubroker offers --by provider` lists those that are known"
            yield f"no provider {name!r} is known here{meant}"


def _in_vain(names: Iterable[str], known: Iterable[str]) -> list[str]:
    known = set(known)
    return [name for name in names if not any(fnmatchcase(one, name) for one in known)]
