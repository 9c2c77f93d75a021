"""`gpubroker report billed` and `gpubroker report charges`, on a store with one job that cost money."""

import gzip
import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.reconciler.settlement.batch import post_due
from broker.store import Store
from tests.contracts.sweeping import LONG_AGO, record_jobs


@pytest.fixture
def ran(store: Store, home: Path) -> str:
    """The key of an attempt that cost $20: an hour at twenty dollars, two days ago."""
    with store.writing() as tx:
        record_jobs(tx, lasted=timedelta(hours=1), provider="pricebook")
        view = tx.job("over")
        assert view is not None
        post_due(tx, [view], LONG_AGO)
    return "over-1"


def bill(tmp_path: Path, key: str, amount: str) -> Path:
    path = tmp_path / "bill.csv"
    days = [f"{LONG_AGO + timedelta(days=day):%Y-%m-%d}" for day in range(2)]
    path.write_text(f"key,day,amount\n{key},{days[0]},{amount}\n{key},{days[1]},0\n,{days[1]},3\n")  # over midnight
    return path


def test_nothing_ran(gpubroker: Any, home: Path) -> None:
    done = gpubroker("report", "billed")
    assert done.code == 0
    assert "no attempt paid in cash" in done.out
    assert gpubroker("report", "charges").code == 0


def test_from_a_file_to_the_ledger(gpubroker: Any, ran: str, tmp_path: Path) -> None:
    before = gpubroker("report", "billed", "--json").json
    assert [row["billed"] for row in before["rows"]] == [None]
    done = gpubroker("report", "charges", bill(tmp_path, ran, "26"), "--provider", "pricebook", "--json")
    assert done.code == 0
    (adjusted,) = done.json["adjusted"]
    assert adjusted == {"key": ran, "metered": "20.00", "billed": "26.00", "difference": "6.00"}
    assert done.json["unknown"] == []
    assert len(done.json["alerts"]) == 2
    again = gpubroker("report", "charges", bill(tmp_path, ran, "26"), "--provider", "pricebook", "--json")
    assert (again.json["changed"], again.json["adjusted"]) == ({"pricebook": 0}, [])
    after = gpubroker("report", "billed", "--by", "job", "--json").json
    row = next(one for one in after["rows"] if one["group"] == "over")
    assert (row["quoted"], row["metered"], row["billed"], row["difference"], row["adjusted"]) == (
        "20.00", "20.00", "26.00", "6.00", "6.00",
    )  # fmt: skip
    assert (row["on_own"], row["rented"]) == ("0.00", "20.00")
    assert after["for_others"] == {"pricebook": "3.00"}
    (kind,) = gpubroker("report", "billed", "--by", "capacity_type", "--json").json["rows"]
    assert (kind["group"], kind["rented"]) == ("spot", "20.00")
    shown = gpubroker("report", "billed", "--by", "attempt").out
    assert "+$6.00 (+30.0 %)" in shown
    assert "pricebook charged $3.00 for resources outside gpubroker" in shown


def test_charges_for_what_is_not_known_here_are_told(gpubroker: Any, home: Path, tmp_path: Path) -> None:
    file = bill(tmp_path, "over-1", "26")
    done = gpubroker("report", "charges", file, "--provider", "pricebook")
    assert "warning: no attempt in this store had the key over-1" in done.err
    assert gpubroker("report", "charges", file, "--provider", "pricebook", "--json").json["unknown"] == ["over-1"]
    assert "pricebook charged $29.00 for resources outside gpubroker" in gpubroker("report", "billed").out


def test_what_cannot_be_grouped_by(gpubroker: Any, home: Path) -> None:
    done = gpubroker("report", "billed", "--by", "colour")
    assert done.code == 2
    assert "attempt, capacity_type, job, provider" in done.err


def test_a_focus_file_is_compared(gpubroker: Any, ran: str, tmp_path: Path) -> None:
    day = [f"{LONG_AGO + timedelta(days=day):%Y-%m-%dT00:00:00Z}" for day in (0, 2)]
    file = tmp_path / "focus.csv"
    header = "BilledCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,ProviderName,ResourceName"
    file.write_text(f"{header}\n26,USD,{day[0]},{day[1]},pricebook,{ran}\n3,USD,{day[0]},{day[1]},pricebook,\n")
    found = gpubroker("report", "billed", "--focus", file, "--json").json
    assert [(row["metered"], row["billed"], row["difference"]) for row in found["rows"]] == [("20.00", "26.00", "6.00")]
    assert found["for_others"] == {"pricebook": "3.00"}
    assert gpubroker("report", "billed", "--json").json["rows"][0]["billed"] is None, "nothing was recorded"
    assert gpubroker("report", "billed", "--focus", file, "--since", "7d").code == 2


@pytest.mark.parametrize("name", ["lambda", "lambda_cloud", "Lambda Labs"])
def test_charges_of_a_provider_under_any_of_its_names_are_matched(
    gpubroker: Any, store: Store, home: Path, tmp_path: Path, name: str
) -> None:
    with store.writing() as tx:
        record_jobs(tx, lasted=timedelta(hours=1), provider="lambda")
        post_due(tx, [tx.job("over")], LONG_AGO)  # type: ignore[list-item]  # just recorded
    done = gpubroker("report", "charges", bill(tmp_path, "over-1", "26"), "--provider", name, "--json")
    assert (done.code, done.json["unknown"]) == (0, [])
    assert [(one["key"], one["billed"]) for one in done.json["adjusted"]] == [("over-1", "26.00")]
    assert gpubroker("report", "billed", "--json").json["for_others"] == {"lambda": "3.00"}
    focus = tmp_path / "focus.csv"
    focus.write_text(
        "BilledCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,ProviderName,ResourceId,Tags\n"
        f"26,USD,{LONG_AGO:%Y-%m-%d} 00:00:00,{LONG_AGO:%Y-%m-%d} 23:00:00,{name},i-1,"
        '"{""gpubroker"": ""over-1""}"\n'
    )
    rows = gpubroker("report", "billed", "--focus", focus, "--by", "attempt", "--json").json["rows"]
    assert [(row["group"], row["billed"]) for row in rows if row["billed"] is not None] == [("over-1", "26.00")]


@pytest.mark.parametrize("form", ["bill.csv", "bill.csv.gz", "parts"])
def test_a_focus_export_is_imported_in_each_form(gpubroker: Any, ran: str, tmp_path: Path, form: str) -> None:
    day = [f"{LONG_AGO + timedelta(days=number):%Y-%m-%dT00:00:00Z}" for number in range(3)]
    header = "BilledCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,ProviderName,ResourceName"
    rows = [
        f"26,USD,{day[0]},{day[2]},pricebook,{ran}",
        f"9,EUR,{day[0]},{day[1]},pricebook,",
        f"3,USD,{day[0]},{day[1]},aws,",
    ]
    text, path = "\n".join([header, *rows]) + "\n", tmp_path / form
    if form == "parts":
        path.mkdir()
        (path / "part-1.csv").write_text(text)
    else:
        path.write_bytes(gzip.compress(text.encode()) if form.endswith("gz") else text.encode())
    done = gpubroker("report", "charges", path, "--provider", "pricebook", "--json")
    assert (done.code, list(done.json["changed"])) == (0, ["pricebook"]), done.err
    assert [item["billed"] for item in done.json["adjusted"]] == ["26.00"]
    assert [(item["rows"], item["reason"]) for item in done.json["skipped"]] == [(1, "in EUR; amounts are in USD")]


def test_a_charge_of_the_future_and_a_file_of_another_kind_are_refused(gpubroker: Any, tmp_path: Path) -> None:
    path = tmp_path / "bill.csv"
    today = datetime.now(UTC).date()
    for starts, ends, mistake in (
        (today + timedelta(days=2), today + timedelta(days=3), "begins in the future"),
        (today - timedelta(days=2), today + timedelta(days=34), "ends more than 32 days from now"),
        (date(1, 1, 1), today, "begins more than ten years ago"),
    ):
        path.write_text(f"key,starts,ends,amount,provider\n,{starts},{ends},12.50,vultr\n")
        refused = gpubroker("report", "charges", path)
        assert (refused.code, f"a charge of $12.50 for {starts} to {ends} {mistake}" in refused.err) == (2, True)
    path.write_text(f"key,day,amount,provider\n,{datetime.now(UTC) - timedelta(days=4):%Y-%m-%d},12.50,do\n")
    assert gpubroker("report", "charges", path, "--json").json["changed"] == {"digitalocean": 1}
    path.write_bytes(b"PK\x03\x04\x8b\xff")
    refused = gpubroker("report", "charges", path, "--provider", "pricebook")
    assert (refused.code, "is not a CSV file in UTF-8\n" in refused.err) == (2, True)
    assert "codec" not in refused.err
    assert "expected key,starts,ends,amount" in refused.err


def test_a_pipe_is_refused_in_one_line(gpubroker: Any, home: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = gpubroker("report", "charges", str(tmp_path / "pipe"), "--provider", "vast")
    assert done.code == 2
    assert done.err.count("\n") == 2
    assert "is a pipe or a device; expected a file or a folder" in done.err
