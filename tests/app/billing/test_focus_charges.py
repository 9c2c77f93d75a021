"""Providers' FOCUS files, read as charges by attempt and compared with the ledger."""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.app.billing.charges import compare_export
from broker.app.billing.focus import export
from broker.app.billing.focus_charges import read_focus_charges
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.core.market.capacity import Charge
from broker.core.values.money import Money
from tests.app.billing.test_charges import GONE, UP, ran
from tests.focus_ledger import post_two_months

HEADER = "BilledCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,ProviderName,ResourceId,Tags"
SEPTEMBER = datetime(2026, 9, 1, tzinfo=UTC)


def quoted(tags: dict[str, str]) -> str:
    return '"' + json.dumps(tags).replace('"', '""') + '"'


def write(folder: Path, *lines: str, header: str = HEADER) -> Path:
    path = folder / "focus.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def charges_of(export: Path) -> list[Charge]:
    return read_focus_charges(export).charges


def hour(number: int) -> str:
    return f"2026-09-01 {number:02d}:00:00"  # without a zone, as some write it


def test_an_export_as_clouds_write_it_is_read_whole(tmp_path: Path) -> None:
    """A folder of packed parts, names with a legal form, a row in another currency."""
    parts = tmp_path / "export" / "BILLING_PERIOD=2026-09"
    parts.mkdir(parents=True)
    for number in range(3):
        row = f'1.5,USD,{hour(number)},{hour(number + 1)},"Amazon Web Services, Inc.",i-0a,'
        euros = f'9,EUR,{hour(number)},{hour(number + 1)},"Amazon Web Services, Inc.",i-0a,'
        with gzip.open(parts / f"part-{number}.csv.gz", "wt") as part:
            part.write("\n".join([HEADER, row, euros]) + "\n")
    read = read_focus_charges(tmp_path / "export")
    assert [(one.provider, one.amount) for one in read.charges] == [("aws", Money.usd("4.5"))]
    (skipped,) = read.skipped
    assert (skipped.reason, skipped.rows, skipped.samples[0]) == (
        "in EUR; amounts are in USD", 3, f"{parts / 'part-0.csv.gz'}:3",
    )  # fmt: skip
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InvalidInput, match="no file that ends in"):
        read_focus_charges(empty)


def test_columns_may_be_separated_by_semicolons(tmp_path: Path) -> None:
    path = write(tmp_path, row("10").replace(",", ";"), header=HEADER.replace(",", ";"))
    assert [(charge.provider, charge.amount) for charge in charges_of(path)] == [("aws", Money.usd(10))]


RUNS = ("20261110T041500Z-aaaa", "20261111T041500Z-bbbb")


def row(amount: str, *, resource: str = "i-0a", at: int = 0) -> str:
    return f"{amount},USD,{hour(at)},{hour(at + 1)},Amazon Web Services,{resource},"


def placed(folder: Path, name: str, *lines: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join([HEADER, *lines]) + "\n"
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())


def manifest(folder: Path, name: str, body: dict[str, object]) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(body))


def aws(run: str, *names: str) -> dict[str, object]:
    files = [f"s3://bucket/costs/focus/data/BILLING_PERIOD=2026-09/{name}" for name in names]
    return {"executionId": run.rpartition("-")[2], "exportArn": "arn:aws:bcm", "dataFiles": files}


def azure(folder: str, run: str, submitted: str) -> dict[str, object]:
    info = {"runId": run, "submittedTime": submitted, "startDate": "2026-09-01", "endDate": "2026-09-30"}
    return {"runInfo": info, "blobs": [{"blobName": f"{folder}/{run}/part_0_0001.csv"}]}


def test_of_several_runs_in_a_folder_the_newest_of_each_month_counts(tmp_path: Path) -> None:
    for run, amount in zip(RUNS, ("10", "12.5"), strict=True):
        for number in (1, 2):
            placed(tmp_path, f"data/BILLING_PERIOD=2026-09/{run}/focus-0000{number}.csv.gz", row(amount, at=number))
        names = [f"{run}/focus-0000{number}.csv.gz" for number in (1, 2)]
        manifest(tmp_path, f"metadata/BILLING_PERIOD=2026-09/{run}/focus-Manifest.json", aws(run, *names))
    placed(tmp_path, "data/BILLING_PERIOD=2026-08/focus-00001.csv.gz", row("100", at=9))
    read = read_focus_charges(tmp_path)
    assert sum((one.amount for one in read.charges), Money.ZERO) == Money.usd(125)
    assert {one.parent.name for one in read.superseded} == {RUNS[0]}


def test_one_manifest_beside_the_folders_of_runs_names_the_newest(tmp_path: Path) -> None:
    for run, amount in zip(("zz-1", "aa-2"), ("10", "12.5"), strict=True):
        placed(tmp_path, f"data/BILLING_PERIOD=2026-09/{run}/focus-00001.csv", row(amount))
    manifest(tmp_path, "metadata/BILLING_PERIOD=2026-09/focus-Manifest.json", aws("aa-2", "aa-2/focus-00001.csv"))
    assert [one.amount for one in charges_of(tmp_path)] == [Money.usd("12.5")]
    (tmp_path / "data/BILLING_PERIOD=2026-09/aa-2/focus-00001.csv").unlink()
    with pytest.raises(InvalidInput, match=r"focus-Manifest.json: names s3://.*, which is not in the folder"):
        charges_of(tmp_path)


def test_a_chunk_that_the_newest_run_overwrote_no_more_is_left_out(tmp_path: Path) -> None:
    for number in (1, 2):
        placed(tmp_path, f"data/BILLING_PERIOD=2026-09/focus-0000{number}.csv", row("5", at=number))
    manifest(tmp_path, "metadata/BILLING_PERIOD=2026-09/focus-Manifest.json", aws("run", "focus-00001.csv"))
    assert [one.amount for one in charges_of(tmp_path)] == [Money.usd(5)]


def test_runs_of_azure_are_ordered_by_when_they_were_submitted(tmp_path: Path) -> None:
    for run, amount, day in (("f0", "10", "10"), ("0f", "12.5", "11")):
        placed(tmp_path, f"daily/20260901-20260930/{run}/part_0_0001.csv", row(amount))
        body = azure("exports/daily/20260901-20260930", run, f"2026-09-{day}T05:00:00Z")
        manifest(tmp_path, f"daily/20260901-20260930/{run}/manifest.json", body)
    assert [one.amount for one in charges_of(tmp_path)] == [Money.usd("12.5")]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("data/run-1/focus-1.csv", "data/run-2/focus-1.csv"),
        ("focus.csv", "focus.csv.gz"),
        ("focus.csv", "focus (1).csv"),
        ("focus-1.csv", "focus-2.csv"),
    ],
)
def test_files_with_the_same_charges_are_refused_and_named(tmp_path: Path, first: str, second: str) -> None:
    """A later run corrects an amount and knows a day more."""
    placed(tmp_path, first, row("10"), row("4", resource="i-0b"))
    placed(tmp_path, second, row("12.5"), row("4", resource="i-0b"), row("3", at=8))
    with pytest.raises(InvalidInput) as refused:
        charges_of(tmp_path)
    assert f"{', '.join(sorted((first, second)))} contain the same charges" in str(refused.value)
    assert "leave the files of one run in the folder" in refused.value.hint


def test_a_parquet_copy_beside_the_csv_is_refused(new_broker: Callable[[], Broker], tmp_path: Path) -> None:
    broker = new_broker()
    post_two_months(broker.store)
    export(broker, "1.4", "2026-09", tmp_path / "a.csv")
    export(broker, "1.4", "2026-10", tmp_path / "b.csv")
    months = charges_of(tmp_path)
    assert months
    export(broker, "1.4", "2026-09", tmp_path / "a.parquet")
    with pytest.raises(InvalidInput, match=r"a.csv, a.parquet contain the same charges"):
        charges_of(tmp_path)


def test_what_touches_is_one_charge_and_what_does_not_is_another(tmp_path: Path) -> None:
    tagged = quoted({"user:gpubroker": "train-abc-1"})
    found = charges_of(
        write(
            tmp_path,
            f"1.1234567,USD,{hour(0)},{hour(1)},Amazon Web Services,i-0a,{tagged}",
            f"1.1234567,USD,{hour(1)},{hour(2)},Amazon Web Services,i-0a,{tagged}",
            f"5,USD,{hour(9)},{hour(10)},Amazon Web Services,i-0a,{tagged}",
            f"7,USD,{hour(3)},{hour(4)},Amazon Web Services,i-0b,NULL",
            f"8,USD,{hour(6)},{hour(7)},Amazon Web Services,i-0c,{{}}",
            f"-2,USD,{hour(0)},{hour(1)},Microsoft,/subscriptions/x/train-abc-2,",
        )
    )
    zero, two, nine = (SEPTEMBER + timedelta(hours=hours) for hours in (0, 2, 9))
    assert sorted(found, key=lambda one: (one.provider, one.key, one.starts)) == [
        Charge("aws", SEPTEMBER + timedelta(hours=3), SEPTEMBER + timedelta(hours=7), Money.usd(15), "", False),
        Charge("aws", zero, two, Money.usd("2.246913"), "train-abc-1", False),
        Charge("aws", nine, nine + timedelta(hours=1), Money.usd(5), "train-abc-1", False),
        Charge("azure", zero, zero + timedelta(hours=1), Money.usd(-2), "train-abc-2", False),
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('"12,345",USD,2026-09-01,2026-09-02,aws,,', "focus.csv:2: BilledCost is '12,345'"),
        ("x,USD,2026-09-01,2026-09-02,aws,,", "focus.csv:2: BilledCost is 'x'"),
        ("1e999999,USD,2026-09-01,2026-09-02,aws,,", "focus.csv:2: BilledCost is '1e999999'"),
        ("1,USD,Monday,2026-09-02,aws,,", "focus.csv:2: ChargePeriodStart is 'Monday'"),
        ("1,USD,0001-01-01T00:00+05:00,2026-09-02,aws,,", "focus.csv:2: ChargePeriodStart is '0001-01-01"),
        ("1,USD,2026-09-01,9999-12-31T23:59:59.999999Z,aws,,", "focus.csv:2: ChargePeriodEnd is '9999-12-31"),
        ("1,USD,2026-09-01,2026-09-02,NULL,,", "focus.csv:2: the provider is missing"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_its_row(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_focus_charges(write(tmp_path, line))
    assert says in str(caught.value)


def test_a_file_that_is_not_focus_names_the_columns_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="lacks the FOCUS columns BilledCost, BillingCurrency"):
        read_focus_charges(write(tmp_path, "1,2", header="Cost,Day"))
    (tmp_path / "no.parquet").write_text("text")
    with pytest.raises(InvalidInput, match="is not a Parquet file"):
        read_focus_charges(tmp_path / "no.parquet")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_focus_charges(tmp_path / "absent.csv")


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
@pytest.mark.parametrize("version", ["1.2", "1.4"])
def test_our_own_export_is_read_back(new_broker: Callable[[], Broker], tmp_path: Path, name: str, version: str) -> None:
    broker = new_broker()
    post_two_months(broker.store)
    out = tmp_path / name
    done = export(broker, version, "2026-09", out)
    found = charges_of(out)
    assert sum((one.amount for one in found), Money.ZERO) == done.billed_cost
    assert {one.provider for one in found} == {"acme"}
    assert "train-abc-1" in {one.key for one in found}


def test_a_file_is_compared_and_changes_nothing(new_broker: Callable[[], Broker], tmp_path: Path) -> None:
    broker = new_broker()
    key, other = ran(broker, "train"), ran(broker, "forgotten")
    file = write(
        tmp_path,
        f"53.25,USD,{UP.isoformat()},{GONE.isoformat()},acme,i-0a,{quoted({'gpubroker': key})}",
        f"4,USD,{UP.isoformat()},{GONE.isoformat()},acme,i-0d,",
    )
    found = compare_export(broker, file)
    assert {(one.key, one.metered, one.billed, one.difference) for one in found.rows} == {
        (key, Money.usd(50), Money.usd("53.25"), Money.usd("3.25")),
        (other, Money.usd(50), None, None),
    }
    assert found.for_others == {"acme": Money.usd(4)}
    assert broker.store.charges.all() == []
