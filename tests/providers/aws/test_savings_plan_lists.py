"""The published lists of savings plans, without a login."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest

from broker.core.errors import Malformed
from broker.core.market.offers import CapacityType, Offer, OfferQuery, SkippedRow
from broker.core.values.money import Money
from providers.aws.provider import Aws
from tests.fakes.aws_files import Files, Row, plan_rate, savings_plan_list
from tests.providers.aws.conftest import market, offers_in, rows_of, skipped_in

RESERVED = OfferQuery(capacity_types=(CapacityType.RESERVED,))
EC2 = {"Product_Family": "EC2InstanceSavingsPlans", "UsageType": "USE1-EC2SP:p5.3yrAllUpfront"}
OTHERS = [
    plan_rate("m7i.large", "0.07"),
    plan_rate("p5.48xlarge", "60", DiscountedOperation="RunInstances:0002"),
    plan_rate("p5.48xlarge", "41", DiscountedUsageType="USE1-UnusedBox:p5.48xlarge"),
    plan_rate("p5.48xlarge", "41", DiscountedUsageType="USE1-DedicatedUsage:p5.48xlarge"),
    plan_rate("g5.xlarge", "2", "us-east-1-bos-1"),
]
Read = Callable[..., list[Offer | SkippedRow]]


@pytest.fixture
def read(make: Callable[..., Aws], files: Files) -> Read:
    """The rows of savings plans in this list."""

    def reads(rows: list[Row] | str, **settings: object) -> list[Offer | SkippedRow]:
        files.put_list("us-east-1", market("us-east-1"))
        files.put_plans("us-east-1", rows)
        aws = make(savings_plan_lists=True, savings_plan_list_url=files.url, **settings)
        return [row for row in rows_of(aws, RESERVED) if not isinstance(row, Offer) or "savings" in row.source]

    return reads


def test_a_rate_is_a_commitment_for_sale_and_what_is_no_plain_machine_is_left_out(read: Read) -> None:
    ends = {"PurchaseOption": "All Upfront", "LeaseContractLength": "3"}
    found = read([*OTHERS, plan_rate("p5.48xlarge", "40.123456"), plan_rate("p5.48xlarge", "24.5", **ends, **EC2)])
    assert [(o.source, o.term_months, o.price, o.region, o.accelerator, o.engine) for o in offers_in(found)] == [
        ("aws-savings-plan-list:compute-no-upfront", 12, Money.usd("40.123456"), "us-east-1", "H100", None),
        ("aws-savings-plan-list:ec2-instance-all-upfront", 36, Money.usd("24.5"), "us-east-1", "H100", None),
    ]
    assert skipped_in(found) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"DiscountedRate": "0"}, "invalid_price"),
        ({"DiscountedRate": ""}, "invalid_price"),
        ({"Currency": "CNY"}, "foreign_currency"),
        ({"Unit": "Quantity"}, "unknown_unit"),
        ({"LeaseContractLength": "2"}, "unknown_term"),
        ({"LeaseContractLengthUnit": "month"}, "unknown_term"),
        ({"Product_Family": "SageMakerSavingsPlans"}, "unknown_term"),
        ({"EffectiveDate": "2027-01-01T00:00:00Z"}, "not_yet_in_force"),
        ({"DiscountedRegionCode": "eu-west-1"}, "other_region"),
        ({"DiscountedUsageType": "USE1-BoxUsage:p4d.24xlarge"}, "conflicting_row"),
        ({"DiscountedUsageType": "?"}, "unknown_usage"),
        ({"DiscountedOperation": ""}, "unknown_usage"),
        ({"DiscountedInstanceType": "p99.48xlarge"}, "unknown_machine"),
    ],
)
def test_a_rate_that_means_something_else_is_counted(read: Read, change: dict[str, str], reason: str) -> None:
    found = read([plan_rate("g5.xlarge", "0.7"), plan_rate("p5.48xlarge", "40", **change)])
    assert ([o.instance_type for o in offers_in(found)], skipped_in(found)) == (["g5.xlarge"], [reason])


@pytest.mark.parametrize("whole", ["", "<html>", "SKU,Unit\n1,2\n", savings_plan_list([])])
def test_what_is_no_list_is_an_error_and_the_price_list_stays(
    whole: str, make: Callable[..., Aws], files: Files
) -> None:
    files.put_list("us-east-1", market("us-east-1"))
    files.put_plans("us-east-1", whole)
    rows = make(savings_plan_lists=True, savings_plan_list_url=files.url).offers(RESERVED)
    assert len(offers_in(list(islice(rows, 10)))) == 10
    with pytest.raises(Malformed):
        next(rows)


def test_a_region_without_a_list_is_counted(make: Callable[..., Aws], files: Files) -> None:
    files.put_plans("us-east-1", [plan_rate("g5.xlarge", "0.7")])
    files.put_list("eu-west-1", market("eu-west-1"))
    aws = make(savings_plan_lists=True, savings_plan_list_url=files.url, regions=("eu-west-1",))
    assert skipped_in(rows_of(aws, RESERVED)) == ["no_list"]
