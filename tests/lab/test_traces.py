"""Readers: what they read, and where they say a file is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from broker.core.errors import InvalidInput
from tests.lab.traces import TracePrices, read_markets

HEADER = "scheduled_at_local,zone-a,zone-b"
ROWS = ["2025-10-03T17:10,16,0", "2025-10-03T17:20,3,1", "2025-10-03T17:30,0,16", "2025-10-03T17:40,4,4"]


def write(path: Path, document: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def trace(**changes: Any) -> dict[str, Any]:
    document = {"metadata": {"gap_seconds": 600}, "data": [1, 0, 1]} | changes
    return {key: value for key, value in document.items() if value is not None}


def csv(path: Path, *rows: str, header: str = HEADER) -> Path:
    return write(path, "\n".join([header, *rows]) + "\n")


@pytest.mark.parametrize("key", ["spot_price", "prices"])
def test_json_with_prices(tmp_path: Path, key: str) -> None:
    document = trace(metadata={"gap_seconds": 195, "on_demand_price": 4}, **{key: [1, 1.5, 2]})
    (market,) = read_markets([write(tmp_path / "p.json", document)], TracePrices())
    assert market.pools[0].price == (1.0, 1.5, 2.0)
    assert market.pools[0].on_demand_price == 4
    assert market.notes == ()


def test_csv_with_prices_beside_it(tmp_path: Path) -> None:
    path = csv(tmp_path / "counts.csv", *ROWS)
    write(tmp_path / "prices.json", {z: {"spot": 2, "on_demand": 9} for z in ("zone-a", "zone-b")})
    first, second = read_markets([path], TracePrices())
    assert [first.name, second.name] == ["zone-a", "zone-b"]
    assert first.gap_seconds == 600
    assert first.pools[0].available == (True, True, False, True)
    assert (second.pools[0].price[0], second.on_demand_price) == (2.0, 9.0)
    assert read_markets([path], TracePrices(), zones=["zone-b"])[0].name == "zone-b"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ('{"metadata": {"gap_seconds": 600},\n "data": [1, 0', "line 2"),
        (trace(metadata={"gap_seconds": 0}), "metadata.gap_seconds: .*greater than 0"),
        (trace(data=[1, -1]), r"data\.1: .*greater than or equal to 0"),
        ('{"metadata": {"gap_seconds": 600}, "data": [NaN]}', r"data\.0"),
        (trace(prices=[1, 2]), r"one price per tick \(3\), found 2"),
        (trace(metadata={"gap_seconds": 600, "on_demand_price": -3}), "on_demand_price"),
    ],
)
def test_bad_json_is_located(tmp_path: Path, document: Any, says: str) -> None:
    path = write(tmp_path / "p.json", document)
    with pytest.raises(InvalidInput, match=says) as caught:
        read_markets([path], TracePrices())
    assert caught.value.where == str(path)
