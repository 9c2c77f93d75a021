"""The regions of a subscription and the names of their zones; with a login.

A zone's number ("1") means another place in every subscription. So zones are identified by their physical name
(``eastus-az3``), which Azure lists with the regions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.core.errors import Malformed
from providers.azure.fields import nested_object, objects
from providers.azure.login import AzureLogin
from providers.azure.settings import NAME

VERSION = "2022-12-01"


@dataclass(frozen=True, slots=True)
class AzureLocations:
    """``regions``: those with machines in them. ``zones``: (region, zone's number) to physical name."""

    regions: tuple[str, ...]
    zones: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def zone(self, region: str, number: object) -> str | None:
        """The physical name of a zone; region and number if Azure does not give it; None for no zone."""
        if not isinstance(number, str) or not number.strip():
            return None
        return self.zones.get((region, number), f"{region}-{number.strip()}")


def read_locations(login: AzureLogin) -> AzureLocations:
    """Raises what `AzureLogin.call` raises, and `Malformed` for an answer of another shape."""
    path = f"/subscriptions/{login.subscription}/locations"
    answer = login.asked("locations", "GET", path, version=VERSION)
    rows = answer.get("value") if isinstance(answer, Mapping) else None
    if not isinstance(rows, list):
        raise Malformed("no regions in the answer", where=f"{NAME}/locations")
    regions, zones = [], {}
    for row in objects(rows):
        region = row.get("name")
        if not isinstance(region, str) or not (region.isascii() and region.isalnum()):
            continue
        if nested_object(row, "metadata").get("regionType", "Physical") == "Physical":
            regions.append(region.lower())
        for pair in objects(row.get("availabilityZoneMappings")):
            logical, physical = pair.get("logicalZone"), pair.get("physicalZone")
            if isinstance(logical, str) and isinstance(physical, str) and logical and physical:
                zones[region.lower(), logical] = physical
    return AzureLocations(tuple(dict.fromkeys(regions)), zones)
