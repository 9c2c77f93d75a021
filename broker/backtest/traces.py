"""Readers of recorded spot availability: JSON traces and the multi-zone CSV of machine counts.

JSON, one pool a file::

    {"metadata": {"gap_seconds": 600, "on_demand_price": 3.06}, "data": [1, 0, 1, …], "spot_price": [0.97, …]}

``data`` counts machines that can be had (1 and 0 for a single one); ``spot_price`` (or ``prices``) and
``on_demand_price`` are optional. CSV, one row a tick: a time, then one count per zone, with the zones' prices in
``prices.json`` beside it, in USD per hour as they stand there. Rows count as consecutive ticks even across a hole in
the times; holes are noted. Every problem is raised as `InvalidInput` with file and, where it has one, line or index.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from broker.backtest.market import Market, Pool
from broker.core.errors import InvalidInput, UnknownName

MAX_BYTES = 200_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """USD per hour for traces that carry no price of their own, and how many machines a job needs at once.

    ``stated``: somebody named both prices. Machine counts of a CSV without ``prices.json`` are priced by nothing else:
    they may be of any machine, and the ratio of its prices decides everything.
    """

    on_demand: float = 3.06
    spot: float = 0.9731
    gang: int = 1
    stated: bool = False

    @classmethod
    def given(cls, on_demand: float | None, spot: float | None, gang: int = 1) -> Prices:
        """From what somebody said, None where nothing. Raises `InvalidInput` for what is no price and no count."""
        for option, value in (("--on-demand-price", on_demand), ("--spot-price", spot)):
            if value is not None:
                _amount(value, "USD per hour", option)
        if gang < 1:
            raise InvalidInput(f"expected at least one machine, found {gang}", where="--gang")
        stated = on_demand is not None and spot is not None
        return cls(3.06 if on_demand is None else on_demand, 0.9731 if spot is None else spot, gang, stated)


def read_markets(
    paths: Iterable[Path], defaults: Prices, *, zones: Sequence[str] = (), together: bool = False
) -> list[Market]:
    """Every pool under ``paths`` as a market of its own, or, ``together``, one market per family.

    A family is the folder a file lies in. Folders are searched for ``*.json`` and ``*.csv``, one level of subfolders
    included; ``prices.json`` belongs to the CSV beside it. Pools of one family that differ in length are cut to the
    shortest when they are used together, which is noted. ``zones`` keeps the pools of these names only; the others of
    their family stay as its kin.
    """
    paths = list(paths)
    markets: list[Market] = []
    for path in _files(paths):
        markets += [_read_json(path, defaults)] if path.suffix == ".json" else _read_csv(path, defaults)
    if not markets:
        raise InvalidInput("no traces found", where=", ".join(map(str, paths)), hint="give .json or .csv files")
    if unknown := [zone for zone in zones if zone not in {market.name for market in markets}]:
        raise UnknownName("zone", unknown[0], {market.name for market in markets})
    chosen = [market for market in markets if not zones or market.name in zones]
    others = [market for market in markets if zones and market.name not in zones]
    return [replace(market, kin=_kin(market, others)) for market in (_join(chosen) if together else chosen)]


def _kin(market: Market, others: Sequence[Market]) -> tuple[Pool, ...]:
    """Pools of the same family and tick that are on record for as long."""
    like = [other for other in others if (other.family, other.gap_seconds) == (market.family, market.gap_seconds)]
    return tuple(pool for other in like if other.ticks >= market.ticks for pool in other.pools)


def _files(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [p for pattern in ("*.json", "*.csv", "*/*.json", "*/*.csv") for p in path.glob(pattern)]
            found += sorted(p for p in inside if p.name != "prices.json")
        elif path.is_file():
            if path.suffix not in (".json", ".csv"):
                raise InvalidInput("not a trace: expected .json or .csv", where=str(path))
            found.append(path)
        else:
            raise InvalidInput("no such file or folder", where=str(path), hint="check --traces")
    return list(dict.fromkeys(found))


def _join(markets: Sequence[Market]) -> list[Market]:
    families: dict[str, list[Market]] = {}
    for market in markets:
        families.setdefault(market.family, []).append(market)
    joined = []
    for family, members in families.items():
        gaps = {market.gap_seconds for market in members}
        if len(gaps) > 1:
            raise InvalidInput(
                f"the pools of {family} have ticks of {', '.join(f'{gap:g} s' for gap in sorted(gaps))}",
                hint="pools used together need one tick",
            )
        ticks = min(market.ticks for market in members)
        pools = [pool for market in members for pool in market.pools]
        notes = list(dict.fromkeys(note for market in members for note in market.notes))
        if any(market.ticks != ticks for market in members):
            notes.append(f"pools cut to the shortest: {ticks} ticks")
        cut = tuple(Pool(p.name, p.available[:ticks], p.price[:ticks], p.on_demand_price) for p in pools)
        joined.append(Market(family, "+".join(p.name for p in cut), gaps.pop(), cut, tuple(notes)))
    return joined


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidInput(f"larger than {MAX_BYTES // 1_000_000} MB", where=str(path))
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from error


def _json(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise InvalidInput(f"not JSON: {error.msg}", where=f"{path}:{error.lineno}") from error
    except RecursionError as error:
        raise InvalidInput("nested too deeply", where=str(path)) from error
    if not isinstance(document, dict):
        raise InvalidInput("expected an object", where=str(path))
    return document


def _amount(value: object, what: str, where: str) -> float:
    """A finite positive number. True is not one, though Python thinks so."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise InvalidInput(f"{what}: expected a positive number, found {value!r}", where=where)
    return float(value)


def _count(value: object, what: str, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value < 0 or value % 1:
        raise InvalidInput(f"{what}: expected a whole number ≥ 0, found {value!r}", where=where)
    return int(value)


def _gap(value: object, where: str) -> float:
    gap = _amount(value, "gap_seconds", where)
    if gap % 1:
        raise InvalidInput(f"gap_seconds: expected whole seconds, found {value!r}", where=where)
    return gap


def _read_json(path: Path, defaults: Prices) -> Market:
    document, where = _json(path), str(path)
    metadata, data = document.get("metadata"), document.get("data")
    if not isinstance(metadata, dict) or "gap_seconds" not in metadata:
        raise InvalidInput("expected metadata.gap_seconds", where=where)
    if not isinstance(data, list) or not data:
        raise InvalidInput("expected data: a list with one count per tick", where=where)
    gap = _gap(metadata["gap_seconds"], where)
    available = tuple(_count(value, f"data[{i}]", where) >= defaults.gang for i, value in enumerate(data))
    on_demand = _amount(metadata.get("on_demand_price", defaults.on_demand), "metadata.on_demand_price", where)
    key = next((key for key in ("spot_price", "prices") if key in document), None)
    notes: tuple[str, ...] = ()
    if key is None:
        price = (defaults.spot,) * len(data)
        notes = (f"no prices in the trace: spot taken as {defaults.spot:g} USD/h",)
    else:
        listed = document[key]
        if not isinstance(listed, list) or len(listed) != len(data):
            size = f"{len(listed)} entries" if isinstance(listed, list) else repr(listed)
            raise InvalidInput(f"{key}: expected one price per tick ({len(data)}), found {size}", where=where)
        price = tuple(_amount(value, f"{key}[{i}]", where) for i, value in enumerate(listed))
    pool = Pool(path.stem, available, price, on_demand)
    return Market(path.resolve().parent.name, pool.name, gap, (pool,), notes)


def _read_csv(path: Path, defaults: Prices) -> list[Market]:
    rows = list(csv.reader(_text(path).splitlines()))
    if len(rows) < 3:
        raise InvalidInput("expected a header and at least two rows", where=str(path))
    zones = [name.strip() for name in rows[0][1:]]
    if not zones or not all(zones) or len(set(zones)) != len(zones):
        raise InvalidInput("expected a time and then distinct zone names", where=f"{path}:1")
    times: list[datetime] = []
    counts: list[list[int]] = []
    for number, row in enumerate(rows[1:], start=2):
        where = f"{path}:{number}"
        if len(row) != len(rows[0]):
            raise InvalidInput(f"expected {len(rows[0])} fields, found {len(row)}", where=where)
        try:
            times.append(datetime.fromisoformat(row[0]))
        except ValueError as error:
            raise InvalidInput(f"expected an ISO 8601 time, found {row[0]!r}", where=where) from error
        if not all(field.strip().isdecimal() for field in row[1:]):
            raise InvalidInput("expected whole numbers of machines", where=where)
        counts.append([int(field) for field in row[1:]])
    gap, notes = _spacing(times, path)
    prices = _zone_prices(path.with_name("prices.json"), zones, defaults)
    family = path.resolve().parent.name
    markets = []
    for column, zone in enumerate(zones):
        spot, on_demand = prices[zone]
        available = tuple(row[column] >= defaults.gang for row in counts)
        pool = Pool(zone, available, (spot,) * len(counts), on_demand)
        markets.append(Market(family, zone, gap, (pool,), notes))
    return markets


def _spacing(times: Sequence[datetime], path: Path) -> tuple[float, tuple[str, ...]]:
    """The usual distance of rows in seconds, and a note for every hole. Mixed time zones or backward steps raise."""
    try:
        steps = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    except TypeError as error:
        raise InvalidInput("some times have a time zone and some have none", where=str(path)) from error
    for number, step in enumerate(steps, start=3):
        if step <= 0:
            raise InvalidInput("times must rise", where=f"{path}:{number}")
    gap = _gap(median(steps), str(path))
    holes = [
        f"hole of {step / 60:g} min before {time.isoformat()} (row {row}): rows counted as consecutive ticks"
        for row, (time, step) in enumerate(zip(times[1:], steps, strict=True), start=3)
        if step > 1.5 * gap
    ]
    return gap, tuple(holes)


def _zone_prices(path: Path, zones: Sequence[str], defaults: Prices) -> dict[str, tuple[float, float]]:
    """Spot and on-demand price of each zone; stated prices for all of them when there is no price file at all."""
    if not path.exists():
        if not defaults.stated:
            raise InvalidInput(
                "expected the zones' prices",
                where=str(path),
                hint='write {"ZONE": {"spot": USD, "on_demand": USD}, …}, or give --on-demand-price and --spot-price',
            )
        return dict.fromkeys(zones, (defaults.spot, defaults.on_demand))
    document = _json(path)
    prices = {}
    for zone in zones:
        entry = document.get(zone)
        if not isinstance(entry, dict):
            raise InvalidInput(f"no prices for zone {zone!r}", where=str(path))
        spot = _amount(entry.get("spot"), f"{zone}.spot", str(path))
        prices[zone] = spot, _amount(entry.get("on_demand"), f"{zone}.on_demand", str(path))
    return prices
