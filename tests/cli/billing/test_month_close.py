"""The close of a month through the command line: late charges, refunds, credits, an invoice in another currency.

Situations of public reports: corrections of invoiced months (FOCUS_Spec pull requests 505 and 675), refunds that AWS
applies to a finalized report (its user guide, "Viewing your finalized report"), credits that tools ignored (Teevity/ice
138, microsoft/finops-toolkit 1794), and charges that come after the report of the month (sustainable-personal-accounts
84)."""

import csv
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.ledger.finops.focus.months import BillingMonth
from broker.reconciler.settlement.batch import post_due
from broker.store import Store
from tests.contracts.sweeping import record_jobs

NOW = BillingMonth.of(datetime.now(UTC))
OPEN = NOW if datetime.now(UTC) >= NOW.start + timedelta(days=3) else NOW.before
LAST = OPEN.before
OLD = LAST.before
"""A closed month, and the one after it, which is closed as well."""
RAN_AT = OLD.start + timedelta(days=10)


@pytest.fixture
def closed(store: Store, home: Path, gpubroker: Any) -> dict[str, Any]:
    """The frozen statement of a month with one attempt, ``over-1``, that cost $20."""
    with store.writing() as tx:
        record_jobs(tx, lasted=timedelta(hours=1), provider="pricebook", at=RAN_AT)
        view = tx.job("over")
        assert view is not None
        post_due(tx, [view], RAN_AT + timedelta(hours=2))
    statement: dict[str, Any] = gpubroker("report", "showback", "--month", OLD.name, "--freeze", "--json").json
    assert statement["charged"] == "20.00"
    return statement


def bill(gpubroker: Any, tmp_path: Path, rows: list[str], *options: str, header: str = "key,day,amount") -> Any:
    file = tmp_path / "bill.csv"
    file.write_text("\n".join([header, *rows]) + "\n")
    done = gpubroker("report", "charges", file, "--provider", "pricebook", *options, "--json")
    assert done.code == 0, done.err
    return done.json


def focus(gpubroker: Any, tmp_path: Path, month: str) -> bytes:
    out = tmp_path / f"{month}.csv"
    assert gpubroker("report", "focus", "--month", month, "--out", out, "--force").code == 0
    return out.read_bytes()


def test_a_month_without_charges_says_why_the_file_is_empty(gpubroker: Any, tmp_path: Path) -> None:
    out = tmp_path / "empty.csv"
    done = gpubroker("report", "focus", "--month", "month", "--out", out)
    assert "No job cost money: simulated jobs and machines at $0 an hour are no charges." in done.out
    assert len(out.read_text().splitlines()) == 1


DAY = f"{RAN_AT:%Y-%m-%d}"


@pytest.mark.parametrize(
    ("rows", "difference"),
    [
        ([f"over-1,{DAY},26"], "6.00"),  # a charge that came late
        ([f"over-1,{DAY},20", f"over-1,{DAY},-20"], "-20.00"),  # a refund of all of it
        ([f"over-1,{DAY},25", f"over-1,{DAY},-0.844161"], "4.155839"),  # a credit against it
    ],
)
def test_what_comes_late_is_in_the_month_now_open_with_its_origin(
    gpubroker: Any, tmp_path: Path, closed: dict[str, Any], rows: list[str], difference: str
) -> None:
    before = focus(gpubroker, tmp_path, OLD.name)
    found = bill(gpubroker, tmp_path, rows)
    assert [item["difference"] for item in found["adjusted"]] == [difference]
    assert focus(gpubroker, tmp_path, OLD.name) == before, "a closed month stays closed"
    open_month = focus(gpubroker, tmp_path, OPEN.name).decode()
    (correction,) = [row for row in csv.DictReader(open_month.splitlines()) if row["ChargeClass"] == "Correction"]
    assert float(correction["BilledCost"]) == float(difference)
    assert correction["ChargePeriodStart"].startswith(OLD.name)
    assert correction["BillingPeriodStart"].startswith(OPEN.name)
    frozen = gpubroker("report", "showback", "--month", OLD.name, "--frozen", "--json").json
    assert {name: frozen[name] for name in ("rows", "charged", "frozen_at")} == {
        name: closed[name] for name in ("rows", "charged", "frozen_at")
    }
    assert [(item["month"], item["amount"]) for item in frozen["corrected_since"]] == [(OLD.name, difference)]
    following = gpubroker("report", "showback", "--month", LAST.name, "--freeze", "--json").json
    assert [(item["month"], item["amount"]) for item in following["corrections"]] == [(OLD.name, difference)]
    assert following["charged"] == difference
    assert gpubroker("report", "showback", "--month", OLD.name, "--freeze").code == 2


def test_a_restated_bill_replaces_the_charge_and_is_corrected_once(
    gpubroker: Any, tmp_path: Path, closed: dict[str, Any]
) -> None:
    bill(gpubroker, tmp_path, [f"over-1,{DAY},26"])
    file = tmp_path / "bill.csv"
    file.write_text(f"key,day,amount\nover-1,{DAY},23\n")
    assert gpubroker("report", "charges", file, "--provider", "pricebook").code == 2, "it was final"
    bill(gpubroker, tmp_path, [f"over-1,{DAY},23"], "--replace")
    bill(gpubroker, tmp_path, [f"over-1,{DAY},23"], "--replace")
    frozen = gpubroker("report", "showback", "--month", OLD.name, "--frozen", "--json").json
    assert [item["amount"] for item in frozen["corrected_since"]] == ["3.00"]


def test_an_invoice_in_another_currency_has_its_rate_and_day(
    gpubroker: Any, tmp_path: Path, closed: dict[str, Any]
) -> None:
    rate, header = f"EUR=1.0821@{OLD.end:%Y-%m-%d}", "key,day,amount,currency"
    row = f"over-1,{DAY},20,EUR"
    file = tmp_path / "bill.csv"
    file.write_text(f"{header}\n{row}\n")
    refused = gpubroker("report", "charges", file, "--provider", "pricebook")
    assert refused.code == 2
    assert "line 2: in EUR; expected USD, or the rate of its invoice: --rate EUR=" in refused.err
    for wrong in ("EUR", "EUR=0@2026-11-30", "EUR=1.08", "USD=1@2026-11-30", "EUR=1.08@2026-11-31"):
        refused = gpubroker("report", "charges", file, "--provider", "pricebook", "--rate", wrong)
        assert (refused.code, "--rate EUR=1.0821@2026-11-30" in refused.err) == (2, True)
    found = bill(gpubroker, tmp_path, [row], "--rate", rate, header=header)
    assert found["rate"] == f"1 EUR = 1.0821 USD, {OLD.end:%Y-%m-%d}"
    assert [(item["billed"], item["difference"]) for item in found["adjusted"]] == [("21.642", "1.642")]
    assert gpubroker("report", "billed", "--json").json["sources"] == [f"bill.csv, {found['rate']}"]
    assert f"charges read from bill.csv, {found['rate']}" in gpubroker("report", "billed").out
    assert bill(gpubroker, tmp_path, [row], "--rate", rate, header=header)["adjusted"] == [], "once"


def test_an_export_in_another_currency_is_converted(gpubroker: Any, tmp_path: Path, closed: dict[str, Any]) -> None:
    header = "BilledCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,ProviderName,ResourceName"
    end = f"{RAN_AT + timedelta(days=1):%Y-%m-%d}"
    rows = [f"{amount},{DAY}T00:00:00Z,{end}T00:00:00Z,pricebook,over-1" for amount in ("20,EUR", "1,USD", "9,GBP")]
    found = bill(gpubroker, tmp_path, rows, "--rate", "EUR=1.5@2026-01-31", header=header)
    assert [item["billed"] for item in found["adjusted"]] == ["31.00"]
    assert [item["reason"] for item in found["skipped"]] == ["in GBP; amounts are in USD"]
