"""A simulated quarter as FOCUS: every micro-dollar of the ledger once, per team and in all, and prices that add up."""

import csv
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from broker.app.billing.focus import export
from broker.app.wiring import Broker
from broker.core.market.offers import MoneyKind
from broker.ledger.entries import Account
from tests.focus_quarter import MONTHS, post_quarter


@pytest.fixture
def rows(new_broker: Callable[[], Broker], tmp_path: Path) -> tuple[Broker, list[dict[str, str]]]:
    broker = new_broker()
    post_quarter(broker.store)
    found = []
    for month in (*MONTHS, "2026-11"):
        export(broker, "1.2", month, tmp_path / f"{month}.csv")
        with (tmp_path / f"{month}.csv").open(newline="") as file:
            found += list(csv.DictReader(file))
    return broker, found


def test_all_months_are_the_ledgers_cash_and_amortised_view_by_team(rows: tuple[Broker, list[dict[str, str]]]) -> None:
    broker, found = rows
    billed, effective, paid, used = (defaultdict[str, Decimal](Decimal) for _ in range(4))
    for row in found:
        billed[row["x_Team"]] += Decimal(row["BilledCost"])
        effective[row["x_Team"]] += Decimal(row["EffectiveCost"] if row["CommitmentDiscountStatus"] != "Unused" else 0)
    with broker.store.reading() as look:
        for entry in look.all_entries():
            if entry.account is Account.SPENT and entry.money is not MoneyKind.SANDBOX:
                team, amount = entry.tags.team or "", entry.amount.dollars
                paid[team] += amount if entry.money is MoneyKind.CASH else 0
                used[team] += 0 if entry.tags.job_id.startswith("buy-") else amount
    assert billed == paid
    assert effective == used


def test_every_kind_of_charge_is_there_and_costs_are_price_times_quantity(
    rows: tuple[Broker, list[dict[str, str]]],
) -> None:
    found = rows[1]
    assert {row["x_CapacityType"] for row in found} == {"owned", "reserved", "on_demand", "spot"}
    assert {row["ChargeCategory"] for row in found} == {"Usage", "Purchase", "Adjustment"}
    assert {row["ChargeClass"] for row in found} == {"", "Correction"}
    assert {row["PricingCategory"] for row in found} == {"", "Committed", "Dynamic", "Standard"}
    for row in found:
        if row["ListUnitPrice"]:
            cost = Decimal(row["ListUnitPrice"]) * Decimal(row["PricingQuantity"])
            assert abs(cost - Decimal(row["ListCost"])) < Decimal("0.000001"), row["x_MovementId"]


def test_used_and_unused_hours_of_each_commitment_are_what_was_held(rows: tuple[Broker, list[dict[str, str]]]) -> None:
    """In each month of the quarter, to the billionth of an hour; later corrections are no hours of their month."""
    broker, found = rows
    hours: defaultdict[tuple[str, str], Decimal] = defaultdict(Decimal)
    idle: defaultdict[str, Decimal] = defaultdict(Decimal)
    for row in found:
        if row["CommitmentDiscountStatus"] and not row["ChargeClass"]:
            hours[row["CommitmentDiscountId"], row["BillingPeriodStart"][:7]] += Decimal(
                row["CommitmentDiscountQuantity"]
            )
        if row["CommitmentDiscountStatus"] == "Unused":
            assert (row["ConsumedQuantity"], row["x_Team"], row["ResourceId"]) == ("", "", row["CommitmentDiscountId"])
            idle[row["CommitmentDiscountId"]] += Decimal(row["EffectiveCost"])
    for held in (recorded.holding for recorded in broker.store.holdings()):
        name = f"{held.provider}/{held.site}/{held.accelerator}/{'owned' if held.kind == 'owned' else 'reserved'}"
        for month, days in (("2026-07", 31), ("2026-08", 31), ("2026-09", 30)):
            assert hours[name, month] == days * 24 * held.gpus
    assert idle["bigcloud/us/H100/reserved"] == 92 * 24 * 24, "paid by the hour, and never used"
    assert set(idle) == {"bigcloud/us/H100/reserved", "bigcloud/eu/H100/reserved", "basement/here/L40S/owned"}
