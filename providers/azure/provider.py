"""The Azure provider: which source is queried for what, and how failures are combined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, ClassVar

from broker.core.errors import MissingExtra, NoLogin
from broker.core.market.capacity import Charge, Instance, Reservation
from broker.core.market.offers import CapacityType, Offer, OfferQuery
from broker.core.purchases.quotes import PurchaseProduct
from broker.core.purchases.selling import SellsProduct
from broker.core.values.clock import Clock
from providers import shops
from providers.azure import discounts, holdings, instances
from providers.azure.account import AzureAccount, RememberedScores
from providers.azure.charges import read_charges
from providers.azure.locations import read_locations
from providers.azure.login import AUTHORITY, EXTRA, HOW, AzureLogin, authority, has_sdk, sign_of_login, subscription_of
from providers.azure.retail import RetailPrices
from providers.azure.settings import NAME, SUBSCRIPTION, AzureSettings
from providers.azure.shop.counter import AzureCounter
from providers.failures import Failures
from providers.http import endpoint
from providers.rows import Found, distinct

_AT_ONCE = 8  # regions queried concurrently


class Azure:
    """Azure's GPU machines in every region.

    Without a login: list prices in USD on demand, spot, and of terms. With one also machines closed to the
    subscription, remaining quotas, spot placement scores and eviction rates, and held capacity.
    """

    name = NAME
    Settings: ClassVar = AzureSettings

    def __init__(self, *, clock: Clock, settings: AzureSettings | None = None, login: AzureLogin | None = None) -> None:
        """``login``: an existing login, for tests."""
        self._clock = clock
        self._settings = settings or AzureSettings()
        self._given = login
        self._login: AzureLogin | None = None
        self._scores = RememberedScores()

    def offers(self, query: OfferQuery) -> Found:
        """The offers of every source. A failure, also of a login, does not stop the rest: all are raised at the end as
        one error.
        """
        if query.providers and not any(fnmatchcase(NAME, pattern) for pattern in query.providers):
            return
        failures = Failures()
        yield from distinct(self._offers(query, failures))
        if failures.about_login:
            self._login = None
        failures.raise_any()

    def _offers(self, query: OfferQuery, failures: Failures) -> Found:
        listed = failures.kept(RetailPrices(self._settings, self._clock).offers())
        login = failures.kept_or_none(self._find_login)
        if login is None:
            yield from (row for row in listed if not isinstance(row, Offer) or self._wanted(row, query))
            return
        account = AzureAccount(login, self._settings, self._clock, failures, self._scores)
        offers = []
        for row in listed:
            if not isinstance(row, Offer):
                yield row
            elif self._wanted(row, query):
                offers.append(row)
        yield from account.seen(offers)
        if not query.capacity_types or CapacityType.RESERVED in query.capacity_types:
            for row in account.held():
                if not isinstance(row, Offer) or self._wanted(row, query):
                    yield row

    def _wanted(self, offer: Offer, query: OfferQuery) -> bool:
        """Whether settings and query include the offer, by place, accelerator and capacity type; to save calls."""
        return (
            (not self._settings.regions or offer.region in self._settings.regions)
            and (not query.regions or any(fnmatchcase(offer.region, pattern) for pattern in query.regions))
            and (not query.accelerators or offer.accelerator in query.accelerators)
            and (not query.capacity_types or offer.capacity_type in query.capacity_types)
        )

    # Abilities beside offers (`broker.core.ports`). All need a login.

    def reservations(self) -> Iterator[Reservation]:
        """See `HasReservations`: capacity reservations and blocks of machines with accelerators, reservations and
        savings plans. Missing permission for some of them does not stop the others."""
        login, failures = self._need_login(), Failures()
        locations = failures.kept_or_none(partial(read_locations, login))
        if locations is not None:
            yield from failures.kept(holdings.capacity_reservations(login, locations))
        yield from failures.kept(discounts.reserved_instances(login, self._clock.now()))
        yield from failures.kept(discounts.savings_plans(login, self._clock.now()))
        failures.raise_any()

    @property
    def products(self) -> Mapping[PurchaseProduct, SellsProduct]:
        listed = RetailPrices(self._settings, self._clock).offers
        return shops.products(NAME, AzureCounter(self._need_login, listed, self._settings, self._clock))

    def instances(self) -> Iterator[Instance]:
        login = self._need_login()
        yield from instances.tagged(login, read_locations(login))

    def terminate(self, id: str) -> None:
        instances.terminate(self._need_login(), id)

    def charges(self, since: datetime) -> Iterator[Charge]:
        """See `HasCharges`: by day and tag."""
        yield from read_charges(self._need_login(), since, self._clock.now())

    def _find_login(self) -> AzureLogin | None:
        """The login, kept between polls while its source is unchanged: some sources start a program for each token."""
        sign = (subscription_of(self._settings), sign_of_login(self._settings))
        if self._given is None and (self._login is None or self._login.sign != sign):
            self._login = AzureLogin.find(self._settings, self._clock)
        login = self._given or self._login
        if login is not None:
            login.begin()
        return login

    def _need_login(self) -> AzureLogin:
        """Raises `MissingExtra` without Azure's SDK, `NoLogin` where no subscription is named, and `LoginMissing` for
        a login that cannot be used."""
        login = self._find_login()
        if login is not None:
            return login
        if not has_sdk():
            raise MissingExtra("azure", "a login to Azure")
        raise NoLogin(f"no login to Azure: {SUBSCRIPTION} is not set", where=NAME, hint=HOW)

    def describe_setup(self) -> Mapping[str, Any]:
        settings = self._settings
        subscription, sign = subscription_of(settings), sign_of_login(settings)
        return {
            "endpoints": {
                "retail prices": endpoint(NAME, "retail_prices_url", settings.retail_prices),
                "management": endpoint(NAME, "management_url", settings.management_url),
                "authority": {"url": authority(), "setting": AUTHORITY},
            },
            "logins": {
                "azure": {
                    "found": bool(subscription and sign) and has_sdk(),
                    "where": sign if subscription else "",
                    "how": HOW if has_sdk() else f"{EXTRA}, then {HOW}",
                    "adds": "closed machines, quotas, spot scores and eviction rates, held capacity, machines, charges",
                }
            },
        }
