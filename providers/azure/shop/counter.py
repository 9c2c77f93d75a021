"""Shared by the products of Azure: the login, the list prices, the time, and reading of amounts."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from broker.core.errors import InvalidInput, Malformed
from broker.core.market.offers import CapacityType, Offer, SkippedRow
from broker.core.purchases.quotes import PurchaseProduct, QuoteRequest, Undo
from broker.core.values.clock import Clock
from broker.core.values.money import Money
from providers.azure.fields import nested_object
from providers.azure.login import AzureLogin
from providers.azure.machines import machine
from providers.azure.settings import NAME, AzureSettings

YEARS = {timedelta(days=365): ("P1Y", 12), timedelta(days=3 * 365): ("P3Y", 36)}


@dataclass(frozen=True, slots=True)
class AzureCounter:
    """``login`` raises `NoLogin` without one; ``listed``: the offers of the price list."""

    login: Callable[[], AzureLogin]
    listed: Callable[[], Iterable[Offer | SkippedRow]]
    settings: AzureSettings
    clock: Clock

    def now(self) -> datetime:
        """The time in whole seconds (UTC)."""
        return self.clock.now().replace(microsecond=0)

    def priced_offers(
        self, request: QuoteRequest, kind: CapacityType, source: str, months: int | None = None
    ) -> Iterator[Offer]:
        """The offers of the price list that the request may mean, with a price."""
        for row in self.listed():
            if isinstance(row, SkippedRow) or row.price is None or row.capacity_type is not kind:
                continue
            if row.source == source and row.term_months == months and self._is_meant(row, request):
                yield row

    def _is_meant(self, offer: Offer, request: QuoteRequest) -> bool:
        if request.region is not None and offer.region != request.region:
            return False
        if self.settings.regions and offer.region not in self.settings.regions:
            return False
        if request.instance_type is not None:
            return offer.instance_type == request.instance_type
        return (offer.accelerator, offer.count) == (request.accelerator, request.count)

    def quote(self, request: QuoteRequest, product: PurchaseProduct, region: str, instance_type: str) -> dict[str, Any]:
        """The fields of a quote that all kinds have in common, from now on."""
        shape, now = machine(instance_type), self.now()
        return {
            "product": product,
            "provider": NAME,
            "offering": f"{instance_type}/{region}",
            "region": region,
            "instance_type": instance_type,
            "accelerator": shape.gpu,
            "count": shape.n,
            "machines": request.machines,
            "starts": now,
            "ends": now + request.length,
            "undo": Undo.NONE,
            "quoted_at": now,
            "upfront": Money.ZERO,
            "at_once": True,
        }


def check_years(length: timedelta, product: str) -> None:
    """Raises `InvalidInput` for a term other than one or three years."""
    if length not in YEARS:
        raise InvalidInput(f"Azure sells {product} for 1 or 3 years; got {length}", where="--for", hint="--for 1y")


def reject_later_start(request: QuoteRequest, product: str) -> None:
    """Raises `InvalidInput` for a request that begins later."""
    if request.earliest is not None:
        raise InvalidInput(f"{product} begins with its order at Azure", where="--from", hint="leave it out")


def dollars(row: Mapping[str, Any], key: str) -> Money:
    """An amount in USD. Raises `Malformed` for another currency or none."""
    value = nested_object(row, key)
    amount, currency = value.get("amount"), value.get("currencyCode")
    if currency != "USD" or isinstance(amount, bool) or not isinstance(amount, int | Decimal):
        raise Malformed(f"{key}: expected an amount in USD, got {amount!r} {currency!r}", where=NAME)
    return Money.usd(Decimal(amount))
