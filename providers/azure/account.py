"""The market as seen by a subscription, with a login: restricted machines, remaining quotas, spot signals, and held
capacity. Extends the retail prices and replaces none.

Azure closes a machine to a subscription in a whole region or in some of its zones (Resource SKUs). Offers here are per
region, so only a closed region makes an offer unavailable. An open machine may still have no capacity. A region's list
has about 2 MB, so its rows are read without the SDK's models.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.clock import Clock
from providers.azure import holdings, spot
from providers.azure.fields import count, nested_object, objects, read_locations, texts
from providers.azure.login import AzureLogin
from providers.azure.machines import find_type
from providers.azure.settings import AzureSettings
from providers.failures import Failures
from providers.rows import OfferRows

VERSION = "2021-07-01"  # the version that azure-mgmt-compute uses

_REASONS = {
    "QuotaId": "not available to this kind of subscription (QuotaId)",
    "NotAvailableForSubscription": "closed to this subscription (NotAvailableForSubscription); ask Azure's support",
}


@dataclass(frozen=True, slots=True)
class Sku:
    """A machine in one region. ``family``: the quota that counts it. ``closed``: Azure's code for why the subscription
    cannot use it in this region; empty if it can. ``zones``: the logical names of the open zones."""

    instance_type: str
    family: str
    closed: str
    zones: frozenset[str]


def read_skus(login: AzureLogin, region: str) -> Mapping[str, Sku]:
    """The machines with accelerators of one region, by the table's names. Raises what `AzureLogin.rows` raises."""
    query = urlencode({"api-version": VERSION, "$filter": f"location eq '{region}'"})
    path = f"/subscriptions/{login.subscription}/providers/Microsoft.Compute/skus?{query}"
    skus = {}
    for row in login.plain_rows(f"{region}: resource skus", path, version=VERSION):
        instance_type = find_type(str(row.get("name")))
        if (
            instance_type
            and row.get("resourceType") == "virtualMachines"
            and _names_region(region, row.get("locations"))
        ):
            skus[instance_type] = Sku(instance_type, str(row.get("family") or ""), *_limits(row, region))
    return skus


def _limits(row: Mapping[str, Any], region: str) -> tuple[str, frozenset[str]]:
    closed, zones = "", set()
    for place in objects(row.get("locationInfo")):
        if _names_region(region, [place.get("location")]):
            zones |= set(texts(place.get("zones")))
    for limit in objects(row.get("restrictions")):
        scope = nested_object(limit, "restrictionInfo")
        if not _names_region(region, scope.get("locations") or limit.get("values")):
            continue
        if limit.get("type") == "Zone":
            zones -= set(texts(scope.get("zones")))
        elif limit.get("type") == "Location":
            closed = str(limit.get("reasonCode") or "restricted")
    return closed, frozenset(zones)


def apply_restrictions(offer: Offer, skus: Mapping[str, Sku]) -> Offer:
    """The offer with its region's data: unavailable, or `no_quota` if the kind of subscription excludes it."""
    sku = skus.get(offer.instance_type)
    if sku is None:
        because = "not offered in this region to this subscription"
        return replace(offer, availability=Availability.UNAVAILABLE, unavailable_because=because)
    if not sku.closed:
        return offer
    kind = Availability.NO_QUOTA if sku.closed == "QuotaId" else Availability.UNAVAILABLE
    return replace(offer, availability=kind, unavailable_because=_REASONS.get(sku.closed, sku.closed))


def _names_region(region: str, places: object) -> bool:
    return any(place.lower() == region for place in texts(places))


# The subscription's quotas on vCPUs and their use (compute usages), per region; with a login.
#
# Three of them limit a machine: all vCPUs of the region, those of its family (named by Resource SKUs), and, for spot
# machines, all spot vCPUs of the region, whatever their family. Machines that are stopped count as well.
_ALL = "cores"
_SPOT = "lowprioritycores"


@dataclass(frozen=True, slots=True)
class AzureQuota:
    """One quota: the limit and the use, in vCPUs."""

    name: str
    limit: int
    used: int


def read_usages(login: AzureLogin, region: str) -> Mapping[str, AzureQuota]:
    """The quotas of one region, by their names in lower case. Raises what `AzureLogin.rows` raises."""
    quotas = {}
    for row in login.rows(f"{region}: usages", lambda client: client.usage.list(region)):
        name = nested_object(row, "name").get("value")
        limit, used = count(row.get("limit")), count(row.get("currentValue"))
        if isinstance(name, str) and name and limit is not None and used is not None:
            quotas[name.lower()] = AzureQuota(name, limit, used)
    return quotas


def apply_quotas(offer: Offer, skus: Mapping[str, Sku], usages: Mapping[str, AzureQuota]) -> Offer:
    """The offer within the quotas: `no_quota` if not even one machine fits, otherwise at most as many machines as fit
    next to the running ones."""
    sku = skus.get(offer.instance_type)
    if not offer.cpus or sku is None or offer.availability in (Availability.UNAVAILABLE, Availability.NO_QUOTA):
        return offer
    names = (_SPOT,) if offer.capacity_type is CapacityType.SPOT else (sku.family.lower(), _ALL)
    limits = [usages[name] for name in names if name in usages]
    if not limits:
        return offer
    tightest = min(limits, key=lambda usage: usage.limit - usage.used)
    machines = int((tightest.limit - tightest.used) // offer.cpus)
    if machines >= 1:
        return replace(offer, slots=machines)
    because = (
        f"quota {tightest.name!r}: {tightest.used} of {tightest.limit} vCPUs in use, "
        f"and this machine has {offer.cpus:g}"
    )
    return replace(offer, availability=Availability.NO_QUOTA, unavailable_because=because, slots=None)


_MAX_CONCURRENT = 8  # regions queried concurrently
_RUNNABLE = (CapacityType.ON_DEMAND, CapacityType.SPOT)
_SCORES_AGE = timedelta(hours=1)  # Azure limits queries for scores per hour


@dataclass
class ScoreCache:
    """Placement scores from poll to poll, by question."""

    answers: dict[object, tuple[datetime, spot.Scores]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _AzureRegion:
    """The data of a region; ``skus`` is None if the query failed."""

    skus: Mapping[str, Sku] | None
    usages: Mapping[str, AzureQuota]


@dataclass(frozen=True, slots=True)
class AzureAccount:
    """One poll with one login. Failures of a part are collected in ``failures``, and leave the offers unchanged."""

    login: AzureLogin
    settings: AzureSettings
    clock: Clock
    failures: Failures
    remembered: ScoreCache

    def held(self) -> OfferRows:
        """Held capacity as offers."""
        locations = self.failures.result(partial(read_locations, self.login), None)
        if locations is None:
            return  # without them zones would be named differently than in other polls
        reservations = self.failures.kept(holdings.capacity_reservations(self.login, locations))
        yield from holdings.reservation_offers(reservations, self.clock.now())

    def seen(self, offers: Iterable[Offer]) -> OfferRows:
        """The offers, with the subscription's data on each."""
        offers = list(offers)
        queried = [offer for offer in offers if _is_queryable(offer)]
        on_spot = [offer for offer in queried if offer.capacity_type is CapacityType.SPOT]
        regions = dict.fromkeys(offer.region for offer in queried)
        with ThreadPoolExecutor(_MAX_CONCURRENT, "azure") as threads:
            region_data = dict(zip(regions, threads.map(self._region, regions), strict=True))
            scores = self._scores(threads, on_spot)
        no_evictions: spot.Evictions = {}
        wants_evictions = on_spot and self.settings.eviction_rates
        evictions = (
            self.failures.result(partial(spot.eviction_rates, self.login), no_evictions)
            if wants_evictions
            else no_evictions
        )
        queried_ids = {offer.id for offer in queried}
        for offer in offers:
            if offer.id in queried_ids:
                offer = _apply_region_data(offer, region_data[offer.region])
                if offer.capacity_type is CapacityType.SPOT:
                    offer = spot.with_signals(offer, scores, evictions)
            yield offer

    def _region(self, region: str) -> _AzureRegion:
        no_usages: Mapping[str, AzureQuota] = {}
        skus = self.failures.result(partial(read_skus, self.login, region), None)
        if skus is None or not self.settings.quotas:
            return _AzureRegion(skus, no_usages)
        return _AzureRegion(skus, self.failures.result(partial(read_usages, self.login, region), no_usages))

    def _scores(self, threads: ThreadPoolExecutor, offers: list[Offer]) -> spot.Scores:
        if not self.settings.placement_scores:
            return {}
        questions = list(spot.questions((offer.region, offer.instance_type) for offer in offers))
        return {pool: score for scores in threads.map(self._answer, questions) for pool, score in scores.items()}

    def _answer(self, question: tuple[tuple[str, ...], tuple[str, ...]]) -> spot.Scores:
        now = self.clock.now()
        no_scores: spot.Scores = {}
        queried_at, answer = self.remembered.answers.get(question, (now, None))
        if answer is not None and now - queried_at < _SCORES_AGE:
            return answer
        scores = self.failures.result(partial(spot.placement_scores, self.login, *question), no_scores)
        if scores:
            self.remembered.answers[question] = now, scores
        return scores


def _is_queryable(offer: Offer) -> bool:
    """Regions become parts of URLs: only plausible names are used."""
    plain = offer.region.isascii() and offer.region.isalnum()
    return plain and offer.capacity_type in _RUNNABLE and find_type(offer.instance_type) is not None


def _apply_region_data(offer: Offer, region_data: _AzureRegion) -> Offer:
    return (
        offer
        if region_data.skus is None
        else apply_quotas(apply_restrictions(offer, region_data.skus), region_data.skus, region_data.usages)
    )
