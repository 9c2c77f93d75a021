"""Reading rows that somebody else wrote."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.market.offers import CapacityType, Offer, SkippedRow
from broker.core.values.money import Money
from providers.rows import (
    MAX_PRICE,
    MIN_PRICE,
    OfferRows,
    Row,
    RowRejected,
    accelerator,
    decimal_text,
    distinct,
    figure,
    name,
    price,
    read_rows,
    usd,
    whole,
)
from tests.contracts.provider_contract import NOW


@given(st.decimals("0.001", "10000", places=6))
def test_a_price_is_exact_to_the_micro_dollar(amount: Decimal) -> None:
    assert price(amount, "x").dollars == amount


@given(st.integers(1, 10**12), st.sampled_from([8760, 26280]))
def test_a_share_of_a_total_is_rounded_once(micros: int, hours: int) -> None:
    total = Decimal(micros) / 1_000_000
    if MIN_PRICE.dollars * hours <= total <= MAX_PRICE.dollars * hours:
        assert abs(price(total, "x", per=hours).dollars - total / hours) <= Decimal("0.0000005")
    else:
        with pytest.raises(RowRejected, match="absurd_price"):
            price(total, "x", per=hours)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no_price"),
        (0, "invalid_price"),
        (-1, "invalid_price"),
        (Decimal("NaN"), "invalid_price"),
        (Decimal("Infinity"), "invalid_price"),
        (True, "invalid_price"),
        ("3.5", "invalid_price"),
        ([], "invalid_price"),
        (Decimal("1e-30"), "absurd_price"),
        (Decimal("1e999999"), "absurd_price"),
        (10**500, "absurd_price"),
    ],
)
def test_what_is_no_price_is_no_price(value: Any, reason: str) -> None:
    with pytest.raises(RowRejected) as caught:
        price(value, "x")
    assert caught.value.reason == reason
    assert caught.value.detail


def test_text_is_a_price_only_where_the_provider_writes_text() -> None:
    assert decimal_text("3.95") == Decimal("3.95")
    assert decimal_text(None) is None
    for odd in ("1e5", "NaN", "٣", "-1", " 1", "1_0", 3, Decimal(1)):
        with pytest.raises(RowRejected):
            decimal_text(odd)


def test_names_fit_into_ids() -> None:
    assert name(" Guangxi,  CN/a@b ", "region") == "Guangxi,-CN-a-b"
    for odd in ("", " ", "///", None, 3, "x" * 200, "a\u202eb"):
        with pytest.raises(RowRejected):
            name(odd, "region")


def test_figures_are_optional_and_whole_numbers_are_not() -> None:
    assert figure(Decimal("1.5")) == 1.5
    assert [figure(odd) for odd in (None, True, "3", -1, Decimal("NaN"), Decimal("1e300"))] == [None] * 6
    assert whole(8, "GPUs") == whole(Decimal("8.0"), "GPUs") == 8
    for odd in (0, Decimal("1.5"), 2000, True, None, Decimal("1e999999")):
        with pytest.raises(RowRejected):
            whole(odd, "GPUs")


def test_the_first_known_name_counts() -> None:
    assert accelerator(None, "Voodoo2", "H100 SXM") == "H100"
    with pytest.raises(RowRejected, match="Voodoo2"):
        accelerator("Voodoo2")


def _offer(amount: int, region: str = "north") -> Offer:
    return Offer(
        provider="acme", region=region, zone=None, instance_type="a", accelerator="L4", count=1,
        capacity_type=CapacityType.SPOT, price=Money.usd(amount), as_of=NOW, source="acme",
    )  # fmt: skip


def test_one_odd_row_ends_nothing() -> None:
    def read(row: Row) -> OfferRows:
        yield _offer(1, row["region"])
        raise RowRejected("odd", "after its first offer")

    found = list(read_rows([{"region": "a"}, None, [], {"region": "b"}], read))
    assert [row.region for row in found if isinstance(row, Offer)] == ["a", "b"]
    assert [row.reason for row in found if isinstance(row, SkippedRow)] == [
        "odd", "malformed_row", "malformed_row", "odd",
    ]  # fmt: skip


def test_an_offer_comes_once_and_a_second_price_for_it_is_counted() -> None:
    found = list(distinct(iter([_offer(1), _offer(1), _offer(2), _offer(2, "south"), SkippedRow("odd", "x")])))
    assert [row.price for row in found if isinstance(row, Offer)] == [Money.usd(1), Money.usd(2)]
    assert [row.reason for row in found if isinstance(row, SkippedRow)] == ["conflicting_duplicate", "odd"]


def test_only_dollars() -> None:
    usd("usd")
    for odd in ("EUR", None, 3):
        with pytest.raises(RowRejected, match="USD"):
            usd(odd)
