"""Places of a provider in which an ordinary account cannot start machines: government and national clouds with logins
of their own, and zones outside its regions that require admission. Their prices are in public lists.

Names: the providers' lists of regions (AWS partitions and Local Zones, Azure geographies and extended zones, OCI
realms, Google Cloud Dedicated), read in November 2026.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain

from broker.core.market.offers import Offer
from broker.core.values.provider_names import is_provider_name, provider_name

_OWN_CLOUD = "a cloud with logins of its own"
_OWN_ZONE = "a zone outside the regions, which an account has to be admitted to"
_CLOSED_PLACES = {
    "aws": (
        (r"us-gov-.*|us-isof?b?-.*|eu-isoe-.*|eusc-.*|cn-.*", _OWN_CLOUD),
        (r"[a-z]+-[a-z]+-\d-(wl\d-)?[a-z]{3}-(wlz-)?\d[a-z]?|[a-z]+\d-([a-z]{3}\d-az\d|wl\d-.*)", _OWN_ZONE),
    ),
    "azure": (
        (r"us(gov|dod|nat|sec).*|china.*|germany(central|northeast)|delos.*|bleu.*", _OWN_CLOUD),
        (r"(att|microsoft|vzw|sgx)[a-z]+\d?|losangeles|perth|portland|jioindia.*|.*euap", _OWN_ZONE),
    ),
    "gcp": ((r"u-.*", _OWN_CLOUD),),
    "oci": (
        (r"[a-z]+-(gov|dcc)-.*|us-(langley|luke|westjordan|somerset|thames)-.*|us-ashburn-2", _OWN_CLOUD),
        (r"eu-(frankfurt|madrid)-2|eu-(jovanovac|crissier)-.*|me-abudhabi-[234]|me-alain-.*", _OWN_CLOUD),
        (r"ap-(chiyoda|ibaraki|hobsonville|suwon)-.*|ap-(seoul|chuncheon)-2", _OWN_CLOUD),
    ),
}


@lru_cache(maxsize=4096)
def closed_reason(provider: str, *places: str | None) -> str:
    """Why an ordinary account of the provider cannot start machines in one of these regions or zones; empty if it
    can."""
    for place in filter(None, places):
        for pattern, reason in _CLOSED_PLACES.get(provider, ()):
            if re.fullmatch(pattern, place):
                return f"{place} is {reason}"
    return ""


def drop_engine_if_closed(offer: Offer) -> Offer:
    """The offer, without an engine if it is for sale in a place that is closed to ordinary accounts."""
    if offer.engine is None or offer.may_be_free():
        return offer
    reason = closed_reason(offer.provider, offer.region, offer.zone)
    return replace(offer, engine=None, unavailable_because=offer.unavailable_because or reason) if reason else offer


# The regions within, and those that are named alike and lie beyond: London, Zurich and Jovanovac lie in regions that
# are called European.
TERRITORIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "eu": (
        ("eu-*", "eu_*", "eusc-*", "eur-*", "europe-*", "*europe", "france*", "germany*", "italy*", "poland*", "spain*",
         "sweden*", "finland*", "austria*", "belgium*", "denmark*", "fin-*", "fi-*", "de-*", "fr-*", "nl-*", "es-*",
         "it-*", "se-*", "ie-*", "pl-*", "cz-*", "ro-*", "bg-*", "eu"),
        ("eu-west-2", "eu-central-2", "europe-west2", "europe-west6", "*uk*", "*switzerland*", "*norway*", "eu*-no-*",
         "eu*-is-*", "*iceland*", "*-gb-*", "eu-zurich-*", "eu-dcc-zurich-*", "eu-crissier-*", "eu-jovanovac-*"),
    ),
    "us": (
        ("us-*", "us_*", "us", "usgov*", "usdod*", "*eastus*", "*westus*", "*centralus*", "northamerica-us*",
         "na-us-*"),
        (),
    ),
}  # fmt: skip
_ELSEWHERE = (
    "ap-*", "apac*", "asia-*", "*asia", "oc-*", "sea-sg-*", "australia*", "newzealand*", "japan*", "korea*", "taiwan*",
    "india-*", "*india", "jioindia*", "indonesia*", "malaysia*", "china*", "cn-*", "jp-*", "kr-*", "sg-*", "canada*",
    "ca-central*", "ca-west*", "ca-montreal*", "ca-toronto*", "ca-mtl*", "northamerica-northeast*",
    "northamerica-south*", "mx-*", "mexico*", "sa-*", "southamerica-*", "brazil*", "chile*", "me-*", "il-*", "israel*",
    "uae*", "qatar*", "af-*", "africa-*", "southafrica*", "ice-*", "gb-*", "ch-*", "no-*", "is-*",
)  # fmt: skip


# Providers whose regions are clusters, partitions and sites, named by people: `it-cluster` need not be in Italy.
_NAMED_BY_PEOPLE = ("kubernetes", "owned", "sandbox", "slurm")


def has_public_regions(provider: str) -> bool:
    """Whether the names of the provider's regions tell where they are."""
    return is_provider_name(provider) and provider_name(provider) not in _NAMED_BY_PEOPLE


@lru_cache(maxsize=4096)
def lies_in(territory: str, location: str) -> bool | None:
    """Whether ``provider/region`` lies in a territory; None if that is not known. Only the name of a public region of a
    provider that gpubroker reads proves where it is."""
    provider, _, region = location.lower().rpartition("/")
    if not has_public_regions(provider):
        return None

    def matches_any(patterns: Iterable[str]) -> bool:
        return any(fnmatchcase(region, pattern) for pattern in patterns)

    within, beyond = TERRITORIES[territory]
    if matches_any(within) and not matches_any(beyond):
        return True
    other_territories = (patterns for name, (patterns, _) in TERRITORIES.items() if name != territory)
    return False if matches_any((*beyond, *_ELSEWHERE, *chain(*other_territories))) else None


def territory_named(pattern: str) -> str | None:
    """The territory that a pattern of regions names for every provider: ``eu``, ``eu-*``, ``*/europe-*`` name the EU;
    ``aws/eu-*`` and ``eu-west-*`` do not."""
    name = pattern.lower().strip("*/-_")
    return name if name in TERRITORIES else "eu" if name == "europe" else None
