"""What AWS tells and does beside offers: capacity held and for sale, machines, charges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from broker.core.errors import LoginMissing, Malformed, Refused, Unreachable
from broker.core.market.capacity import Reservation
from broker.core.market.offers import Availability, CapacityType, MoneyKind, OfferQuery, SkippedRow
from broker.core.ports import HasCharges, HasReservations, RunsInstances
from broker.core.purchases.quotes import CapacityQuote, PurchaseProduct, QuoteRequest, SellsCapacity
from broker.core.values.money import Money
from providers.aws.login import AwsLogin
from providers.aws.provider import Aws
from tests.contracts.provider_contract import NOW
from tests.providers.aws.conftest import offers_in, rows_of

if TYPE_CHECKING:
    from tests.fakes.aws_cloud import AwsCloud

RESERVED = OfferQuery(capacity_types=(CapacityType.RESERVED,), accelerators=("H100", "A10G"))
BLOCK = QuoteRequest(machines=1, accelerator="H100", count=8, length=timedelta(days=1))
DAY = timedelta(days=1)


def blocks(aws: Aws) -> Iterator[CapacityQuote | SkippedRow]:
    """The quotes for `BLOCK`."""
    return aws.products[PurchaseProduct.CAPACITY_BLOCK].quotes(BLOCK)


@pytest.fixture
def aws(make: Callable[..., Aws], login: AwsLogin) -> Aws:
    return make(login, prices="api", regions=("us-east-1", "eu-west-1"))


def reservation(number: int, *, total: int = 2, free: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "CapacityReservationId": f"cr-{number}",
        "InstanceType": "p5.48xlarge",
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": "us-east-1a",
        "AvailabilityZoneId": "use1-az6",
        "Tenancy": "default",
        "TotalInstanceCount": total,
        "AvailableInstanceCount": free,
        "State": "active",
        "StartDate": NOW - DAY,
        "EndDateType": "unlimited",
        "InstanceMatchCriteria": "open",
        "ReservationType": "default",
        **more,
    }


def block(number: int, fee: str, **more: Any) -> dict[str, Any]:
    return {
        "region": "us-east-1",
        "CapacityBlockOfferingId": f"cbo-{number}",
        "InstanceType": "p5.48xlarge",
        "AvailabilityZone": "us-east-1a",
        "InstanceCount": 1,
        "StartDate": NOW + DAY,
        "EndDate": NOW + 2 * DAY,
        "CapacityBlockDurationHours": 24,
        "UpfrontFee": fee,
        "CurrencyCode": "USD",
        "Tenancy": "default",
        **more,
    }


def test_it_has_every_ability(aws: Aws) -> None:
    for ability in (HasReservations, SellsCapacity, RunsInstances, HasCharges):
        assert isinstance(aws, ability)


# Held.


def test_capacity_that_is_held_costs_nothing_more(aws: Aws, cloud: AwsCloud) -> None:
    cloud.reservations["us-east-1"] = [
        reservation(1),
        reservation(2, total=5, free=3),
        reservation(3, free=2, InstanceMatchCriteria="targeted"),
        reservation(4, State="expired"),
        reservation(5, StartDate=NOW + DAY, State="scheduled"),
        reservation(6, InstancePlatform="Windows"),
        reservation(7, free=0, AvailabilityZoneId="use1-az1", AvailabilityZone="us-east-1b"),
    ]
    offers = {(offer.zone, offer.source): offer for offer in offers_in(rows_of(aws, RESERVED))}
    assert {pool: (offer.slots, offer.engine, offer.availability) for pool, offer in offers.items()} == {
        ("use1-az6", "aws-capacity-reservations"): (4, "skypilot", Availability.AVAILABLE),
        ("use1-az6", "aws-capacity-reservations:targeted"): (2, None, Availability.AVAILABLE),
        ("use1-az1", "aws-capacity-reservations"): (0, "skypilot", Availability.UNAVAILABLE),
    }
    for offer in offers.values():
        assert (offer.price, offer.money, offer.term_months) == (Money.ZERO, MoneyKind.AMORTISED, None)
        assert offer.has_valid_price()


def test_everything_held_is_told_with_its_kind(aws: Aws, cloud: AwsCloud) -> None:
    cloud.reservations["us-east-1"] = [
        reservation(1),
        reservation(2, ReservationType="capacity-block", EndDate=NOW + DAY),
    ]
    bought = {
        "ReservedInstancesId": "ri-1",
        "InstanceType": "p4d.24xlarge",
        "InstanceCount": 3,
        "ProductDescription": "Linux/UNIX",
        "State": "active",
        "Scope": "Region",
        "Start": NOW - DAY,
        "End": NOW + 300 * DAY,
    }
    cloud.reserved_instances["eu-west-1"] = [bought, {**bought, "State": "retired"}]
    plan = {
        "savingsPlanId": "sp-1",
        "ec2InstanceFamily": "p5",
        "region": "us-east-1",
        "productTypes": ["EC2"],
        "start": "2026-01-01T00:00:00.000Z",
        "end": "2027-01-01T00:00:00.000Z",
    }
    cloud.savings_plans = [plan, {**plan, "savingsPlanId": "sp-2", "productTypes": ["SageMaker"]}]
    held = {one.id: one for one in aws.reservations()}
    assert {name: (one.kind, one.machines, one.holds_capacity) for name, one in held.items()} == {
        "cr-1": ("capacity_reservation", 2, True),
        "cr-2": ("capacity_block", 2, True),
        "ri-1": ("reserved_instances", 3, False),
        "sp-1": ("savings_plan", 0, False),
    }
    assert held["cr-2"].ends == NOW + DAY
    assert held["sp-1"] == Reservation(
        "sp-1", "aws", "us-east-1", None, "p5.*", 0, "savings_plan", datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2027, 1, 1, tzinfo=UTC), None, False,
    )  # fmt: skip


# For sale.


def test_a_capacity_block_costs_its_fee(aws: Aws, cloud: AwsCloud) -> None:
    cloud.blocks = [block(number, fee) for number, fee in enumerate(("755.52", "1000.0", "2000", "999.999999"))]
    offers = [row for row in blocks(aws) if isinstance(row, CapacityQuote)]
    assert [(one.offering, one.total) for one in offers] == [
        ("cbo-0", Money.usd("755.52")),
        ("cbo-1", Money.usd("1000")),
        ("cbo-2", Money.usd("2000")),
        ("cbo-3", Money.usd("999.999999")),
    ]
    assert {(one.zone, one.accelerator, one.count, one.machines) for one in offers} == {("use1-az6", "H100", 8, 1)}
    assert {one.ends - one.starts for one in offers} == {DAY}


@pytest.mark.parametrize(
    "odd",
    [
        {"UpfrontFee": "0"},
        {"UpfrontFee": "free"},
        {"UpfrontFee": "-5"},
        {"CurrencyCode": "EUR"},
        {"EndDate": NOW},
        {"InstanceCount": 0},
        {"InstanceType": "p99.large"},
    ],
)
def test_a_block_that_makes_no_sense_is_skipped(aws: Aws, cloud: AwsCloud, odd: dict[str, Any]) -> None:
    asked = {"InstanceType": "p5.48xlarge"}
    cloud.blocks = [block(1, "1000", **(asked if "InstanceType" in odd else odd)), block(2, "500")]
    if "InstanceType" in odd:
        cloud.mangle["DescribeCapacityBlockOfferings"] = lambda body: body.replace(b"p5.48xlarge", b"p99.large", 1)
    rows = list(blocks(aws))
    assert [row.offering for row in rows if isinstance(row, CapacityQuote)] == ["cbo-2"]
    assert len([row for row in rows if isinstance(row, SkippedRow)]) == 1


def test_a_machine_that_is_not_sold_by_the_block_is_no_error(aws: Aws, cloud: AwsCloud) -> None:
    from tests.fakes.aws_cloud import AwsFault

    cloud.faults["DescribeCapacityBlockOfferings"] = [AwsFault("Unsupported", 400)]
    assert list(blocks(aws)) == []
    cloud.faults["DescribeCapacityBlockOfferings"] = [AwsFault("InvalidParameterValue", 400)]
    with pytest.raises(Refused):
        list(blocks(aws))


def rate(usd: str, **other: Any) -> dict[str, Any]:
    plan = {"paymentOption": "No Upfront", "planType": "Compute", "durationSeconds": 31_536_000, "currency": "USD"}
    about = {
        "region": "us-east-1",
        "instanceType": "p5.48xlarge",
        "productDescription": "Linux/UNIX",
        "tenancy": "shared",
    }
    return {
        "savingsPlanOffering": {**plan, **{key: value for key, value in other.items() if key in plan}},
        "rate": usd,
        "unit": other.get("unit", "Hrs"),
        "productType": "EC2",
        "serviceCode": "AmazonEC2",
        "usageType": other.get("usageType", "BoxUsage:p5.48xlarge"),
        "operation": other.get("operation", "RunInstances"),
        "properties": [{"name": key, "value": other.get(key, value)} for key, value in about.items()],
    }


def test_a_savings_plans_rate_is_a_commitment_for_sale(aws: Aws, cloud: AwsCloud) -> None:
    cloud.rates = [
        rate("40.123456"),
        rate("24.5", durationSeconds=94_608_000, paymentOption="All Upfront", planType="EC2Instance"),
        rate("1", productDescription="Windows"),
        rate("1", tenancy="dedicated"),
        rate("1", usageType="UnusedBox:p5.48xlarge"),
        rate("1", operation="RunInstances:0002"),
        rate("1", region="ap-south-1"),
        rate("1", planType="SageMaker"),
    ]
    offers = offers_in(rows_of(aws, RESERVED))
    assert [(one.source, one.term_months, one.price, one.engine) for one in offers] == [
        ("aws-savings-plans:compute-no-upfront", 12, Money.usd("40.123456"), None),
        ("aws-savings-plans:ec2-instance-all-upfront", 36, Money.usd("24.5"), None),
    ]


@pytest.mark.parametrize(
    "odd",
    [
        {"unit": "Jobs"},
        {"currency": "CNY"},
        {"durationSeconds": 5},
        {"paymentOption": "Later"},
        {"usd": "0"},
        {"usd": "x"},
    ],
)
def test_a_rate_that_makes_no_sense_is_skipped(aws: Aws, cloud: AwsCloud, odd: dict[str, Any]) -> None:
    cloud.rates = [rate(**{"usd": "40", **odd}), rate("24.5")]
    rows = rows_of(aws, RESERVED)
    assert [one.price for one in offers_in(rows)] == [Money.usd("24.5")]
    assert len(rows) == 2


# Machines.


@pytest.fixture
def machine(login: AwsLogin) -> Callable[..., str]:
    """Starts a machine at moto's, with tags; its ID."""

    def started(region: str = "us-east-1", **tags: str) -> str:
        client = login.client("ec2", region)
        kind = {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        made = client.run_instances(
            ImageId="ami-12c6146b", InstanceType="g5.xlarge", MinCount=1, MaxCount=1, TagSpecifications=[kind]
        )
        return str(made["Instances"][0]["InstanceId"])

    return started


def test_machines_with_our_tag_are_found_and_ended_and_only_those(aws: Aws, machine: Callable[..., str]) -> None:
    ours, there, other = machine(gpubroker="job-1-1"), machine("eu-west-1", gpubroker="job-2-1"), machine(Name="theirs")
    found = {one.id: one for one in aws.instances()}
    assert set(found) == {f"us-east-1/{ours}", f"eu-west-1/{there}"}
    one = found[f"us-east-1/{ours}"]
    assert (one.key, one.state, one.billed, one.instance_type) == ("job-1-1", "running", True, "g5.xlarge")
    assert one.zone is not None
    assert one.zone.startswith("use1-az")
    assert one.since is not None
    for name in found:
        aws.terminate(name)
        aws.terminate(name)
    assert list(aws.instances()) == []
    assert other not in found


def test_ending_what_is_not_there_is_fine_and_what_is_no_machine_is_refused(aws: Aws, cloud: AwsCloud) -> None:
    aws.terminate("us-east-1/i-0123456789abcdef0")
    for name in ("i-0123456789abcdef0", "us-east-1/sg-1", ""):
        with pytest.raises(Refused, match="not the name"):
            aws.terminate(name)


def test_a_region_that_fails_does_not_hide_machines_elsewhere(
    aws: Aws, cloud: AwsCloud, machine: Callable[..., str]
) -> None:
    from tests.fakes.aws_cloud import AwsFault

    name = machine("eu-west-1", gpubroker="job-3-1")
    cloud.faults["DescribeInstances", "us-east-1"] = [AwsFault(status=503)]
    machines = aws.instances()
    assert next(machines).id == f"eu-west-1/{name}"
    with pytest.raises(Unreachable, match="us-east-1"):
        next(machines)
    aws.terminate(f"eu-west-1/{name}")


# Charges.


def day(number: int, groups: dict[str, str], *, estimated: bool = False, unit: str = "USD") -> dict[str, Any]:
    return {
        "TimePeriod": {"Start": f"2026-11-{number:02}", "End": f"2026-11-{number + 1:02}"},
        "Total": {},
        "Groups": [
            {"Keys": [f"gpubroker${key}"], "Metrics": {"UnblendedCost": {"Amount": amount, "Unit": unit}}}
            for key, amount in groups.items()
        ],
        "Estimated": estimated,
    }


def test_charges_are_by_day_and_attempt(aws: Aws, cloud: AwsCloud) -> None:
    cloud.charges = [
        day(18, {"job-1-1": "12.3456789", "": "3.5"}),
        day(19, {"job-1-1": "0"}),
        day(20, {"job-1-1": "-1.25"}),
        day(21, {"job-1-2": "7.0000005"}, estimated=True),
    ]
    told = [(one.starts.day, one.key, one.amount, one.estimated) for one in aws.charges(NOW - 3 * DAY)]
    assert told == [
        (18, "job-1-1", Money(12_345_679), False),
        (18, "", Money.usd("3.5"), False),
        (20, "job-1-1", Money.usd("-1.25"), False),
        (21, "job-1-2", Money(7_000_000), True),
    ]
    [_, (_, asked)] = cloud.calls("GetCostAndUsage")
    assert asked["TimePeriod"] == {"Start": "2026-11-18", "End": "2026-11-22"}


@pytest.mark.parametrize("broken", [day(18, {"a": "x"}), day(18, {"a": "1"}, unit="EUR"), day(18, {"a": "NaN"})])
def test_a_charge_that_is_none_is_malformed(aws: Aws, cloud: AwsCloud, broken: dict[str, Any]) -> None:
    cloud.charges = [broken]
    with pytest.raises(Malformed):
        list(aws.charges(NOW - 3 * DAY))


def test_without_a_login_each_ability_says_what_is_missing(make: Callable[..., Aws]) -> None:
    nobody = make()
    for ask in (nobody.reservations, nobody.instances):
        with pytest.raises(LoginMissing):
            list(ask())
    with pytest.raises(LoginMissing):
        nobody.terminate("us-east-1/i-1")
    with pytest.raises(LoginMissing):
        list(nobody.charges(NOW))
    with pytest.raises(LoginMissing):
        list(blocks(nobody))
