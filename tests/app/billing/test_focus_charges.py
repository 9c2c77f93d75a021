"""Providers' FOCUS files, read as charges by attempt and compared with the ledger."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.app.billing.charges import billed_by_file
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
    assert read.other_currencies == {"EUR": 3}
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InvalidInput, match="no file that ends in"):
        read_focus_charges(empty)


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
    found = billed_by_file(broker, file)
    assert {(one.key, one.metered, one.billed, one.difference) for one in found.rows} == {
        (key, Money.usd(50), Money.usd("53.25"), Money.usd("3.25")),
        (other, Money.usd(50), None, None),
    }
    assert found.for_others == {"acme": Money.usd(4)}
    assert broker.store.charges.all() == []
