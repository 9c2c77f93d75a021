"""The AWS provider: which source is queried for what, and how failures are combined."""

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from typing import Any, ClassVar, TypeVar

from broker.core.errors import BrokerError, Malformed, MissingExtra, NoLogin, Refused
from broker.core.extras import install_command
from broker.core.market.capacity import STORE_TAG, TAG, Charge, Instance, Reservation
from broker.core.market.offers import CapacityType, OfferQuery, SkippedRow
from broker.core.ports import Bucket
from broker.core.purchases.quotes import PurchaseProduct, SellsProduct
from broker.core.values.clock import Clock
from broker.core.values.money import Money
from providers import shops
from providers.aws import holdings, spot
from providers.aws.account import AwsAccount
from providers.aws.login import LOGIN_HINT, AwsLogin, check_access, has_sdk, login_source, make_bucket
from providers.aws.machines import accelerated_types, machine
from providers.aws.price_list import PriceList
from providers.aws.settings import KEYLESS_REGIONS, NAME, REGIONS, AwsSettings
from providers.aws.shop.counter import AwsCounter
from providers.failures import Failures
from providers.http import endpoint, redacted_url
from providers.rows import OfferRows, distinct

# AWS charges per day and attempt, from Cost Explorer; with a login. Each query costs the account $0.01.
#
# Days are UTC. A day's figure changes for a day or two and is marked as an estimate until AWS closes it. Charges are
# grouped by gpubroker's tag, which must be activated once as a cost allocation tag (Billing console); before that, and
# without a tag, ``key`` is empty. Amounts are rounded half-even to the micro-dollar; AWS bills finer.
_QUERY_REGION = "us-east-1"  # the region of Cost Explorer
_METRIC = "UnblendedCost"
_SERVICE = "Amazon Elastic Compute Cloud - Compute"
_DAY = timedelta(days=1)


def read_charges(login: AwsLogin, since: datetime, now: datetime) -> Iterator[Charge]:
    """EC2's charges of the days from ``since`` up to and with today. Raises what `AwsLogin.rows` raises, and
    `Malformed` for an invalid amount or another currency."""
    first, last = since.astimezone(UTC).date(), now.astimezone(UTC).date()
    if first > last:
        return
    rows = login.rows(
        "ce",
        _QUERY_REGION,
        "get_cost_and_usage",
        "ResultsByTime",
        page_key="NextPageToken",
        TimePeriod={"Start": first.isoformat(), "End": (last + _DAY).isoformat()},
        Granularity="DAILY",
        Metrics=[_METRIC],
        Filter={"Dimensions": {"Key": "SERVICE", "Values": [_SERVICE]}},
        GroupBy=[{"Type": "TAG", "Key": TAG}],
    )
    for day in rows:
        starts = _midnight((day.get("TimePeriod") or {}).get("Start"))
        for group in day.get("Groups") or ():
            amount = _amount((group.get("Metrics") or {}).get(_METRIC) or {})
            if amount:
                key = str((group.get("Keys") or [""])[0]).removeprefix(f"{TAG}$")
                yield Charge(NAME, starts, starts + _DAY, amount, key, bool(day.get("Estimated", True)))


def _midnight(day: Any) -> datetime:
    try:
        return datetime.fromisoformat(str(day)[:10]).replace(tzinfo=UTC)
    except ValueError as error:
        raise Malformed(f"expected a date; got {day!r}", where=f"{NAME}: Cost Explorer") from error


def _amount(metric: Any) -> Money:
    try:
        amount, unit = Decimal(str(metric.get("Amount"))), metric.get("Unit")
    except InvalidOperation as error:
        raise Malformed(f"expected an amount; got {metric!r}", where=f"{NAME}: Cost Explorer") from error
    if unit != "USD" or not amount.is_finite() or abs(amount) > 10**9:
        raise Malformed(f"expected an amount in USD, got {metric!r}", where=f"{NAME}: Cost Explorer")
    return Money.usd(amount)


# Machines of the account with gpubroker's tag, and their termination; with a login.
#
# Whatever starts machines on AWS for gpubroker sets the tags ``gpubroker`` (the attempt's key) and ``gpubroker-store``
# (the id of the requesting store).
# Everything but "terminated". A stopped machine is billed for its disks only.
_STATES = ("pending", "running", "shutting-down", "stopping", "stopped")
_BILLED = ("running", "stopping")


def tagged_instances(login: AwsLogin, region: str, zones: Mapping[str, str]) -> Iterator[Instance]:
    """The machines of one region that carry the tag and are not gone. ``zones``: names to IDs. Raises what
    `AwsLogin.rows` raises."""
    rows = login.rows(
        "ec2",
        region,
        "describe_instances",
        "Reservations",
        Filters=[{"Name": "tag-key", "Values": [TAG]}, {"Name": "instance-state-name", "Values": list(_STATES)}],
    )
    for reservation in rows:
        for row in reservation.get("Instances") or ():
            yield from _instance(row, region, zones)


def _instance(row: Mapping[str, Any], region: str, zones: Mapping[str, str]) -> Iterator[Instance]:
    tags = {tag.get("Key"): tag.get("Value", "") for tag in row.get("Tags") or ()}
    state = (row.get("State") or {}).get("Name", "")
    if TAG not in tags or state not in _STATES or not row.get("InstanceId"):
        return
    zone_name = (row.get("Placement") or {}).get("AvailabilityZone", "")
    launched = row.get("LaunchTime")
    kind = {"spot": CapacityType.SPOT, "capacity-block": CapacityType.RESERVED}.get(
        row.get("InstanceLifecycle", ""), CapacityType.ON_DEMAND
    )
    yield Instance(
        id=f"{region}/{row['InstanceId']}",
        provider=NAME,
        region=region,
        zone=zones.get(zone_name, zone_name) or None,
        instance_type=row.get("InstanceType", ""),
        key=tags[TAG],
        state=state,
        billed=state in _BILLED,
        since=launched.astimezone(UTC) if isinstance(launched, datetime) else None,
        capacity_type=kind,
        store=tags.get(STORE_TAG, ""),
    )


def terminate(login: AwsLogin, id: str) -> None:
    """End a machine (``region/i-…``, as in `tagged_instances`) for good. Idempotent: an unknown one is not an error.
    Raises what `AwsLogin.call` raises, and `Refused` for another form of name.
    """
    region, _, instance = id.partition("/")
    if not region or not instance.startswith("i-"):
        raise Refused(f"not the name of a machine: {id!r}", where=NAME, hint="expected region/i-…")
    try:
        login.call("ec2", region, "terminate_instances", InstanceIds=[instance])
    except Refused as error:
        if error.code != "InvalidInstanceID.NotFound":
            raise


T = TypeVar("T")

_LISTED = (CapacityType.ON_DEMAND, CapacityType.RESERVED)


class Aws:
    """EC2 machines with accelerators.

    Without a login: list prices on demand and of reserved terms, and spot pools without a price. With one, all
    regions, spot prices by zone with placement scores, what exists where, and what the account's quotas leave.
    """

    name = NAME
    quota_page = "https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas"
    Settings: ClassVar = AwsSettings

    def __init__(self, *, clock: Clock, settings: AwsSettings | None = None, login: AwsLogin | None = None) -> None:
        self._clock = clock
        self._settings = settings or AwsSettings()
        self._list = PriceList(self._settings, clock)
        self._login = login

    def offers(self, query: OfferQuery) -> OfferRows:
        """The offers of every source and region. A failure, also of a login, does not stop the rest: all are raised at
        the end as one error.
        """
        if query.providers and not any(fnmatchcase(NAME, pattern) for pattern in query.providers):
            return
        failures = Failures()
        yield from distinct(self._offers(query, failures))
        if failures.about_login:
            self._login = None
        failures.raise_any()

    def _offers(self, query: OfferQuery, failures: Failures) -> OfferRows:
        login = failures.result(self._find_login, None)
        if login is not None:
            yield from self._with_login(login, query, failures)
            return
        regions = self._regions(query, KEYLESS_REGIONS)
        if _wants(query, *_LISTED):
            for region in regions:
                yield from failures.until_failure(self._list.offers(region))
        if _wants(query, CapacityType.SPOT):
            now = self._clock.now()
            for advice in failures.until_failure(spot.read_advice(self._settings, self._clock, regions)):
                if isinstance(advice, SkippedRow):
                    yield advice
                else:
                    yield from spot.offers_of(advice, now)

    def _with_login(self, login: AwsLogin, query: OfferQuery, failures: Failures) -> OfferRows:
        regions = self._regions(query, REGIONS)
        types = _types(query)
        account = AwsAccount(login, self._settings, self._clock, self._list, failures, regions, types)
        yield from account.offers(
            listed=_wants(query, *_LISTED),
            reserved=_wants(query, CapacityType.RESERVED),
            on_spot=_wants(query, CapacityType.SPOT),
        )

    def _regions(self, query: OfferQuery, default: tuple[str, ...]) -> tuple[str, ...]:
        regions = self._settings.regions or default
        if not query.regions:
            return regions
        return tuple(region for region in regions if any(fnmatchcase(region, pattern) for pattern in query.regions))

    # Abilities besides offers (`broker.core.ports`). All need a login; if a region fails, the others continue.

    def reservations(self) -> Iterator[Reservation]:
        """See `HasReservations`: capacity reservations and blocks, reserved instances, savings plans."""

        def regional_holdings(login: AwsLogin, region: str) -> Iterator[Reservation]:
            yield from holdings.capacity_reservations(login, region)
            yield from holdings.reserved_instances(login, region)

        yield from self._everywhere(regional_holdings)
        yield from holdings.savings_plans(self._need_login(), REGIONS[0])

    @property
    def products(self) -> Mapping[PurchaseProduct, SellsProduct]:
        return shops.products(NAME, AwsCounter(self._need_login, self._everywhere, self._settings, self._clock))

    def instances(self) -> Iterator[Instance]:
        yield from self._everywhere(lambda login, region: tagged_instances(login, region, spot.zone_ids(login, region)))

    def terminate(self, id: str) -> None:
        terminate(self._need_login(), id)

    def charges(self, since: datetime) -> Iterator[Charge]:
        """See `HasCharges`: by day and tag. Each call costs the account $0.01 a page."""
        yield from read_charges(self._need_login(), since, self._clock.now())

    def _everywhere(
        self, fetch: Callable[[AwsLogin, str], Iterator[T]], regions: tuple[str, ...] | None = None
    ) -> Iterator[T]:
        login, failures = self._need_login(), Failures()
        for region in (self._settings.regions or REGIONS) if regions is None else regions:
            yield from failures.until_failure(fetch(login, region))
        failures.raise_any()

    def _find_login(self) -> AwsLogin | None:
        """The login, kept from poll to poll while its source is unchanged: creating boto3's clients is slower than
        calls.
        """
        sign = login_source(self._settings)
        if self._login is None or self._login.sign != sign:
            self._login = AwsLogin.find(self._settings)
        return self._login

    def _need_login(self) -> AwsLogin:
        """Raises `MissingExtra` without boto3, `NoLogin` without a login, and `LoginMissing` with one that cannot be
        used."""
        login = self._find_login()
        if login is not None:
            return login
        if not has_sdk():
            raise MissingExtra("aws", "a login to AWS")
        raise NoLogin("no login to AWS", where=NAME, hint=LOGIN_HINT)

    def check_access(self) -> Iterator[str | BrokerError]:
        yield from check_access(self._need_login())

    def make_bucket(self, name: str) -> Bucket:
        return make_bucket(self._need_login(), name)

    def describe_setup(self) -> Mapping[str, Any]:
        settings = self._settings
        sign = login_source(settings)
        return {
            "endpoints": {
                "price_list": endpoint(NAME, "price_list_url", settings.price_list_url),
                "spot_advisor": endpoint(NAME, "spot_advisor_url", settings.spot_advisor_url),
                **_api_endpoints(os.environ),
            },
            "logins": {
                "aws": {
                    "found": bool(sign) and has_sdk(),
                    "where": sign,
                    "how": LOGIN_HINT if has_sdk() else f"{install_command(NAME)}, then {LOGIN_HINT}",
                    "adds": "spot prices by zone, placement scores, quotas, all regions, reservations, charges",
                }
            },
        }


def _api_endpoints(environment: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
    """boto3's endpoints: the standard variables, for all services and for single ones."""
    variable = "AWS_ENDPOINT_URL"
    url = environment.get(variable, "")
    endpoints: dict[str, Mapping[str, str]] = {
        "api": {"url": redacted_url(url) if url else "as boto3 has it", "setting": variable}
    }
    for name in sorted(environment):
        if name.startswith(f"{variable}_") and environment[name]:
            service = name.removeprefix(f"{variable}_").lower()
            endpoints[f"api {service}"] = {"url": redacted_url(environment[name]), "setting": name}
    return endpoints


def _wants(query: OfferQuery, *kinds: CapacityType) -> bool:
    return not query.capacity_types or any(kind in query.capacity_types for kind in kinds)


def _types(query: OfferQuery) -> tuple[str, ...]:
    accelerators = query.accelerators
    return tuple(name for name in accelerated_types() if not accelerators or machine(name).accelerator in accelerators)
