"""GetProducts: the same traps as in the bulk list, in JSON."""

import copy
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from broker.core.market.offers import CapacityType, Offer, SkippedRow
from broker.core.values.money import Money
from providers.aws.price_list import read_products
from tests.fakes.aws_cloud import get_products
from tests.fakes.aws_files import Row, on_demand, product, reserved

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
P5 = product("p5.48xlarge", "us-east-1")


def read(rows: list[Any]) -> tuple[list[Offer], list[str]]:
    found = list(read_products(rows, ("us-east-1",), NOW))
    return (
        [row for row in found if isinstance(row, Offer)],
        [row.reason for row in found if isinstance(row, SkippedRow)],
    )


def made(*rows: Row, **attributes: str) -> str:
    return get_products([(product("p5.48xlarge", "us-east-1", **attributes), list(rows))])[0]


def test_the_sample_is_exact_to_the_micro_dollar() -> None:
    sample = Path(os.environ.get("GPUBROKER_TEST_DATA") or "-") / "payloads"
    sample /= "aws_get_products_p4d_p5_us-east-1_ondemand.json"
    if not sample.exists():
        pytest.skip("GPUBROKER_TEST_DATA does not name a folder with payloads")
    rows = json.loads(sample.read_text())
    for shape in (rows, [json.dumps(row) for row in rows]):
        offers, skipped = read(shape)
        assert {(o.instance_type, o.accelerator, o.count, o.price) for o in offers} == {
            ("p4d.24xlarge", "A100", 8, Money(21_957_642)),
            ("p5.48xlarge", "H100", 8, Money(55_040_000)),
        }
        assert skipped == []


def test_an_upfront_fee_is_spread_over_the_term() -> None:
    rows = [
        *reserved(P5, 3, "All Upfront", "0.0000000000", "788400"),
        *reserved(P5, 1, "Partial Upfront", "10", "87600"),
    ]
    offers, skipped = read([made(on_demand(P5, "55.04"), *rows)])
    assert [(o.capacity_type, o.term_months, o.price, o.engine) for o in offers] == [
        (CapacityType.ON_DEMAND, None, Money.usd("55.04"), "skypilot"),
        (CapacityType.RESERVED, 36, Money.usd("30"), None),
        (CapacityType.RESERVED, 12, Money.usd("20"), None),
    ]
    assert skipped == []


def test_a_capacity_block_row_of_zero_is_never_an_offer() -> None:
    assert read([made(on_demand(P5, "0.0000000000"), MarketOption="CapacityBlock")]) == (
        [],
        ["capacity_block_without_price"],
    )


@pytest.mark.parametrize(
    "other",
    [
        {"Operating_System": "Windows"},
        {"Tenancy": "Dedicated"},
        {"Pre Installed S/W": "SQL Ent"},
        {"CapacityStatus": "UnusedCapacityReservation"},
        {"License_Model": "Bring your own license"},
        {"Location_Type": "AWS Local Zone"},
    ],
)
def test_what_a_row_is_stands_in_the_row(other: dict[str, str]) -> None:
    assert read([made(on_demand(P5, "1"), **other)]) == ([], [])


def test_a_region_that_was_not_asked_for_is_none_of_ours_and_a_missing_one_is_counted() -> None:
    assert read([made(on_demand(P5, "1"), Region_Code="us-west-2")]) == ([], [])
    row = made(on_demand(P5, "1"))
    told = json.loads(row) if isinstance(row, str) else row
    del told["product"]["attributes"]["regionCode"]
    assert read([told]) == ([], ["incomplete_row"])


def test_a_foreign_currency_is_refused() -> None:
    assert read([made(on_demand(P5, "350", Currency="CNY"))]) == ([], ["foreign_currency"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((), None),
        ((), "{"),
        ((), [1]),
        (("product",), None),
        (("product", "attributes"), "x"),
        (("terms",), []),
        (("terms", "OnDemand"), "x"),
        (("terms", "OnDemand", "*"), 7),
        (("terms", "OnDemand", "*", "priceDimensions"), None),
        (("terms", "OnDemand", "*", "priceDimensions", "*"), None),
        (("terms", "OnDemand", "*", "priceDimensions", "*", "pricePerUnit"), {}),
        (("terms", "OnDemand", "*", "priceDimensions", "*", "pricePerUnit", "USD"), 1.5),
        (("terms", "OnDemand", "*", "priceDimensions", "*", "unit"), "Months"),
    ],
)
def test_an_odd_row_is_skipped_and_the_rest_arrives(path: tuple[str, ...], value: Any) -> None:
    row: Any = json.loads(made(on_demand(P5, "55.04")))
    broken: Any = copy.deepcopy(row)
    inner: Any = {"row": broken}
    for part in ("row", *path)[: len(path)]:
        inner = inner[next(iter(inner)) if part == "*" else part]
    last = ("row", *path)[-1]
    inner[next(iter(inner)) if last == "*" else last] = value
    found = value if not path else json.dumps(broken)
    offers, skipped = read([found, json.dumps(row)])
    assert [offer.price for offer in offers] == [Money.usd("55.04")]
    assert len(skipped) == 1
