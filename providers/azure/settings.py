"""The settings ``[providers.azure]``, and values common to all its offers."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from broker.core.market.offers import CapacityType
from providers.http import HttpSettings, Url
from providers.registry import split_commas

NAME = "azure"
PRICES_PATH = "/api/retail/prices"
ENGINE = "skypilot"
PURCHASE_TAG = "gpubroker-purchase"
SUBSCRIPTION = "AZURE_SUBSCRIPTION_ID"  # the variable that names it

# Spot prices move a few times a day, list prices every few weeks; what the account holds changes by the hour.
MAX_AGE = {CapacityType.SPOT: timedelta(hours=6)}
LIST_AGE = timedelta(days=3)
HELD_AGE = timedelta(hours=1)


def _require_tls(url: str) -> str:
    if not url.startswith("https:"):
        raise ValueError("expected a URL with https: a login is sent to it")
    return url


Names = Annotated[tuple[Annotated[str, Field(pattern=r"^[a-z0-9]{3,40}$")], ...], BeforeValidator(split_commas)]
TlsUrl = Annotated[Url, AfterValidator(_require_tls)]


class AzureSettings(HttpSettings):
    """``retail_prices_url``: the price list, or its host. ``management_url``: Azure Resource Manager, for all calls
    that need a login. ``subscription_id``: takes precedence over AZURE_SUBSCRIPTION_ID. ``regions``: the regions to
    query, as a list or with commas; default: all. ``managed_identity``: log in by the identity of this Azure machine.
    ``resource_group``: the group in which capacity reservations are made. ``quotas``, ``placement_scores``,
    ``eviction_rates``: whether to query them."""

    retail_prices_url: Url = f"https://prices.azure.com{PRICES_PATH}"
    management_url: TlsUrl = "https://management.azure.com"
    subscription_id: str | None = Field(default=None, pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
    regions: Names = ()
    managed_identity: bool = False
    resource_group: str = Field(default="gpubroker", pattern=r"^[\w.()-]{1,90}$")
    quotas: bool = True
    placement_scores: bool = True
    eviction_rates: bool = True

    @property
    def retail_prices(self) -> str:
        """The URL of the price list."""
        url = self.retail_prices_url
        return url if urlsplit(url).path else url + PRICES_PATH


AUTHORITY = "AZURE_AUTHORITY_HOST"  # azure-identity's own variable
