"""The market as seen by a subscription, with a login: restricted machines, remaining quotas, spot signals, and held
capacity. Extends the retail prices and replaces none.

Azure closes a machine to a subscription in a whole region or in some of its zones (Resource SKUs). Offers here are per
region, so only a closed region makes an offer unavailable. An open machine may still have no capacity. A region's list
has about 2 MB, so its rows are read without the SDK's models.

Azure's data on spot machines: placement scores and eviction rates; with a login.

Scores come from Compute's ``placementScores/spot/generate`` (Microsoft Learn, "Spot Placement Score"; 8 regions and 5
sizes a query), asked through the pipeline of azure-mgmt-compute, which has no method for it: the package that has
one, azure-mgmt-computerecommender, is a beta. They need the "Compute Recommendations Role"; the Reader role is not
enough. Eviction rates come from Resource Graph's table SpotResources, which answers only where no subscription is
named. They are bands of the probability of an interruption within the next hour (Microsoft Learn, "Use Azure Spot
Virtual Machines"); here that becomes ``-ln(1 - p)`` an hour, with p the upper edge of the band, and for the open one
halfway to all.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from broker.core.errors import Malformed
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.clock import Clock
from providers.azure import holdings
from providers.azure.errors import NotPermitted
from providers.azure.fields import count, nested_object, objects, read_locations, texts
from providers.azure.login import AzureLogin
from providers.azure.machines import accelerated_types, find_type
from providers.azure.settings import NAME, AzureSettings
from providers.failures import Failures
from providers.http import setting
from providers.rows import OfferRows

SCORES_VERSION = "2025-06-05"
GRAPH_VERSION = "2022-10-01"
GRAPH = "/providers/Microsoft.ResourceGraph/resources"

_REGIONS_PER_QUERY, _SIZES_PER_QUERY = 8, 5
# The thirds of 0 to 1, by their middles.
_SCORES = {"high": 5 / 6, "medium": 1 / 2, "low": 1 / 6}
_CLOSED = "restrictedskunotavailable"
_ROLE = (
    "the login needs the role 'Compute Recommendations Role' for spot placement scores; "
    f"{setting(NAME, 'placement_scores')}=false does without them"
)
_BAND = re.compile(r"(\d{1,2})-(\d{1,3})|(\d{1,2})\+")
_ROWS_PER_PAGE, _MAX_PAGES = 1000, 100


@dataclass(frozen=True, slots=True)
class SpotScore:
    """The chance of getting one spot machine. ``score``: 0 to 1, None where Azure has no data. ``closed``: closed to
    this subscription. ``quota``: whether the quota has room for it, None if unknown."""

    score: float | None
    closed: bool = False
    quota: bool | None = None


Scores = Mapping[tuple[str, str], SpotScore]
Evictions = Mapping[tuple[str, str], float]


def questions(pools: Iterable[tuple[str, str]]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The queries (regions, sizes) that together cover each of ``pools`` (region, instance type)."""
    regions_of: defaultdict[str, set[str]] = defaultdict(set)
    for region, instance_type in pools:
        regions_of[instance_type].add(region)
    types = [name for name in accelerated_types() if name in regions_of]
    for first in range(0, len(types), _SIZES_PER_QUERY):
        sizes = types[first : first + _SIZES_PER_QUERY]
        regions = sorted(set().union(*(regions_of[size] for size in sizes)))
        for start in range(0, len(regions), _REGIONS_PER_QUERY):
            yield tuple(regions[start : start + _REGIONS_PER_QUERY]), tuple(sizes)


def placement_scores(login: AzureLogin, regions: tuple[str, ...], sizes: tuple[str, ...]) -> Scores:
    """The scores of one machine of these sizes in each of these regions, whichever zone. Raises what `AzureLogin.call`
    raises."""
    where = f"{regions[0]}: spot placement scores"
    path = f"/subscriptions/{login.subscription}/providers/Microsoft.Compute/locations/{regions[0]}"
    body = {
        "desiredLocations": list(regions),
        "desiredSizes": [{"sku": size} for size in sizes],
        "desiredCount": 1,
        "availabilityZones": False,
    }
    try:
        answer = login.request(where, "POST", f"{path}/placementScores/spot/generate", body, version=SCORES_VERSION)
    except NotPermitted as error:
        error.hint = _ROLE
        raise
    return scores_in(answer)


def scores_in(answer: object) -> Scores:
    """The scores in Azure's answer; of the zones of a region, if separate, the best. Raises `Malformed` for an answer
    of another shape."""
    rows = answer.get("placementScores") if isinstance(answer, Mapping) else None
    if not isinstance(rows, list):
        raise Malformed("no placementScores in the answer", where=f"{NAME}: spot placement scores")
    scores: dict[tuple[str, str], SpotScore] = {}
    for row in rows:
        size = find_type(str(row.get("sku"))) if isinstance(row, Mapping) else None
        region, word = (row.get("region"), row.get("score")) if size else (None, None)
        if size is None or not isinstance(region, str) or not isinstance(word, str):
            continue
        quota = row.get("isQuotaAvailable")
        score = SpotScore(
            _SCORES.get(word.lower()), word.lower() == _CLOSED, quota if isinstance(quota, bool) else None
        )
        pool = (region.lower(), size)
        scores[pool] = max(scores.get(pool, score), score, key=_rank)
    return scores


def _rank(score: SpotScore) -> tuple[bool, float, bool]:
    return not score.closed, score.score or 0.0, score.quota is not False


def eviction_rates(login: AzureLogin) -> Evictions:
    """Interruptions per machine and hour, by (region, instance type). Raises what `AzureLogin.call` raises."""
    where = "spot eviction rates"
    names = ", ".join(f"'{name.lower()}'" for name in accelerated_types())
    query = (
        "SpotResources | where type =~ 'microsoft.compute/skuspotevictionrate/location' "
        f"| where sku.name in~ ({names}) "
        "| project id, skuName = tostring(sku.name), location, spotEvictionRate = tostring(properties.evictionRate) "
        "| order by id asc"
    )
    options: dict[str, Any] = {"resultFormat": "objectArray", "$top": _ROWS_PER_PAGE}
    rates: dict[tuple[str, str], float] = {}
    seen: set[str] = set()
    for _ in range(_MAX_PAGES):
        answer = login.request(where, "POST", GRAPH, {"query": query, "options": options}, version=GRAPH_VERSION)
        rows = answer.get("data") if isinstance(answer, Mapping) else None
        if not isinstance(rows, list):
            raise Malformed("no data in the answer", where=f"{NAME}/{where}")
        rates.update(_rates_in(rows))
        token = answer.get("$skipToken")
        if not isinstance(token, str) or not token:
            return rates
        if token in seen:
            break
        seen.add(token)
        options = {**options, "$skipToken": token}
    raise Malformed("endless pages: a page token was repeated", where=f"{NAME}/{where}")


def _rates_in(rows: Iterable[object]) -> Iterator[tuple[tuple[str, str], float]]:
    for row in rows:
        if not isinstance(row, Mapping):
            continue
        size, region, band = find_type(str(row.get("skuName"))), row.get("location"), row.get("spotEvictionRate")
        rate = rate_per_hour(band) if isinstance(band, str) else None
        if size and isinstance(region, str) and rate is not None:
            yield (region.lower(), size), rate


def rate_per_hour(band: str) -> float | None:
    """Interruptions an hour, from a band in percent (``5-10``, ``20+``); None for other text."""
    match = _BAND.fullmatch(band.strip())
    if match is None:
        return None
    upper = (int(match[3]) + 100) / 2 if match[3] else int(match[2])
    return -math.log1p(-upper / 100) if 0 < upper < 100 else None


def with_signals(offer: Offer, scores: Scores, evictions: Evictions) -> Offer:
    """The spot offer with the scores and rates of its pool."""
    pool = (offer.region, offer.instance_type)
    offer = replace(offer, interruption_rate=evictions.get(pool, offer.interruption_rate))
    score = scores.get(pool)
    if score is None:
        return offer
    offer = replace(offer, score=score.score)
    if offer.availability in (Availability.UNAVAILABLE, Availability.NO_QUOTA):
        return offer
    if score.closed:
        because = "closed to this subscription as spot (RestrictedSkuNotAvailable)"
        return replace(offer, availability=Availability.UNAVAILABLE, unavailable_because=because)
    if score.quota is False:
        because = "the spot quota leaves no room for one (placement score)"
        return replace(offer, availability=Availability.NO_QUOTA, unavailable_because=because, slots=None)
    return offer


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

    answers: dict[object, tuple[datetime, Scores]] = field(default_factory=dict)


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

    def held_capacity(self) -> OfferRows:
        """Held capacity as offers."""
        locations = self.failures.result(partial(read_locations, self.login), None)
        if locations is None:
            return  # without them zones would be named differently than in other polls
        reservations = self.failures.until_failure(holdings.capacity_reservations(self.login, locations))
        yield from holdings.reservation_offers(reservations, self.clock.now())

    def with_account_data(self, offers: Iterable[Offer]) -> OfferRows:
        """The offers, with the subscription's data on each."""
        offers = list(offers)
        queried = [offer for offer in offers if _is_queryable(offer)]
        on_spot = [offer for offer in queried if offer.capacity_type is CapacityType.SPOT]
        regions = dict.fromkeys(offer.region for offer in queried)
        with ThreadPoolExecutor(_MAX_CONCURRENT, "azure") as threads:
            region_data = dict(zip(regions, threads.map(self._region, regions), strict=True))
            scores = self._scores(threads, on_spot)
        no_evictions: Evictions = {}
        wants_evictions = on_spot and self.settings.eviction_rates
        evictions = (
            self.failures.result(partial(eviction_rates, self.login), no_evictions) if wants_evictions else no_evictions
        )
        queried_ids = {offer.id for offer in queried}
        for offer in offers:
            if offer.id in queried_ids:
                offer = _apply_region_data(offer, region_data[offer.region])
                if offer.capacity_type is CapacityType.SPOT:
                    offer = with_signals(offer, scores, evictions)
            yield offer

    def _region(self, region: str) -> _AzureRegion:
        no_usages: Mapping[str, AzureQuota] = {}
        skus = self.failures.result(partial(read_skus, self.login, region), None)
        if skus is None or not self.settings.quotas:
            return _AzureRegion(skus, no_usages)
        return _AzureRegion(skus, self.failures.result(partial(read_usages, self.login, region), no_usages))

    def _scores(self, threads: ThreadPoolExecutor, offers: list[Offer]) -> Scores:
        if not self.settings.placement_scores:
            return {}
        asked = list(questions((offer.region, offer.instance_type) for offer in offers))
        return {pool: score for scores in threads.map(self._answer, asked) for pool, score in scores.items()}

    def _answer(self, question: tuple[tuple[str, ...], tuple[str, ...]]) -> Scores:
        now = self.clock.now()
        no_scores: Scores = {}
        queried_at, answer = self.remembered.answers.get(question, (now, None))
        if answer is not None and now - queried_at < _SCORES_AGE:
            return answer
        scores = self.failures.result(partial(placement_scores, self.login, *question), no_scores)
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
