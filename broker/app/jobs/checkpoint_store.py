"""The location of run folders and checkpoints as plans use it, and the price of storing data there."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from broker.placement.pricing.data_cost import KeepingRate, keeping_rate

_CLOUDS = {
    "s3": "aws",
    "s3a": "aws",
    "gs": "gcp",
    "az": "azure",
    "adl": "azure",
    "azure": "azure",
    "abfs": "azure",
    "abfss": "azure",
}
# If one of these names another address, another service that speaks the same protocol is used.
_ADDRESSES = {
    "aws": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"),
    "gcp": ("GOOGLE_BASE_URL",),
    "azure": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}


def stored(
    runs_url: str, location: str | None, environment: Mapping[str, str]
) -> tuple[str | None, KeepingRate | None]:
    """The location of the run store as ``provider/region``, and its storage price; each None if unknown, both on a
    local disk. ``location``: the setting ``runs_location``."""
    cloud = _CLOUDS.get(urlsplit(runs_url).scheme)
    if location is not None:
        return location, keeping_rate(location)
    if cloud is None or any(environment.get(name) for name in _ADDRESSES[cloud]):
        return None, None
    region = (environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")) if cloud == "aws" else None
    return (f"{cloud}/{region}" if region else None), keeping_rate(f"{cloud}/{region or '?'}")
