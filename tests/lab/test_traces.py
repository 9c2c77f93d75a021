"""Readers: what they read, and where they say a file is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from broker.core.errors import InvalidInput, UnknownName
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


def test_a_gang_larger_than_any_count_is_noted(tmp_path: Path) -> None:
    (market,) = read_markets([write(tmp_path / "p.json", trace(data=[7, 4, 0]))], TracePrices(gang=8))
    assert market.notes[-1] == "p: at most 7 at once on record, so never capacity for 8"
    (market,) = read_markets([write(tmp_path / "p.json", trace(data=[0, 0]))], TracePrices())
    assert market.notes[-1] == "p: no capacity at any time on record"
    path = csv(tmp_path / "c" / "c.csv", *ROWS)
    _, second = read_markets([path], TracePrices(10, 4, 17))
    assert second.notes[-1] == "zone-b: at most 16 at once on record, so never capacity for 17"
    assert read_markets([path], TracePrices(10, 4, 16))[0].notes == ()


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


def test_what_zones_leave_out_stays_as_kin_of_its_family(tmp_path: Path) -> None:
    for name, ticks in (("a", 4), ("b", 4), ("longer", 5), ("shorter", 3)):
        write(tmp_path / "fam" / f"{name}.json", trace(data=[1] * ticks))
    write(tmp_path / "fam" / "faster.json", trace(data=[1] * 9, metadata={"gap_seconds": 300}))
    write(tmp_path / "other.json", trace())
    (joined,) = read_markets([tmp_path], TracePrices(), zones=["a", "b"], together=True)
    assert [pool.name for pool in joined.pools] == ["a", "b"]
    assert [pool.name for pool in joined.kin] == ["longer"]  # as long on record, at the same tick
    assert set(joined.spot[0]) == {"a", "b"}
    assert not any(market.kin for market in read_markets([tmp_path], TracePrices()))


def test_families_of_one_name_stay_apart(tmp_path: Path) -> None:
    for path in ("one/v100/a.json", "two/v100/a.json", "two/k80/a.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / path, trace())
    folders = [tmp_path / "one" / "v100", tmp_path / "two" / "v100" / "a.json", tmp_path / "two" / "k80"]
    found = read_markets(folders, TracePrices())
    assert [market.family for market in found] == ["one/v100", "two/v100", "k80"]


def test_two_pools_of_one_name_in_a_family_are_refused_with_both_places(tmp_path: Path) -> None:
    first, second = csv(tmp_path / "first.csv", *ROWS), csv(tmp_path / "second.csv", *ROWS)
    with pytest.raises(InvalidInput, match=re.escape(f"{second}: the pool 'zone-a' is in {first} too")):
        read_markets([tmp_path], TracePrices(10, 4))
    assert len(read_markets([first, tmp_path / "." / "first.csv"], TracePrices(10, 4))) == 2  # one file, named twice


def test_pools_that_began_at_other_times_are_noted(tmp_path: Path) -> None:
    write(tmp_path / "a.json", trace())
    write(tmp_path / "b.json", trace(metadata={"gap_seconds": 600, "first_tick": 12}))
    first, second = read_markets([tmp_path], TracePrices())
    assert first.notes[-1] == second.notes[-1]
    assert first.notes[-1] == "pools assumed to begin together, though their traces differ: tick 0, tick 12"


def test_pools_of_different_ticks_cannot_be_used_together(tmp_path: Path) -> None:
    write(tmp_path / "fam" / "a.json", trace())
    write(tmp_path / "fam" / "b.json", trace(metadata={"gap_seconds": 300}))
    with pytest.raises(InvalidInput, match="need one tick; those of fam have 300 s, 600 s"):
        read_markets([tmp_path / "fam"], TracePrices(), together=True)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ('{"metadata": {"gap_seconds": 600},\n "data": [1, 0', "line 2"),
        ([1, 2], "expected a|valid|object"),
        (trace(metadata=None), "metadata: Field required"),
        (trace(metadata={"gap_seconds": 0}), "metadata.gap_seconds: .*greater than 0"),
        (trace(data=None), "data: Field required"),
        (trace(data=[]), "data: .*at least 1 item"),
        (trace(data=[1, -1]), r"data\.1: .*greater than or equal to 0"),
        ('{"metadata": {"gap_seconds": 600}, "data": [NaN]}', r"data\.0"),
        (trace(prices=[1, 2]), r"one price per tick \(3\), found 2"),
        (trace(prices=[1, None, 2]), r"prices\.1: .*valid number"),
        (trace(prices=[1, 0, 2]), r"prices\.1"),
        (trace(metadata={"gap_seconds": 600, "on_demand_price": -3}), "on_demand_price"),
    ],
)
def test_bad_json_is_located(tmp_path: Path, document: Any, says: str) -> None:
    path = write(tmp_path / "p.json", document)
    with pytest.raises(InvalidInput, match=says) as caught:
        read_markets([path], TracePrices())
    assert caught.value.where == str(path)


@pytest.mark.parametrize(
    ("rows", "header", "says"),
    [
        (ROWS[:1], HEADER, "at least two rows"),
        (ROWS, "time,a,a", "distinct zones"),
        ([ROWS[0], "2025-10-03T17:20,3"], HEADER, ":3: expected a later time, and a count of machines for each zone"),
        ([ROWS[0], "yesterday,3,4"], HEADER, ":3: Invalid isoformat string: 'yesterday'"),
        ([ROWS[0], "2025-10-03T17:20,3,-4"], HEADER, ":3: expected"),
        ([ROWS[0], "", "2025-10-03T17:20,,4"], HEADER, ":4: invalid literal"),
        ([ROWS[1], ROWS[0]], HEADER, ":3: expected a later time"),
        ([ROWS[0], "2025-10-03T17:20+00:00,1,1"], HEADER, ":3: can't compare"),
    ],
)
def test_bad_csv_is_located(tmp_path: Path, rows: list[str], header: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read_markets([csv(tmp_path / "c.csv", *rows, header=header)], TracePrices())


def test_counts_without_a_price_file_need_stated_prices(tmp_path: Path) -> None:
    path = csv(tmp_path / "c.csv", *ROWS)
    with pytest.raises(InvalidInput, match="expected the zones' prices"):
        read_markets([path], TracePrices(10, None))
    (market, _) = read_markets([path], TracePrices(10, 4))
    assert (market.on_demand_price, market.pools[0].price[0]) == (10, 4)


def test_prices_that_were_named_for_nothing_are_noted(tmp_path: Path) -> None:
    said, path = TracePrices(10, 4), csv(tmp_path / "c.csv", *ROWS)
    write(tmp_path / "prices.json", {z: {"spot": 2, "on_demand": 9} for z in ("zone-a", "zone-b")})
    notes = tuple(f"the trace's own prices count, not {option}" for option in ("--on-demand-price", "--spot-price"))
    assert read_markets([path], said)[0].notes == notes
    assert read_markets([write(tmp_path / "p.json", trace(prices=[1, 2, 3]))], said)[0].notes[-1] == notes[1]
    own = write(tmp_path / "o.json", trace(metadata={"gap_seconds": 600, "on_demand_price": 3}))
    assert read_markets([own], TracePrices(10, None))[0].notes[0] == notes[0]
    assert not set(notes) & set(read_markets([own], TracePrices())[0].notes)


def test_a_zone_without_price_is_named(tmp_path: Path) -> None:
    path = csv(tmp_path / "c.csv", *ROWS)
    write(tmp_path / "prices.json", {"zone-a": {"spot": 2, "on_demand": 9}})
    with pytest.raises(UnknownName, match="unknown zone 'zone-b'; did you mean 'zone-a'"):
        read_markets([path], TracePrices())
    write(tmp_path / "prices.json", {z: {"spot": 2} for z in ("zone-a", "zone-b")})
    with pytest.raises(InvalidInput, match=r"zone-a\.on_demand: Field required"):
        read_markets([path], TracePrices())


def test_paths_that_are_not_traces(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", write(tmp_path / "x.txt", "")):
        with pytest.raises(InvalidInput, match=r"expected a \.json or \.csv file"):
            read_markets([path], TracePrices())
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="no traces found"):
        read_markets([tmp_path / "empty"], TracePrices())
    (tmp_path / "latin.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_markets([tmp_path / "latin.json"], TracePrices())
    with pytest.raises(UnknownName, match="--pool: unknown pool 'pol'; did you mean 'pool'"):
        read_markets([write(tmp_path / "fam" / "pool.json", trace())], TracePrices(), zones=["pol"])


@pytest.mark.parametrize("option", [{"on_demand": 0.0}, {"spot": -1.0}, {"gang": 0}])
def test_prices_and_gangs_that_cannot_be(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        TracePrices(**option)
