"""Readers: what they read, and where they say a file is wrong."""

from __future__ import annotations

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


def test_json_without_prices_takes_the_defaults_and_says_so(tmp_path: Path) -> None:
    (market,) = read_markets([write(tmp_path / "fam" / "pool.json", trace())], TracePrices(3.06, 0.9731))
    (pool,) = market.pools
    assert (market.family, market.name, market.gap_seconds) == ("fam", "pool", 600)
    assert pool.available == (True, False, True)
    assert pool.price == (0.9731,) * 3
    assert pool.on_demand_price == 3.06
    assert market.notes == (
        "no on-demand price in the trace: taken as 3.06 USD/h",
        "no spot prices in the trace: taken as 0.9731 USD/h",
    )


@pytest.mark.parametrize("key", ["spot_price", "prices"])
def test_json_with_prices(tmp_path: Path, key: str) -> None:
    document = trace(metadata={"gap_seconds": 195, "on_demand_price": 4}, **{key: [1, 1.5, 2]})
    (market,) = read_markets([write(tmp_path / "p.json", document)], TracePrices())
    assert market.pools[0].price == (1.0, 1.5, 2.0)
    assert market.pools[0].on_demand_price == 4
    assert market.notes == ()


def test_a_gang_needs_that_many_machines(tmp_path: Path) -> None:
    path = write(tmp_path / "p.json", trace(data=[16, 4, 0]))
    assert read_markets([path], TracePrices(gang=4))[0].pools[0].available == (True, True, False)
    assert read_markets([path], TracePrices(gang=16))[0].pools[0].available == (True, False, False)


def test_a_gang_pays_for_all_its_machines(tmp_path: Path) -> None:
    path = write(tmp_path / "p.json", trace(metadata={"gap_seconds": 600, "on_demand_price": 4}, prices=[1, 1.5, 2]))
    (market,) = read_markets([path], TracePrices(gang=3))
    assert (market.pools[0].price, market.on_demand_price) == ((3, 4.5, 6), 12)


def test_csv_with_prices_beside_it(tmp_path: Path) -> None:
    path = csv(tmp_path / "counts.csv", *ROWS)
    write(tmp_path / "prices.json", {z: {"spot": 2, "on_demand": 9} for z in ("zone-a", "zone-b")})
    first, second = read_markets([path], TracePrices())
    assert [first.name, second.name] == ["zone-a", "zone-b"]
    assert first.gap_seconds == 600
    assert first.pools[0].available == (True, True, False, True)
    assert (second.pools[0].price[0], second.on_demand_price) == (2.0, 9.0)
    assert read_markets([path], TracePrices(), zones=["zone-b"])[0].name == "zone-b"


def test_holes_are_noted_and_do_not_stretch_the_ticks(tmp_path: Path) -> None:
    rows = [*ROWS, "2025-10-03T19:40,1,1"]
    market = read_markets([csv(tmp_path / "c.csv", *rows)], TracePrices(10, 4))[0]
    assert market.ticks == 5
    assert any("hole of 120 min" in note and "row 6" in note for note in market.notes)


def test_together_joins_a_family_and_cuts_to_the_shortest(tmp_path: Path) -> None:
    write(tmp_path / "fam" / "a.json", trace(data=[1, 1, 1, 1]))
    write(tmp_path / "fam" / "b.json", trace(data=[0, 1, 1]))
    write(tmp_path / "other.json", trace())
    joined = {m.family: m for m in read_markets([tmp_path], TracePrices(), together=True)}
    assert [pool.name for pool in joined["fam"].pools] == ["a", "b"]
    assert joined["fam"].ticks == 3
    assert "cut to the shortest" in joined["fam"].notes[-1]
    assert joined["fam"].spot[0] == {"a": 0.9731}


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


def test_counts_without_a_price_file_need_stated_prices(tmp_path: Path) -> None:
    path = csv(tmp_path / "c.csv", *ROWS)
    with pytest.raises(InvalidInput, match="expected the zones' prices"):
        read_markets([path], TracePrices(10, None))
    (market, _) = read_markets([path], TracePrices(10, 4))
    assert (market.on_demand_price, market.pools[0].price[0]) == (10, 4)
