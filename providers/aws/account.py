"""The market as seen by an account, with a login: all regions, spot prices by zone, existing machines, free quota."""

import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from broker.core.errors import BrokerError, LoginMissing, Refused
from broker.core.market.capacity import Quota
from broker.core.market.offers import Availability, CapacityType, Offer, SkippedRow
from broker.core.values.clock import Clock
from providers.aws import holdings, price_list, spot
from providers.aws.login import AwsLogin
from providers.aws.price_list import PriceList
from providers.aws.products import plan_rates
from providers.aws.settings import KEYLESS_REGIONS, NAME, REGIONS, AwsSettings
from providers.failures import Failures
from providers.rows import OfferRows

# EC2's quotas on running machines with accelerators, per region, from Service Quotas; with a login.
#
# They count vCPUs, separately on demand and spot, for groups of families in their names: "Running On-Demand P
# instances", "All P4, P3 and P2 Spot Instance Requests". New accounts have 0 for most of them. Current use is unknown
# here, so the machines that a quota allows are an upper bound.
_NAMES = (
    (re.compile(r"Running On-Demand (.+) instances"), CapacityType.ON_DEMAND),
    (re.compile(r"All (.+) Spot Instance Requests"), CapacityType.SPOT),
)
_SEPARATOR = re.compile(r",\s*|\s+and\s+|,\s*and\s+")
_FAMILY = re.compile(r"[A-Za-z]{1,4}\d{0,2}")
_TYPE = re.compile(r"([a-z]+)(\d*)")
# Families that count as another: gr6 is a G machine with more memory.
_COUNTS_AS = {"gr": "g"}


def read_quotas(login: AwsLogin, region: str) -> Iterator[Quota]:
    """The quotas of one region that are about running machines. Raises what `AwsLogin.rows` raises."""
    for row in login.rows("service-quotas", region, "list_service_quotas", "Quotas", ServiceCode="ec2"):
        name, limit = row.get("QuotaName"), row.get("Value")
        if not isinstance(name, str) or not isinstance(limit, int | float) or not 0 <= limit < 10**9:
            continue
        for pattern, kind in _NAMES:
            if match := pattern.fullmatch(name):
                families = _SEPARATOR.split(match[1])
                if all(_FAMILY.fullmatch(family) for family in families):  # excludes "Standard (A, C, D, …)"
                    lower = tuple(family.lower() for family in families)
                    yield Quota(NAME, region, name, float(limit), "vCPU", lower, kind)


def apply_quotas(offer: Offer, quotas: Iterable[Quota]) -> Offer:
    """The offer under the account's quotas: ``no_quota`` if not even one machine fits, otherwise at most as many
    machines as fit.
    """
    quota = _matching_quota(offer, quotas)
    if quota is None or not offer.cpus:
        return offer
    machines = int(quota.limit // offer.cpus)
    if machines:
        return replace(offer, slots=machines)
    if offer.availability is Availability.UNAVAILABLE:
        return offer
    because = f"quota {quota.name!r}: {quota.limit:g} vCPUs, and this machine has {offer.cpus:g}"
    return replace(offer, availability=Availability.NO_QUOTA, unavailable_because=because, slots=None)


def _matching_quota(offer: Offer, quotas: Iterable[Quota]) -> Quota | None:
    """The quota that counts it; one that names the generation (P5) before one that names the family (P)."""
    parts = _TYPE.match(offer.instance_type)
    if parts is None:
        return None
    family = _COUNTS_AS.get(parts[1], parts[1])
    matches = [
        quota
        for quota in quotas
        if quota.capacity_type is offer.capacity_type
        and quota.region == offer.region
        and (family in quota.families or family + parts[2] in quota.families)
    ]
    return max(matches, key=lambda quota: family + parts[2] in quota.families, default=None)


_MAX_CONCURRENT = 8  # regions or instance types queried concurrently


@dataclass(frozen=True, slots=True)
class _AwsRegion:
    """The data of a region; ``offered`` is None if the query failed."""

    spot: tuple[Offer | SkippedRow, ...]
    held: tuple[Offer | SkippedRow, ...]
    offered: Mapping[str, frozenset[str]] | None
    quotas: tuple[Quota, ...]


@dataclass(frozen=True, slots=True)
class AwsAccount:
    """One query of these instance types in these regions. Failures of a part are collected in ``failures``."""

    login: AwsLogin
    settings: AwsSettings
    clock: Clock
    bulk: PriceList
    failures: Failures
    regions: tuple[str, ...]
    types: tuple[str, ...]

    def offers(self, *, listed: bool, reserved: bool, on_spot: bool) -> OfferRows:
        """Spot offers, held capacity, and list prices on demand and of terms; nothing if the query leaves nothing to
        fetch.
        """
        if not self.types or not self.regions:
            return
        with ThreadPoolExecutor(_MAX_CONCURRENT, "aws") as threads:
            results = threads.map(partial(self._region, reserved=reserved, on_spot=on_spot), self.regions)
            data_by_region = {
                region: region_data
                for region, region_data in zip(self.regions, results, strict=True)
                if region_data is not None
            }
            if on_spot:
                yield from self._spot(data_by_region, threads)
            for region_data in data_by_region.values():
                yield from region_data.held
            if reserved and self.settings.savings_plans:
                rates = plan_rates(self.login, REGIONS[0], self.regions, self.types, self.clock.now())
                for rate in self.failures.until_failure(rates):
                    yield rate if isinstance(rate, SkippedRow) else rate.offer
            if listed:
                for row in self._listed_offers(threads):
                    yield _apply_region_data(row, data_by_region) if isinstance(row, Offer) else row

    def _region(self, region: str, *, reserved: bool, on_spot: bool) -> _AwsRegion | None:
        zones = self.failures.result(partial(spot.zone_ids, self.login, region), None)
        if zones is None:
            return None  # an unreachable service answers no call, and waiting for each would take minutes
        prices: tuple[Offer | SkippedRow, ...] = ()
        if on_spot:
            spot_rows = spot.spot_prices(self.login, region, self.types, self.clock.now(), zones)
            prices = tuple(self.failures.until_failure(spot_rows))
        held: tuple[Offer | SkippedRow, ...] = ()
        if reserved:
            reservations = self.failures.until_failure(holdings.capacity_reservations(self.login, region))
            held = tuple(holdings.reservation_offers(reservations, self.clock.now()))
        offered = self.failures.result(partial(spot.offered_types, self.login, region, self.types), None)
        quotas = tuple(self.failures.until_failure(read_quotas(self.login, region))) if self.settings.quotas else ()
        return _AwsRegion(prices, held, offered, quotas)

    def _spot(self, data_by_region: Mapping[str, _AwsRegion], threads: ThreadPoolExecutor) -> OfferRows:
        advice: list[spot.SpotAdvisorEntry] = []
        for entry in self.failures.until_failure(spot.read_advice(self.settings, self.clock, self.regions)):
            if isinstance(entry, SkippedRow):
                yield entry
            else:
                advice.append(entry)
        advice_by_pool = spot.by_pool(advice)
        scores = (
            self._scores(threads, tuple(data_by_region)) if self.settings.placement_scores and data_by_region else {}
        )
        for region in data_by_region.values():
            for row in spot.with_advice(iter(region.spot), advice_by_pool, scores):
                yield apply_quotas(row, region.quotas) if isinstance(row, Offer) else row

    def _scores(self, threads: ThreadPoolExecutor, regions: tuple[str, ...]) -> spot.Scores:
        no_scores: spot.Scores = {}

        def query_scores(accelerator: str) -> spot.Scores:
            query = partial(spot.placement_scores, self.login, regions[0], regions, accelerator)
            return self.failures.result(query, no_scores)

        return {
            pool: score
            for scores in threads.map(query_scores, spot.accelerators_of(self.types))
            for pool, score in scores.items()
        }

    def _listed_offers(self, threads: ThreadPoolExecutor) -> OfferRows:
        prices = self.settings.prices
        if prices == "list" or (prices == "auto" and "price_list_url" in self.settings.model_fields_set):
            yield from self._bulk()
            return
        now = self.clock.now()
        try:
            first_rows = self._products(self.types[0])
        except (Refused, LoginMissing) as error:
            # Prices are public: without permission for the API, read the list. A failed login is reported as well.
            if prices == "api" or isinstance(error, LoginMissing):
                self.failures.add(error)
            if prices == "auto":
                yield from self._bulk()
            return
        except BrokerError as error:  # the failure is the same for every type
            self.failures.add(error)
            return
        yield from price_list.read_products(first_rows, self.regions, now)
        no_rows: list[object] = []
        for rows in threads.map(
            lambda name: self.failures.result(partial(self._products, name), no_rows), self.types[1:]
        ):
            yield from price_list.read_products(rows, self.regions, now)

    def _products(self, instance_type: str) -> list[object]:
        return list(price_list.product_rows(self.login, self.settings.pricing_region, instance_type))

    def _bulk(self) -> OfferRows:
        """The bulk price lists of the regions in the settings, else of the few regions that are read without a
        login."""
        for region in self.regions:
            if self.settings.regions or region in KEYLESS_REGIONS:
                yield from self.failures.until_failure(self.bulk.offers(region))


def _apply_region_data(offer: Offer, data_by_region: Mapping[str, _AwsRegion]) -> Offer:
    """A listed offer with its region's data: whether the machine exists there, and the quota left."""
    region = data_by_region.get(offer.region)
    if region is None or offer.capacity_type is not CapacityType.ON_DEMAND:
        return offer
    if region.offered is not None and not region.offered.get(offer.instance_type):
        because = "not offered in any zone of this region to this account"
        return replace(offer, availability=Availability.UNAVAILABLE, unavailable_because=because)
    return apply_quotas(offer, region.quotas)
