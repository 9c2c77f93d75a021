"""Recorded spot markets from files: JSON traces, and CSV files of machine counts.

JSON, one pool a file::

    {"metadata": {"gap_seconds": 600, "on_demand_price": 3.06}, "data": [1, 0, 1, …], "spot_price": [0.97, …]}

``data`` counts available machines; ``spot_price`` (or ``prices``) and ``on_demand_price`` are optional. CSV, one row
per tick: a time, then one count per zone, with the zones' prices in ``prices.json`` beside it. Prices in files are for
one machine, in USD per hour; prices of a market are for the whole gang. Rows count as consecutive ticks even across a
hole in the times; holes are noted. Every problem raises `InvalidInput` with the place.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt, TypeAdapter
from pydantic import ValidationError as Invalid

from broker.core.errors import InvalidInput, UnknownName
from tests.lab.replay import PoolRecord, ReplayMarket

T = TypeVar("T")
Counts = Annotated[list[NonNegativeInt], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class TracePrices:
    """USD per machine and hour for traces without prices, None if not given, and the machines of a job. A CSV of counts
    without ``prices.json`` needs given ones: the ratio of prices decides the result, and no default fits every machine.
    """

    on_demand: float | None = None
    spot: float | None = None
    gang: int = 1

    def __post_init__(self) -> None:
        for option, price in (("--on-demand-price", self.on_demand), ("--spot-price", self.spot)):
            if price is not None and not 0 < price < 1e12:
                raise InvalidInput(f"expected a positive number of USD per hour, found {price:g}", where=option)
        if self.gang < 1:
            raise InvalidInput(f"expected at least one machine, found {self.gang}", where="--gang")

    def unused(self, *, on_demand: bool = False, spot: bool = False) -> list[str]:
        """Notes for given prices without effect, because the trace has its own."""
        given = {"--on-demand-price": on_demand and self.on_demand, "--spot-price": spot and self.spot}
        return [f"the trace's own prices count, not {option}" for option, price in given.items() if price]

    def pool(self, name: str, counts: Sequence[int], price: Sequence[float], on_demand: float) -> PoolRecord:
        available = tuple(count >= self.gang for count in counts)
        return PoolRecord(name, available, tuple(self.gang * one for one in price), self.gang * on_demand)

    def too_large(self, name: str, counts: Sequence[int]) -> list[str]:
        """A note if the pool never had enough machines."""
        most = max(counts)
        if not most:
            return [f"{name}: no capacity at any time on record"]
        return (
            []
            if most >= self.gang
            else [f"{name}: at most {most} at once on record, so never capacity for {self.gang}"]
        )


def read_markets(
    paths: Iterable[Path], prices: TracePrices, *, zones: Sequence[str] = (), together: bool = False
) -> list[ReplayMarket]:
    """Every pool under ``paths`` as a market of its own, or, ``together``, one market per family.

    A family is the folder of a file, named by as much of its path as makes it unique. Folders are searched for
    ``*.json`` and ``*.csv``, one level of subfolders included. Two pools of one name in a folder are rejected. Pools
    of one family with different lengths are cut to the shortest when used together, with a note. ``zones`` keeps only
    the pools of these names; the others of their family stay as kin.
    """
    paths = list(paths)
    files = _files(paths)
    families = _families(files)
    markets: dict[tuple[str, str], tuple[ReplayMarket, Path]] = {}
    for path in files:
        read = _read_json if path.suffix == ".json" else _read_csv
        for market in read(path, families[path.resolve().parent], prices):
            _, first = markets.setdefault((market.family, market.name), (market, path))
            if first != path:
                raise InvalidInput(f"the pool {market.name!r} is in {first} too", where=str(path))
    if not markets:
        raise InvalidInput("no traces found", where=", ".join(map(str, paths)), hint="give .json or .csv files")
    every = _noted([market for market, _ in markets.values()])
    if unknown := [zone for zone in zones if zone not in {market.name for market in every}]:
        raise UnknownName("pool", unknown[0], {market.name for market in every}, where="--pool")
    chosen = [market for market in every if not zones or market.name in zones]
    others = [market for market in every if zones and market.name not in zones]
    return [replace(market, kin=_kin(market, others)) for market in (_join(chosen) if together else chosen)]


# --- files ----------------------------------------------------------------------------------------------------------


class _Part(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)


class _Metadata(_Part):
    gap_seconds: PositiveInt
    on_demand_price: PositiveFloat | None = None
    trace_start: str = ""
    first_tick: int = 0


class _Trace(_Part):
    metadata: _Metadata
    data: Counts
    spot_price: list[PositiveFloat] | None = None
    prices: list[PositiveFloat] | None = None


class _ZonePrice(_Part):
    spot: PositiveFloat
    on_demand: PositiveFloat


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from error


def _parsed(path: Path, kind: type[T]) -> T:
    try:
        return TypeAdapter(kind).validate_json(_text(path))
    except Invalid as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidInput(f"{place}: {first['msg']}" if place else first["msg"], where=str(path)) from error


def _read_json(path: Path, family: str, prices: TracePrices) -> list[ReplayMarket]:
    trace, notes = _parsed(path, _Trace), list[str]()
    metadata, ticks = trace.metadata, len(trace.data)
    on_demand, spot = metadata.on_demand_price, trace.spot_price or trace.prices
    notes += prices.unused(on_demand=on_demand is not None)
    if on_demand is None:
        on_demand = prices.on_demand or 3.06
        notes.append(f"no on-demand price in the trace: taken as {on_demand:g} USD/h")
    notes += prices.unused(spot=spot is not None)
    if spot is None:
        spot = [prices.spot or 0.9731] * ticks
        notes.append(f"no spot prices in the trace: taken as {spot[0]:g} USD/h")
    if len(spot) != ticks:
        raise InvalidInput(f"expected one price per tick ({ticks}), found {len(spot)}", where=str(path))
    pool = prices.pool(path.stem, trace.data, spot, on_demand)
    notes += prices.too_large(path.stem, trace.data)
    begins = f"{metadata.trace_start} tick {metadata.first_tick}".strip()
    return [ReplayMarket(family, path.stem, float(metadata.gap_seconds), (pool,), tuple(notes), begins=begins)]


def _read_csv(path: Path, family: str, prices: TracePrices) -> list[ReplayMarket]:
    reader = csv.reader(_text(path).splitlines())
    rows = [(reader.line_num, row) for row in reader if row]
    zones, times, counts = (
        [name.strip() for name in rows[0][1][1:]] if rows else [],
        list[datetime](),
        list[list[int]](),
    )
    if len(rows) < 3 or not zones or len(set(zones)) < len(zones):
        raise InvalidInput("expected a header with a time and distinct zones, and at least two rows", where=str(path))
    times, counts = list[datetime](), list[list[int]]()
    for line, (time, *fields) in rows[1:]:
        try:
            times.append(datetime.fromisoformat(time.strip()))
            counts.append([int(field) for field in fields])
            if len(fields) != len(zones) or min(counts[-1]) < 0 or (len(times) > 1 and times[-1] <= times[-2]):
                raise ValueError("expected a later time, and a count of machines for each zone")
        except (TypeError, ValueError) as error:
            raise InvalidInput(str(error), where=f"{path}:{line}") from error
    steps = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    gap = float(round(median(steps)))
    notes = [
        f"hole of {step / 60:g} min before {time.isoformat()} (row {line}): rows counted as consecutive ticks"
        for (line, _), time, step in zip(rows[2:], times[1:], steps, strict=True)
        if step > 1.5 * gap
    ]
    listed = path.with_name("prices.json")
    if listed.exists():
        notes += prices.unused(on_demand=True, spot=True)
    known = _zone_prices(listed, zones, prices)
    markets = []
    for zone, column in zip(zones, zip(*counts, strict=True), strict=True):
        pool = prices.pool(zone, column, [known[zone].spot] * len(column), known[zone].on_demand)
        about = (*notes, *prices.too_large(zone, column))
        markets.append(ReplayMarket(family, zone, gap, (pool,), about, begins=times[0].isoformat()))
    return markets


def _zone_prices(path: Path, zones: Sequence[str], prices: TracePrices) -> dict[str, _ZonePrice]:
    if path.exists():
        found = _parsed(path, dict[str, _ZonePrice])
        if missing := [zone for zone in zones if zone not in found]:
            raise UnknownName("zone", missing[0], found, where=str(path))
        return found
    if prices.spot is None or prices.on_demand is None:
        hint = 'write {"ZONE": {"spot": USD, "on_demand": USD}, …}, or give --on-demand-price and --spot-price'
        raise InvalidInput("expected the zones' prices", where=str(path), hint=hint)
    return dict.fromkeys(zones, _ZonePrice(spot=prices.spot, on_demand=prices.on_demand))


def _files(paths: Iterable[Path]) -> list[Path]:
    found: dict[Path, Path] = {}
    for path in paths:
        patterns = ("*.json", "*.csv", "*/*.json", "*/*.csv")
        inside = [file for pattern in patterns for file in path.glob(pattern)] if path.is_dir() else [path]
        for file in sorted(inside):
            if not file.is_file() or file.suffix not in (".json", ".csv"):
                raise InvalidInput("expected a .json or .csv file, or a folder of them", where=str(file))
            if file.name != "prices.json":
                found.setdefault(file.resolve(), file)
    return list(found.values())


# --- families -------------------------------------------------------------------------------------------------------


def _families(files: Sequence[Path]) -> dict[Path, str]:
    """Names of these files' folders: the shortest unique end of each path."""
    folders = {file.resolve().parent for file in files}

    def name(folder: Path) -> str:
        parts = folder.parts
        for n in range(1, len(parts)):
            if sum(other.parts[-n:] == parts[-n:] for other in folders) == 1:
                return "/".join(parts[-n:])
        return str(folder)

    return {folder: name(folder) for folder in folders}


def _noted(markets: Sequence[ReplayMarket]) -> list[ReplayMarket]:
    """The markets, with a note if those of one family have no common recorded start, so that it is assumed."""
    begin: dict[str, set[str]] = {}
    for market in markets:
        begin.setdefault(market.family, set()).add(market.begins)
    text = "pools assumed to begin together, though their traces differ: "
    notes = {family: (text + ", ".join(sorted(times)),) for family, times in begin.items() if len(times) > 1}
    return [replace(market, notes=(*market.notes, *notes.get(market.family, ()))) for market in markets]


def _kin(market: ReplayMarket, others: Sequence[ReplayMarket]) -> tuple[PoolRecord, ...]:
    """Pools of the same family and tick length whose record is as long."""
    like = [other for other in others if (other.family, other.gap_seconds) == (market.family, market.gap_seconds)]
    return tuple(pool for other in like if other.ticks >= market.ticks for pool in other.pools)


def _join(markets: Sequence[ReplayMarket]) -> list[ReplayMarket]:
    families: dict[str, list[ReplayMarket]] = {}
    for market in markets:
        families.setdefault(market.family, []).append(market)
    joined = []
    for family, members in families.items():
        gaps = {market.gap_seconds for market in members}
        if len(gaps) > 1:
            said = ", ".join(f"{gap:g} s" for gap in sorted(gaps))
            raise InvalidInput(f"pools used together need one tick; those of {family} have {said}")
        ticks = min(market.ticks for market in members)
        notes = list(dict.fromkeys(note for market in members for note in market.notes))
        if any(market.ticks != ticks for market in members):
            notes.append(f"pools cut to the shortest: {ticks} ticks")
        pools = [pool for market in members for pool in market.pools]
        cut = tuple(PoolRecord(p.name, p.available[:ticks], p.price[:ticks], p.on_demand_price) for p in pools)
        joined.append(ReplayMarket(family, "+".join(p.name for p in cut), gaps.pop(), cut, tuple(notes)))
    return joined
