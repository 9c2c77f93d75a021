"""The Azure provider: which source is asked for what, and what happens when one of them fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from broker.core.clock import Clock
from broker.core.offers import OfferQuery
from providers.azure.retail import RetailPrices
from providers.azure.settings import NAME, AzureSettings
from providers.http import endpoint
from providers.rows import Found


class Azure:
    """Azure's GPU machines in every region, at list prices in USD."""

    name = NAME
    Settings: ClassVar = AzureSettings

    def __init__(self, *, clock: Clock, settings: AzureSettings | None = None) -> None:
        self._clock = clock
        self._settings = settings or AzureSettings()

    def offers(self, query: OfferQuery) -> Found:
        """All of them, whatever the query."""
        yield from RetailPrices(self._settings, self._clock).offers()

    def describe_setup(self) -> Mapping[str, Any]:
        """See `broker.app.doctor.DescribesSetup`."""
        url = self._settings.retail_prices_url
        return {"endpoints": {"retail prices": endpoint(self.name, "retail_prices_url", url)}, "logins": {}}
