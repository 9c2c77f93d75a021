"""The machines that the subscription may use in each region (Resource SKUs); with a login.

Azure closes a machine to a subscription in a whole region or in some of its zones. Offers here are per region, so only
a closed region makes an offer unavailable. An open machine may still have no capacity. A region's list has about 2 MB,
so its rows are read without the SDK's models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from broker.core.market.offers import Availability, Offer
from providers.azure.fields import nested_object, objects, texts
from providers.azure.login import AzureLogin
from providers.azure.machines import known_type

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
        instance_type = known_type(str(row.get("name")))
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
