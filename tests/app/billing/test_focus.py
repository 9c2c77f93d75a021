"""A month of the ledger as FOCUS: every micro-dollar once, in the right month, for ever the same."""

import csv
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.billing.focus import export
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, UnknownName
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.ledger.entries import Account, Entry, Movement
from broker.ledger.finops.focus.charges import SpentEntry, charges, header
from broker.ledger.finops.focus.idle import unused_rows
from broker.ledger.finops.focus.months import BillingMonth
from tests.focus_ledger import HOUR, OCTOBER, RUN, SEPTEMBER, post_two_months, spent

DAY = timedelta(days=1)


def rows(broker: Broker, month: str, folder: Path, version: str = "1.2") -> list[dict[str, str]]:
    out = folder / f"{month}-{version}.csv"
    done = export(broker, version, month, out, replace=True)
    with out.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert done.rows == len(found)
    assert done.billed_cost.dollars == sum((Decimal(row["BilledCost"]) for row in found), Decimal(0))
    return found


def hold(broker: Broker, held: Holding, at: datetime) -> int:
    """Put it on record at that time; its number."""
    with broker.store.writing() as tx:
        return tx.add_holding(held, by="ann", at=at)


@pytest.fixture
def broker(new_broker: Callable[[], Broker]) -> Broker:
    made = new_broker()
    post_two_months(made.store)
    return made


def test_each_charge_is_in_its_month(broker: Broker, tmp_path: Path) -> None:
    september, october = rows(broker, "2026-09", tmp_path), rows(broker, "2026-10", tmp_path)
    assert [(row["x_MovementId"][-1], row["BilledCost"], row["EffectiveCost"]) for row in september] == [
        ("1", "10.000000", "10.000000"),
        ("2", "16.000000", "16.000000"),
        ("4", "-2.000000", "-2.000000"),
        ("5", "700.000000", "0.000000"),
        ("6", "0.000000", "7.250000"),
    ]
    assert [(row["x_MovementId"][-1], row["BilledCost"], row["ChargeClass"]) for row in october] == [
        ("2", "32.000000", ""),
        ("3", "5.000000", "Correction"),
    ]
    assert {row["BillingPeriodStart"] for row in october} == {"2026-10-01T00:00:00Z"}
    assert october[1]["ChargePeriodStart"] == "2026-09-01T00:00:00Z"
    assert [row["ChargeCategory"] for row in september] == ["Usage", "Usage", "Adjustment", "Purchase", "Usage"]


def test_usage_has_a_price_by_the_hour_and_prepaid_use_a_commitment(broker: Broker, tmp_path: Path) -> None:
    first, *_, purchase, used = rows(broker, "2026-09", tmp_path)
    assert (first["PricingQuantity"], first["PricingUnit"], first["PricingCategory"]) == ("3.0", "Hours", "Dynamic")
    assert Decimal(first["ListUnitPrice"]).quantize(Decimal("0.0001")) == Decimal("3.3333")
    assert used["PricingCategory"] == "Committed"
    assert used["CommitmentDiscountStatus"] == "Used"
    assert used["CommitmentDiscountId"] == purchase["CommitmentDiscountId"] == "acme/r1/H100/reserved"
    assert purchase["ChargeFrequency"] == "One-Time"


def test_what_falls_due_over_the_time_of_a_purchase_recurs() -> None:
    tags = replace(RUN, job_id="buy-2", attempt=None, capacity_type=CapacityType.RESERVED)
    entry = spent(1, "24", SEPTEMBER, SEPTEMBER + DAY, SEPTEMBER + DAY, tags=tags)[1]
    (row,) = charges(SpentEntry(entry), BillingMonth.of(SEPTEMBER), "here")
    assert (row["ChargeCategory"], row["ChargeFrequency"], row["EffectiveCost"]) == ("Purchase", "Recurring", 0)


def test_what_is_held_and_not_used_is_a_row_that_adds_up(broker: Broker, tmp_path: Path) -> None:
    """Eight GPUs are held for 30 days, and used for an hour."""
    held = Holding(HoldingKind.RESERVATION, "H100", 8, "acme", "r1", SEPTEMBER, OCTOBER, upfront=Money.usd(700))
    hold(broker, held, OCTOBER - HOUR)
    *_, used, unused = rows(broker, "2026-09", tmp_path)
    assert used["CommitmentDiscountId"] == unused["CommitmentDiscountId"] == unused["ResourceId"]
    assert (used["CommitmentDiscountQuantity"], used["CommitmentDiscountUnit"]) == ("8.0", "GPU-Hours")
    assert (unused["CommitmentDiscountStatus"], unused["CommitmentDiscountQuantity"]) == ("Unused", "5752.0")
    assert (unused["ConsumedQuantity"], unused["BilledCost"], unused["EffectiveCost"]) == ("", "0.000000", "699.027778")
    assert (unused["x_Team"], unused["x_CapacityType"]) == ("", "reserved")


def test_use_elsewhere_is_use_of_what_is_held_of_the_kind() -> None:
    held = Holding(HoldingKind.OWNED, "H100", 1, "basement", "here", SEPTEMBER, OCTOBER, upfront=Money.usd(720))
    other = replace(held, site="attic")
    used = {"local/here/H100/owned": Decimal(800), "basement/here/H100/owned": Decimal(20)}
    month = BillingMonth.of(SEPTEMBER)
    (row,) = unused_rows([held, other], used, month, OCTOBER, "here")
    assert (row["ResourceId"], row["CommitmentDiscountQuantity"]) == ("basement/here/H100/owned", Decimal(620))
    assert row["EffectiveCost"] == 620_000_000
    assert not list(unused_rows([held], {"a/b/H100/owned": Decimal(999)}, month, OCTOBER, "here"))
    assert not list(unused_rows([held], {}, month, SEPTEMBER, "here")), "it was not there yet"


def test_a_closed_month_keeps_what_was_on_record_as_held(broker: Broker, tmp_path: Path) -> None:
    held = Holding(HoldingKind.OWNED, "H100", 8, "basement", "here", SEPTEMBER, OCTOBER, upfront=Money.usd(700))
    number = hold(broker, held, OCTOBER + 2 * DAY)
    before = rows(broker, "2026-09", tmp_path)
    broker.store.remove_holding(number, by="ann")
    assert rows(broker, "2026-09", tmp_path) == before
    broker.store.add_holding(held, by="ann")
    assert rows(broker, "2026-09", tmp_path) == before
    assert before[-1]["CommitmentDiscountStatus"] == "Unused"


def test_a_closed_month_stays_the_same_file_whatever_comes_later(broker: Broker, tmp_path: Path) -> None:
    rows(broker, "2026-09", tmp_path)
    before = (tmp_path / "2026-09-1.2.csv").read_bytes()
    with broker.store.writing() as tx:
        tx.post(spent(8, "99", SEPTEMBER, SEPTEMBER + HOUR, OCTOBER + 3 * DAY, movement=Movement.ADJUST))
    rows(broker, "2026-09", tmp_path)
    assert (tmp_path / "2026-09-1.2.csv").read_bytes() == before
    assert rows(broker, "2026-10", tmp_path)[-1]["x_MovementId"].endswith("/8")


def test_1_4_calls_providers_otherwise(broker: Broker, tmp_path: Path) -> None:
    first = rows(broker, "2026-09", tmp_path, "1.4")[0]
    assert first["ServiceProviderName"] == first["HostProviderName"] == "acme"
    assert "ProviderName" not in first


def test_parquet_has_the_same_values(broker: Broker, tmp_path: Path) -> None:
    import pyarrow.parquet

    text = rows(broker, "2026-09", tmp_path)
    out = tmp_path / "september.parquet"
    export(broker, "1.2", "2026-09", out)
    found = pyarrow.parquet.read_table(out).to_pylist()
    assert list(found[0]) == header("1.2")
    for row, same in zip(found, text, strict=True):
        assert row["BilledCost"] == Decimal(same["BilledCost"])
        assert row["PricingQuantity"] == (Decimal(same["PricingQuantity"]) if same["PricingQuantity"] else None)
        assert f"{row['ChargePeriodStart']:%Y-%m-%dT%H:%M:%SZ}" == same["ChargePeriodStart"]
        assert (row["Tags"] or "") == same["Tags"]


def test_the_file_is_private_and_no_draft_stays(broker: Broker, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    out = folder / "a.csv"
    export(broker, "1.2", "2026-09", out)
    assert out.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidInput, match="exists already"):
        export(broker, "1.2", "2026-10", out)
    assert [path.name for path in folder.iterdir()] == ["a.csv"]


@pytest.mark.parametrize(
    ("version", "month", "name", "error"),
    [
        ("1.0", "2026-09", "a.csv", UnknownName),
        ("1.2", "September", "a.csv", InvalidInput),
        ("1.2", "2026-13", "a.csv", InvalidInput),
        ("1.2", "2026-09", "a.xlsx", InvalidInput),
        ("1.2", "2026-09", "nowhere/a.csv", InvalidInput),
    ],
)
def test_what_cannot_be_written_is_refused(
    broker: Broker, tmp_path: Path, version: str, month: str, name: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        export(broker, version, month, tmp_path / name)
    assert not list(tmp_path.glob("**/*a.*"))


TIMES = st.datetimes(datetime(2026, 1, 1), datetime(2026, 8, 1), timezones=st.just(UTC))


@given(st.integers(-(10**12), 10**12).filter(bool), TIMES, st.timedeltas(timedelta(0), 100 * DAY), TIMES)
def test_all_months_together_are_the_entry_and_no_charge_leaves_its_month(
    micros: int, since: datetime, lasts: timedelta, posted: datetime
) -> None:
    entry = Entry("m", Movement.ADJUST, Account.SPENT, Money(micros), MoneyKind.CASH, posted, since, since + lasts, RUN)
    found, month = 0, BillingMonth.of(datetime(2025, 10, 1, tzinfo=UTC))
    while month.start < datetime(2027, 3, 1, tzinfo=UTC):
        for row in charges(SpentEntry(entry), month, "here"):
            billed, begins = row["BilledCost"], row["ChargePeriodStart"]
            assert isinstance(billed, int)
            assert isinstance(begins, datetime)
            found += billed
            assert begins < month.end
            assert (row["ChargeClass"] == "Correction") == (begins < month.start)
            assert posted < month.closes
        month = BillingMonth.of(month.end)
    assert found == micros


@given(st.integers(1, 10**12), st.timedeltas(timedelta(seconds=1), 20 * DAY), st.integers(1, 64))
def test_price_times_quantity_is_the_cost(micros: int, lasts: timedelta, nodes: int) -> None:
    entry = Entry(
        "m", Movement.SETTLE, Account.SPENT, Money(micros), MoneyKind.CASH, SEPTEMBER, SEPTEMBER, SEPTEMBER + lasts, RUN
    )
    (row,) = charges(SpentEntry(entry, "big", nodes), BillingMonth.of(SEPTEMBER), "here")
    price, quantity = row["ListUnitPrice"], row["PricingQuantity"]
    assert isinstance(price, Decimal)
    assert isinstance(quantity, Decimal)
    assert abs(price * quantity - Decimal(micros) / 10**6) < Decimal("0.0000005")


def test_names_that_a_spreadsheet_would_calculate_are_text_in_csv(
    new_broker: Callable[[], Broker], tmp_path: Path
) -> None:
    made = new_broker()
    tags = replace(RUN, team="=HYPERLINK(1)", project="+1", region="@here")
    with made.store.writing() as tx:
        tx.post(spent(1, "-2", SEPTEMBER, SEPTEMBER + HOUR, SEPTEMBER + DAY, movement=Movement.ADJUST, tags=tags))
    (row,) = rows(made, "2026-09", tmp_path)
    assert [row[name] for name in ("SubAccountName", "x_Team", "x_Project", "RegionId")] == [
        "'=HYPERLINK(1)", "'=HYPERLINK(1)", "'+1", "'@here",
    ]  # fmt: skip
    assert row["BilledCost"] == "-2.000000"
