"""Readers of recorded spot availability: JSON traces and the multi-zone CSV of machine counts.

JSON, one pool a file::

    {"metadata": {"gap_seconds": 600, "on_demand_price": 3.06}, "data": [1, 0, 1, …], "spot_price": [0.97, …]}

``data`` counts available machines (1 and 0 for a single one); ``spot_price`` (or ``prices``) and ``on_demand_price``
are optional. CSV, one row per tick: a time, then one count per zone, with the zones' prices in ``prices.json`` beside
it. Prices in files are for one machine, in USD per hour; prices of a market are for the whole gang. Rows count as
consecutive ticks even across a hole in the times; holes are noted. Every problem raises `InvalidInput` with the file,
the line, index or column if there is one, and the value found.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from broker.backtest.placement.market import PoolRecord, ReplayMarket
from broker.core.errors import InvalidInput, did_you_mean

_ON_DEMAND, _SPOT = "--on-demand-price", "--spot-price"
MAX_BYTES = 200_000_000
_DIGITS = 12
_MOST = 10**_DIGITS  # the maximum of any number; more is a mistake


@dataclass(frozen=True, slots=True)
class TracePrices:
    """USD per machine and hour for traces without prices, and the machines of a job.

    ``said``: the options with which prices were given. A CSV of machine counts without ``prices.json`` needs explicit
    prices, because the ratio of prices decides the result and no default fits every machine.
    """

    on_demand: float = 3.06
    spot: float = 0.9731
    gang: int = 1
    said: tuple[str, ...] = ()

    @classmethod
    def given(cls, on_demand: float | None, spot: float | None, gang: int = 1) -> TracePrices:
        """From options, None if not given. Raises `InvalidInput` for an invalid price or count."""
        options = {_ON_DEMAND: on_demand, _SPOT: spot}
        said = {
            option: _amount(value, "USD per hour", option) for option, value in options.items() if value is not None
        }
        if not 1 <= gang <= _MOST:
            raise InvalidInput(
                f"expected at least one machine, and a plausible number; got {_short(gang)}", where="--gang"
            )
        usual = cls()
        return cls(said.get(_ON_DEMAND, usual.on_demand), said.get(_SPOT, usual.spot), gang, tuple(said))

    def unused(self, *options: str) -> tuple[str, ...]:
        """Notes for options without effect."""
        return tuple(f"the trace's own prices count, not {option}" for option in options if option in self.said)


def read_file(path: Path, family: str, defaults: TracePrices) -> list[ReplayMarket]:
    """The pools of one ``.json`` or ``.csv`` file, each as a market of that family."""
    return [_read_json(path, family, defaults)] if path.suffix == ".json" else _read_csv(path, family, defaults)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidInput(f"larger than {MAX_BYTES // 1_000_000} MB", where=str(path))
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from error


def _json(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise InvalidInput(f"not JSON: {error.msg}", where=f"{path}:{error.lineno}") from error
    except RecursionError as error:
        raise InvalidInput("nested too deeply", where=str(path)) from error
    except ValueError as error:  # raised for a number with thousands of digits
        raise InvalidInput(f"not JSON: {error}", where=str(path)) from error
    if not isinstance(document, dict):
        raise InvalidInput("expected an object", where=str(path))
    return document


def _amount(value: object, what: str, where: str) -> float:
    """A finite positive number; a bool is rejected, although Python counts it as a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MOST:
        raise InvalidInput(f"{what}: expected a positive number, found {_short(value)}", where=where)
    return float(value)


def _count(value: object, what: str, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST or value % 1:
        raise InvalidInput(f"{what}: expected a whole number ≥ 0, found {_short(value)}", where=where)
    return int(value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _gap(value: object, what: str, where: str) -> float:
    gap = _amount(value, what, where)
    if gap % 1:
        raise InvalidInput(f"{what}: expected whole seconds, found {value!r}", where=where)
    return gap


def _read_json(path: Path, family: str, defaults: TracePrices) -> ReplayMarket:
    document, where = _json(path), str(path)
    metadata, data = document.get("metadata"), document.get("data")
    if not isinstance(metadata, dict) or "gap_seconds" not in metadata:
        raise InvalidInput("expected metadata.gap_seconds: the length of a tick", where=where)
    if not isinstance(data, list) or not data:
        raise InvalidInput("expected data: a list with one count per tick", where=where)
    gap = _gap(metadata["gap_seconds"], "metadata.gap_seconds", where)
    counts = [_count(value, f"data[{i}]", where) for i, value in enumerate(data)]
    notes: list[str] = []
    on_demand = defaults.on_demand
    if "on_demand_price" in metadata:
        on_demand = _amount(metadata["on_demand_price"], "metadata.on_demand_price", where)
        notes += defaults.unused(_ON_DEMAND)
    else:
        notes.append(f"no on-demand price in the trace: taken as {on_demand:g} USD/h")
    named = [key for key in ("spot_price", "prices") if key in document]
    if len(named) == 2 and document["spot_price"] != document["prices"]:
        raise InvalidInput("spot_price and prices differ: expected one of them", where=where)
    key = next(iter(named), None)
    if key is None:
        price = [defaults.spot] * len(data)
        notes.append(f"no spot prices in the trace: taken as {defaults.spot:g} USD/h")
    else:
        listed = document[key]
        if not isinstance(listed, list) or len(listed) != len(data):
            size = f"{len(listed)} entries" if isinstance(listed, list) else _short(listed)
            raise InvalidInput(f"{key}: expected one price per tick ({len(data)}), found {size}", where=where)
        price = [_amount(value, f"{key}[{i}]", where) for i, value in enumerate(listed)]
        notes += defaults.unused(_SPOT)
    begins = f"{metadata.get('trace_start', '')} tick {metadata.get('first_tick', 0)}".strip()
    pool = _for_gang(path.stem, counts, price, on_demand, defaults.gang)
    notes += _too_large(pool.name, counts, defaults.gang)
    return ReplayMarket(family, pool.name, gap, (pool,), tuple(notes), begins=begins)


def _for_gang(name: str, counts: Sequence[int], price: Sequence[float], on_demand: float, gang: int) -> PoolRecord:
    """The pool's record for a gang of machines; the given prices are for one machine."""
    return PoolRecord(
        name, tuple(count >= gang for count in counts), tuple(gang * each for each in price), gang * on_demand
    )


def _too_large(name: str, counts: Sequence[int], gang: int) -> tuple[str, ...]:
    """A note if the pool never had enough machines for the gang."""
    most = max(counts)
    if most == 0:
        return (f"{name}: no capacity at any time on record",)
    return () if most >= gang else (f"{name}: at most {most} at once on record, so never capacity for {gang}",)


def _read_csv(path: Path, family: str, defaults: TracePrices) -> list[ReplayMarket]:
    reader = csv.reader(_text(path).splitlines())
    try:
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise InvalidInput(f"not a table: {error}", where=f"{path}:{reader.line_num}") from error
    if len(rows) < 3:
        raise InvalidInput(f"expected a header and at least two rows, found {len(rows)} in all", where=str(path))
    (at, header), *rows = rows
    zones = [name.strip() for name in header[1:]]
    if not zones or not all(zones) or len(set(zones)) != len(zones):
        raise InvalidInput(
            f"expected a time and then distinct zone names, with commas between them, found {_short(','.join(header))}",
            where=f"{path}:{at}",
        )
    times: list[datetime] = []
    counts: list[list[int]] = []
    for line, row in rows:
        where = f"{path}:{line}"
        if len(row) != len(header):
            raise InvalidInput(f"expected {len(header)} fields, as in the header, found {len(row)}", where=where)
        try:
            times.append(datetime.fromisoformat(row[0].strip()))
        except ValueError as error:
            raise InvalidInput(
                f"{header[0]}: expected an ISO 8601 time, found {_short(row[0])}", where=where
            ) from error
        for zone, field in zip(zones, row[1:], strict=True):
            if not field.strip().isdecimal() or len(field) > _DIGITS:
                raise InvalidInput(f"{zone}: expected a whole number of machines, found {_short(field)}", where=where)
        counts.append([int(field) for field in row[1:]])
    gap, notes = _spacing(times, [line for line, _ in rows], path)
    listed = path.with_name("prices.json")
    prices = _zone_prices(listed, zones, defaults)
    if listed.exists():
        notes = (*notes, *defaults.unused(_ON_DEMAND, _SPOT))
    markets = []
    for zone, column in zip(zones, zip(*counts, strict=True), strict=True):
        spot, on_demand = prices[zone]
        pool = _for_gang(zone, column, [spot] * len(column), on_demand, defaults.gang)
        about = (*notes, *_too_large(zone, column, defaults.gang))
        markets.append(ReplayMarket(family, zone, gap, (pool,), about, begins=times[0].isoformat()))
    return markets


def _spacing(times: Sequence[datetime], lines: Sequence[int], path: Path) -> tuple[float, tuple[str, ...]]:
    """The usual distance of rows in seconds, and a note for every hole. Mixed time zones or backward steps raise."""
    try:
        steps = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    except TypeError as error:
        raise InvalidInput("some times have a time zone and some have none", where=str(path)) from error
    for line, step, (earlier, later) in zip(lines[1:], steps, pairwise(times), strict=True):
        if step <= 0:
            raise InvalidInput(
                f"times must rise, found {later.isoformat()} after {earlier.isoformat()}", where=f"{path}:{line}"
            )
    gap = _gap(median(steps), "the usual time between rows", str(path))
    holes = [
        f"hole of {step / 60:g} min before {time.isoformat()} (row {line}): rows counted as consecutive ticks"
        for line, time, step in zip(lines[1:], times[1:], steps, strict=True)
        if step > 1.5 * gap
    ]
    return gap, tuple(holes)


def _zone_prices(path: Path, zones: Sequence[str], defaults: TracePrices) -> dict[str, tuple[float, float]]:
    """Spot and on-demand price (USD per hour) of each zone; without a price file, the options' prices for all."""
    if not path.exists():
        if len(defaults.said) < 2:
            raise InvalidInput(
                "expected the zones' prices",
                where=str(path),
                hint='write {"ZONE": {"spot": USD, "on_demand": USD}, …}, or give --on-demand-price and --spot-price',
            )
        return dict.fromkeys(zones, (defaults.spot, defaults.on_demand))
    document = _json(path)
    prices = {}
    for zone in zones:
        if zone not in document:
            raise InvalidInput(f"no prices for zone {zone!r}{did_you_mean(zone, document)}", where=str(path))
        entry = document[zone]
        if not isinstance(entry, dict):
            raise InvalidInput(
                f'{zone}: expected {{"spot": USD, "on_demand": USD}}, found {_short(entry)}', where=str(path)
            )
        spot = _amount(entry.get("spot"), f"{zone}.spot", str(path))
        prices[zone] = spot, _amount(entry.get("on_demand"), f"{zone}.on_demand", str(path))
    return prices
