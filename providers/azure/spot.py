"""Azure's data on spot machines: placement scores and eviction rates; with a login.

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
from dataclasses import dataclass, replace
from typing import Any

from broker.core.errors import Malformed
from broker.core.market.offers import Availability, Offer
from providers.azure.errors import NotPermitted
from providers.azure.login import AzureLogin
from providers.azure.machines import accelerated_types, find_type
from providers.azure.settings import NAME
from providers.http import setting

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
        answer = login.asked(where, "POST", f"{path}/placementScores/spot/generate", body, version=SCORES_VERSION)
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
        answer = login.asked(where, "POST", GRAPH, {"query": query, "options": options}, version=GRAPH_VERSION)
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
