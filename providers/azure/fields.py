"""Fields of Azure's JSON, which may be missing or invalid; one bad field must not lose the other rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from broker.core.errors import Malformed
from providers.azure.login import AzureLogin
from providers.azure.settings import NAME


def nested_object(row: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The object at the end of the path; an empty one if there is none."""
    value: Any = row
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def texts(values: object) -> Iterator[str]:
    yield from (value for value in (values if isinstance(values, list) else ()) if isinstance(value, str))


def objects(values: object) -> Iterator[Mapping[str, Any]]:
    yield from (value for value in (values if isinstance(values, list) else ()) if isinstance(value, Mapping))


def count(value: object) -> int | None:
    """A whole number from 0 up, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else None


def region_of(row: Mapping[str, Any]) -> str:
    """The region a resource is in, as prices name it; Azure writes ``East US`` as well."""
    return str(row.get("location") or "").replace(" ", "").lower()


def utc(time: object) -> datetime | None:
    """A time or a day; a day, and a time without a zone, is UTC."""
    try:
        parsed = datetime.fromisoformat(time) if isinstance(time, str) else None
        if parsed is None:
            return None
        return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def parts_of(id: object) -> Mapping[str, str]:
    """The names in an Azure Resource Manager id, by the (lower case) kind before each; empty if it is not an id."""
    parts = id.split("/")[1:] if isinstance(id, str) else []
    return {kind.lower(): value for kind, value in zip(parts[::2], parts[1::2], strict=False)}


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
    answer = login.request("locations", "GET", path, version=VERSION)
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
