"""`gpubroker prices history`."""

import csv
import importlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from broker.app.market.price_documents import PriceHistoryList
from broker.app.market.price_history import PriceHistories, PriceHistory
from broker.cli.prices.history import history_chart
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.store import open_store
from broker.store.records import PricePoint

HOUR = timedelta(hours=1)


@pytest.fixture
def market(home: Path) -> datetime:
    """Ten days of two pools, polled every six hours; the time of the last poll."""
    store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock())
    last = datetime.now(UTC) - HOUR
    for n in range(40, -1, -1):
        at = last - n * 6 * HOUR
        offers = [pool("use1-az1", 24 - n // 10, at), pool("use1-az6", 16, at)]
        if 8 <= n < 12:
            offers = offers[:1]
        store.record_poll("aws", started=at, finished=at, offers=offers)
    store.close()
    return last


def pool(zone: str, price: int, at: datetime) -> Offer:
    return Offer(
        provider="aws", region="us-east-1", zone=zone, instance_type="p5.48xlarge", accelerator="H100", count=8,
        capacity_type=CapacityType.SPOT, price=Money.usd(price), as_of=at, source="spot", max_age=24 * HOUR,
        availability=Availability.AVAILABLE, score=0.7, interruption_rate=0.05,
    )  # fmt: skip


LIVE = ("--gpu", "H100:8", "-w", "capacity_type=spot,provider=aws")


def test_a_row_a_series(gpubroker: Any, market: datetime) -> None:
    done = gpubroker("prices", "history", *LIVE)
    assert done.code == 0
    assert "2 of 2 series shown" in done.out
    first, second = [line.split() for line in done.out.splitlines() if line.startswith("aws")]
    assert first[2] == "use1-az6"
    assert "$2.00" in first
    assert "+20.0%" in second


def test_the_document_has_every_change(gpubroker: Any, market: datetime) -> None:
    document = gpubroker("prices", "history", *LIVE, "--json").json
    assert document["matching"] == 2
    cheap, dear = document["series"]
    assert [point["price_per_gpu_hour"] for point in dear["prices"]] == ["2.50", "2.625", "2.75", "2.875", "3.00"]
    assert [point["price_per_hour"] for point in cheap["prices"]] == ["16.00", None, "16.00"]
    assert (dear["first_price_per_hour"], dear["last_price_per_hour"]) == ("20.00", "24.00")
    assert Decimal("20") < Decimal(dear["mean_price_per_hour"]) < Decimal("24")
    assert dear["price_changes"] == 4
    assert [point["availability"] for point in cheap["availability"]] == ["available", None, "available"]
    assert cheap["signals"][0]["interruption_rate"] == 0.05
    assert cheap["available_part"] == 1.0
    assert {"as_of", "from", "to"} <= set(document)


def test_one_series_alone_shows_each_change(gpubroker: Any, market: datetime) -> None:
    done = gpubroker("prices", "history", *LIVE, "--last", "3d", "--json")
    assert [len(series["prices"]) for series in done.json["series"]] == [3, 2]
    done = gpubroker("prices", "history", "--gpu", "H100:8", "-w", "provider=aws,region=us-east-1,capacity_type=spot")
    assert "not offered" not in done.out  # two series: only their sums
    assert done.out.count("$3.00") == 2


def test_charts(gpubroker: Any, market: datetime) -> None:
    done = gpubroker("prices", "history", *LIVE, "--chart")
    assert done.code == 0
    assert "USD per GPU-hour" in done.out
    assert "aws use1-az6 p5.48xlarge spot" in done.out
    assert "┤" in done.out
    assert "2 of 2" not in done.out
    done = gpubroker("prices", "history", *LIVE, "--chart", "--json")
    assert len(done.json["series"]) == 2
    assert "┤" in done.err


def test_lines_of_the_same_name_are_told_apart_by_their_source(gpubroker: Any, market: datetime, home: Path) -> None:
    store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock())
    other = replace(pool("use1-az6", 17, market), source="catalogue")
    store.record_poll("other", started=market, finished=market, offers=[other])
    store.close()
    drawn = gpubroker("prices", "history", *LIVE, "--chart").out
    assert "aws use1-az6 p5.48xlarge spot by spot" in drawn
    assert "aws use1-az6 p5.48xlarge spot by catalogue" in drawn
    assert "aws use1-az1 p5.48xlarge spot by" not in drawn
    reference = gpubroker(
        "prices", "history", "--gpu", "H100:8", "-w", "provider=aws,capacity_type=on-demand", "--chart"
    ).out
    assert "on-demand (reference)" in reference


def test_what_makes_no_sense_is_refused(gpubroker: Any, market: datetime) -> None:
    for arguments, said in (
        (("-w", "provider=awz"), "did you mean 'aws'?"),
        (("-w", "region=us-eest-1"), "did you mean 'us-east-1'?"),
        (("-w", "capacity_type=spott"), "did you mean 'spot'?"),
        (("--gpu", "H10O"), "did you mean 'H100'?"),
        (("--from", "yesterday"), "expected a date"),
        (("--from", "0001-01-01"), "--since"),
        (("--to", "2026-13-01"), "expected a date"),
        (("--last", "0d"), "greater than zero"),
        (("--last", "soon"), "expected a duration"),
        (("--last", "3d", "--from", "2026-01-01"), "give --last, or"),
        (("--from", "2026-03-01", "--to", "2026-02-01"), "before it begins"),
        (("--from", "2099-01-01"), "in the future"),
    ):
        done = gpubroker("prices", "history", *arguments)
        assert done.code == 2, arguments
        assert said in done.err, arguments


def test_an_empty_history_says_why(gpubroker: Any, market: datetime) -> None:
    none = ("--gpu", "B200:8", "-w", "provider=aws,capacity_type=spot")
    assert "no matching prices" in gpubroker("prices", "history", *none).out
    done = gpubroker("prices", "history", *none, "--from", "2020-01-01", "--to", "2020-02-01")
    assert "first poll of this store was" in done.out
    assert gpubroker("prices", "history", *none, "--json").json["series"] == []
    done = gpubroker("prices", "history", *none, "--chart")
    assert done.code == 0
    assert "nothing to draw" in done.out


def test_one_poll_makes_a_chart_of_points() -> None:
    at = datetime.now(UTC)
    told = (PricePoint(at, Money.usd(24), at),)
    one = PriceHistory(pool("use1-az1", 24, at), at - HOUR, at, at, None, told, (), ())
    (line,) = history_chart(
        PriceHistoryList.of(PriceHistories((one,), 1, 0, at - HOUR, at, at, None)), "H100:8", 8
    ).lines
    assert (line.x, line.y) == ([at], [3.0])  # no line from here to here, which nobody would see


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_prices_are_exported_as_a_notebook_reads_them(
    gpubroker: Any, market: datetime, tmp_path: Path, form: str
) -> None:
    out = tmp_path / f"prices.{form}"
    done = gpubroker("prices", "export", out, *LIVE)
    assert (done.code, "7 prices of 2 series written to" in done.out) == (0, True)
    rows: list[dict[str, Any]]
    if form == "csv":
        rows = [dict(row) for row in csv.DictReader(out.open())]
    else:
        rows = importlib.import_module("pyarrow.parquet").read_table(out).to_pylist()
    dear = [row for row in rows if row["zone"] == "use1-az1"]
    units = [Decimal(str(row["usd_per_gpu_hour"])) for row in dear]
    assert units == [Decimal(price) for price in ("2.5", "2.625", "2.75", "2.875", "3")]
    assert all(before["to"] == after["from"] for before, after in pairwise(dear)), "no time without a price"
    cheap = [str(row["usd_per_hour"]) for row in rows if row["zone"] == "use1-az6"]
    assert cheap == ["16.000000"] * 2, "not offered between"
    assert gpubroker("prices", "export", out, *LIVE).code == 2, "it is there already"
    assert "end in .csv or .parquet" in gpubroker("prices", "export", tmp_path / "prices.xlsx").err
