"""The Azure provider: which source is queried for what, and how failures are combined."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, ClassVar

from broker.core.errors import BrokerError, MissingExtra, NoLogin, Refused
from broker.core.extras import install_command
from broker.core.market.capacity import STORE_TAG, TAG, Charge, Instance, Reservation
from broker.core.market.offers import CapacityType, Offer, OfferQuery
from broker.core.purchases.purchases import is_purchase
from broker.core.purchases.quotes import PurchaseProduct, SellsProduct
from broker.core.values.clock import Clock
from providers import shops
from providers.azure import holdings
from providers.azure.account import AzureAccount, ScoreCache
from providers.azure.charges import read_charges
from providers.azure.errors import NotFound, NotPermitted
from providers.azure.fields import (
    AzureLocations,
    count,
    nested_object,
    objects,
    parts_of,
    read_locations,
    region_of,
    texts,
    utc,
)
from providers.azure.login import LOGIN_HINT, AzureLogin, authority, has_sdk, login_source, subscription_of
from providers.azure.machines import find_type
from providers.azure.retail import RetailPrices
from providers.azure.settings import AUTHORITY, NAME, SUBSCRIPTION, AzureSettings
from providers.azure.shop.counter import AzureCounter
from providers.failures import Failures
from providers.http import endpoint
from providers.rows import OfferRows, distinct

# Machines of the subscription with gpubroker's tag, and their deletion; with a login.
#
# Whatever starts machines on Azure for gpubroker sets the tags ``gpubroker`` (the attempt's key) and ``gpubroker-
# store`` (the id of the requesting store). A machine stopped from inside the guest is billed until it is deallocated or
# deleted (Microsoft Learn, "States and billing status of Azure Virtual Machines"). Disks, addresses and network cards
# end with a machine if they were created with ``deleteOption: Delete``; others remain and cost money.
_NOT_BILLED = ("creating", "deallocating", "deallocated")


def tagged_machines(login: AzureLogin, locations: AzureLocations) -> Iterator[Instance]:
    """Tagged machines of all regions; Azure does not list those of uniform scale sets. One whose state cannot be read
    is reported as ``unknown``, and billed. Raises what `AzureLogin.rows` raises, at the end.
    """
    failures = Failures()
    rows = login.rows("virtual machines", lambda client: client.virtual_machines.list_all())
    for row in failures.until_failure(rows):
        key, names = nested_object(row, "tags").get(TAG), parts_of(row.get("id"))
        resource_group, machine_name = names.get("resourcegroups"), names.get("virtualmachines")
        if not isinstance(key, str) or not resource_group or not machine_name:
            continue
        state = failures.result(partial(_state, login, resource_group, machine_name, row), "unknown")
        if state:
            yield _instance(row, key, state, locations)
    failures.raise_any()


def _state(login: AzureLogin, resource_group: str, machine_name: str, row: Mapping[str, Any]) -> str:
    """Azure's state of the machine; empty if it has gone since it was listed."""
    try:
        instance_view = login.call(
            f"{machine_name}: instance view",
            lambda client: client.virtual_machines.instance_view(resource_group, machine_name),
        )
    except NotFound:
        return ""
    codes = [code for status in objects(instance_view.get("statuses")) for code in texts([status.get("code")])]
    power = [code.partition("/")[2] for code in codes if code.startswith("PowerState/")]
    provisioning = nested_object(row, "properties").get("provisioningState")
    return (power[0] if power else str(provisioning or "unknown")).lower()


def _instance(row: Mapping[str, Any], key: str, state: str, locations: AzureLocations) -> Instance:
    properties, zones = nested_object(row, "properties"), list(texts(row.get("zones")))
    size, region = str(nested_object(properties, "hardwareProfile").get("vmSize") or ""), region_of(row)
    return Instance(
        id=str(row["id"]),
        provider=NAME,
        region=region,
        zone=locations.zone(region, zones[0]) if zones else None,
        instance_type=find_type(size) or size,
        key=key,
        state=state,
        billed=state not in _NOT_BILLED,
        since=utc(properties.get("timeCreated")),
        capacity_type=_capacity_type(properties),
        store=str(nested_object(row, "tags").get(STORE_TAG) or ""),
    )


def _capacity_type(properties: Mapping[str, Any]) -> CapacityType:
    if properties.get("priority") in ("Spot", "Low"):
        return CapacityType.SPOT
    return CapacityType.RESERVED if properties.get("capacityReservation") else CapacityType.ON_DEMAND


def terminate(login: AzureLogin, id: str) -> None:
    """Delete a machine (its id in Azure Resource Manager, as in `tagged_machines`), without waiting. Idempotent: an
    unknown one is not an error. Raises what `AzureLogin.call` raises, and `Refused` for another form of name or another
    subscription.
    """
    names = parts_of(id)
    resource_group, machine_name = names.get("resourcegroups"), names.get("virtualmachines")
    if not resource_group or not machine_name or names.get("providers", "").lower() != "microsoft.compute":
        expected = "/subscriptions/…/resourceGroups/…/providers/Microsoft.Compute/virtualMachines/…"
        raise Refused(f"not the name of a machine: {id!r}", where=NAME, hint=f"expected {expected}")
    if names.get("subscriptions", "").lower() != login.subscription.lower():
        raise Refused(f"a machine of another subscription: {id!r}", where=NAME, hint="check AZURE_SUBSCRIPTION_ID")
    with suppress(NotFound):
        login.call(
            f"{machine_name}: delete",
            lambda client: client.virtual_machines.begin_delete(resource_group, machine_name, polling=False),
        )


# Azure's reservations and savings plans, which are discounts without capacity; with a login.
#
# They belong to a billing account and are visible across subscriptions with the roles Reservations Reader and Savings
# Plan Reader. They hold no capacity, and their use is unknown here, so they are reported but make no offers. Documented
# in Microsoft Learn as "Reservation - List All" and "Savings Plan - List All".
RESERVED_INSTANCES = "reserved_instances"
SAVINGS_PLAN = "savings_plan"

RESERVATIONS = "/providers/Microsoft.Capacity/reservations"
RESERVATIONS_VERSION = "2022-11-01"
SAVINGS_PLANS = "/providers/Microsoft.BillingBenefits/savingsPlans"
SAVINGS_PLANS_VERSION = "2022-11-01"

_ACTIVE = "succeeded"


def reserved_instances(login: AzureLogin, now: datetime) -> Iterator[Reservation]:
    """Reservations of machines with accelerators that are in force. Raises what `AzureLogin.rows` raises."""
    for row in _rows(login, "reservations", RESERVATIONS, RESERVATIONS_VERSION, "Reservations Reader"):
        properties, instance_type = (
            nested_object(row, "properties"),
            find_type(str(nested_object(row, "sku").get("name"))),
        )
        id = parts_of(row.get("id")).get("reservations")
        ends = utc(properties.get("expiryDateTime")) or utc(properties.get("expiryDate"))
        if instance_type is None or not id or not _is_active(properties.get("provisioningState"), ends, now):
            continue
        yield Reservation(
            id=id,
            provider=NAME,
            region=region_of(row) or "*",
            zone=None,
            instance_type=instance_type,
            machines=count(properties.get("quantity")) or 0,
            kind=RESERVED_INSTANCES,
            starts=utc(properties.get("effectiveDateTime")),
            ends=ends,
            holds_capacity=False,
            mark=_mark(properties),
        )


def savings_plans(login: AzureLogin, now: datetime) -> Iterator[Reservation]:
    """Savings plans for compute that are in force; they apply everywhere. Raises what `AzureLogin.rows` raises."""
    for row in _rows(login, "savings plans", SAVINGS_PLANS, SAVINGS_PLANS_VERSION, "Savings Plan Reader"):
        properties, id = nested_object(row, "properties"), parts_of(row.get("id")).get("savingsplans")
        ends = utc(properties.get("expiryDateTime"))
        if not id or not _is_active(properties.get("provisioningState"), ends, now):
            continue
        yield Reservation(
            id=id,
            provider=NAME,
            region="*",
            zone=None,
            instance_type="*",
            machines=0,
            kind=SAVINGS_PLAN,
            starts=utc(properties.get("effectiveDateTime")),
            ends=ends,
            holds_capacity=False,
            mark=_mark(properties),
        )


def _mark(properties: Mapping[str, Any]) -> str:
    """The id of the purchase, which is the name of the discount."""
    name = properties.get("displayName")
    return name if isinstance(name, str) and is_purchase(name) else ""


def _rows(login: AzureLogin, where: str, path: str, version: str, role: str) -> Iterator[Mapping[str, Any]]:
    try:
        yield from login.plain_rows(where, path, version=version)
    except NotPermitted as error:
        error.hint = f"the login needs the role {role!r} to list purchases"
        raise


def _is_active(state: object, ends: datetime | None, now: datetime) -> bool:
    return isinstance(state, str) and state.lower() == _ACTIVE and (ends is None or ends > now)


_MAX_CONCURRENT = 8  # regions queried concurrently


class Azure:
    """Azure's GPU machines in every region.

    Without a login: list prices in USD on demand, spot, and of terms. With one also machines closed to the
    subscription, remaining quotas, spot placement scores and eviction rates, and held capacity.
    """

    name = NAME
    quota_page = "https://portal.azure.com/#view/Microsoft_Azure_Capacity/QuotaMenuBlade/~/myQuotas"
    Settings: ClassVar = AzureSettings

    def __init__(self, *, clock: Clock, settings: AzureSettings | None = None, login: AzureLogin | None = None) -> None:
        """``login``: an existing login, for tests."""
        self._clock = clock
        self._settings = settings or AzureSettings()
        self._given = login
        self._login: AzureLogin | None = None
        self._scores = ScoreCache()

    def offers(self, query: OfferQuery) -> OfferRows:
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

    def _offers(self, query: OfferQuery, failures: Failures) -> OfferRows:
        price_rows = failures.until_failure(RetailPrices(self._settings, self._clock).offers())
        login = failures.result(self._find_login, None)
        if login is None:
            yield from (row for row in price_rows if not isinstance(row, Offer) or self._includes(row, query))
            return
        account = AzureAccount(login, self._settings, self._clock, failures, self._scores)
        offers = []
        for row in price_rows:
            if not isinstance(row, Offer):
                yield row
            elif self._includes(row, query):
                offers.append(row)
        yield from account.with_account_data(offers)
        if not query.capacity_types or CapacityType.RESERVED in query.capacity_types:
            for row in account.held_capacity():
                if not isinstance(row, Offer) or self._includes(row, query):
                    yield row

    def _includes(self, offer: Offer, query: OfferQuery) -> bool:
        """Whether settings and query include the offer, by place, accelerator and capacity type; to save calls."""
        return (
            (not self._settings.regions or offer.region in self._settings.regions)
            and (not query.regions or any(fnmatchcase(offer.region, pattern) for pattern in query.regions))
            and (not query.accelerators or offer.accelerator in query.accelerators)
            and (not query.capacity_types or offer.capacity_type in query.capacity_types)
        )

    # Abilities besides offers (`broker.core.ports`). All need a login.

    def reservations(self) -> Iterator[Reservation]:
        """See `HasReservations`: capacity reservations and blocks of machines with accelerators, reservations and
        savings plans. Missing permission for some of them does not stop the others."""
        login, failures = self._need_login(), Failures()
        locations = failures.result(partial(read_locations, login), None)
        if locations is not None:
            yield from failures.until_failure(holdings.capacity_reservations(login, locations))
        yield from failures.until_failure(reserved_instances(login, self._clock.now()))
        yield from failures.until_failure(savings_plans(login, self._clock.now()))
        failures.raise_any()

    @property
    def products(self) -> Mapping[PurchaseProduct, SellsProduct]:
        list_offers = RetailPrices(self._settings, self._clock).offers
        return shops.products(NAME, AzureCounter(self._need_login, list_offers, self._settings, self._clock))

    def instances(self) -> Iterator[Instance]:
        login = self._need_login()
        yield from tagged_machines(login, read_locations(login))

    def terminate(self, id: str) -> None:
        terminate(self._need_login(), id)

    def charges(self, since: datetime) -> Iterator[Charge]:
        """See `HasCharges`: by day and tag."""
        yield from read_charges(self._need_login(), since, self._clock.now())

    def _find_login(self) -> AzureLogin | None:
        """The login, kept between polls while its source is unchanged: some sources start a program for each token."""
        sign = (subscription_of(self._settings), login_source(self._settings))
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
        raise NoLogin(f"no login to Azure: {SUBSCRIPTION} is not set", where=NAME, hint=LOGIN_HINT)

    def check_access(self) -> Iterator[str | BrokerError]:
        yield f"logged in by {login_source(self._settings)}; subscription {self._need_login().subscription}"

    def describe_setup(self) -> Mapping[str, Any]:
        settings = self._settings
        subscription, sign = subscription_of(settings), login_source(settings)
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
                    "how": LOGIN_HINT if has_sdk() else f"{install_command(NAME)}, then {LOGIN_HINT}",
                    "adds": "closed machines, quotas, spot scores and eviction rates, held capacity, machines, charges",
                }
            },
        }
