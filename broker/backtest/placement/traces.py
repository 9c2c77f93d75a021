"""Recorded markets from paths: files, families, notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from broker.backtest.placement.market import PoolRecord, ReplayMarket
from broker.backtest.placement.trace_files import TracePrices, read_file
from broker.core.errors import InvalidInput, UnknownName


def read_markets(
    paths: Iterable[Path], defaults: TracePrices, *, zones: Sequence[str] = (), together: bool = False
) -> list[ReplayMarket]:
    """Every pool under ``paths`` as a market of its own, or, ``together``, one market per family.

    A family is the folder of a file, named by as much of its path as makes it unique. Folders are searched for
    ``*.json`` and ``*.csv``, one level of subfolders included; ``prices.json`` belongs to the CSV beside it. Two pools
    of one name in a folder are rejected. Pools of one family with different lengths are cut to the shortest when used
    together, with a note. ``zones`` keeps only the pools of these names; the others of their family stay as kin.
    """
    paths = list(paths)
    files = _files(paths)
    families = _families(files)
    markets: dict[tuple[str, str], tuple[ReplayMarket, Path]] = {}
    for path in files:
        for market in read_file(path, families[path.resolve().parent], defaults):
            _, known = markets.setdefault((market.family, market.name), (market, path))
            if known != path:
                raise InvalidInput(
                    f"the pool {market.name!r} is in {known} too",
                    where=str(path),
                    hint="name one of the two files, or put them into folders of their own",
                )
    if not markets:
        raise InvalidInput("no traces found", where=", ".join(map(str, paths)), hint="give .json or .csv files")
    every = _noted([market for market, _ in markets.values()])
    if unknown := [zone for zone in zones if zone not in {market.name for market in every}]:
        raise UnknownName("pool", unknown[0], {market.name for market in every}, where="--pool")
    chosen = [market for market in every if not zones or market.name in zones]
    others = [market for market in every if zones and market.name not in zones]
    return [replace(market, kin=_kin(market, others)) for market in (_join(chosen) if together else chosen)]


def _noted(markets: Sequence[ReplayMarket]) -> list[ReplayMarket]:
    """The markets, with a note if those of one family have no common recorded start, so that it is assumed."""
    begin: dict[str, set[str]] = {}
    for market in markets:
        begin.setdefault(market.family, set()).add(market.begins)
    notes = {
        family: ("pools assumed to begin together, though their traces differ: " + ", ".join(sorted(moments)),)
        for family, moments in begin.items()
        if len(moments) > 1
    }
    return [replace(market, notes=(*market.notes, *notes.get(market.family, ()))) for market in markets]


def _families(files: Sequence[Path]) -> dict[Path, str]:
    """Names of these folders' families: the shortest unique end of each path."""
    folders = {file.resolve().parent for file in files}

    def name(folder: Path) -> str:
        parts = folder.parts
        for n in range(1, len(parts)):
            if sum(other.parts[-n:] == parts[-n:] for other in folders) == 1:
                return "/".join(parts[-n:])
        return str(folder)

    return {folder: name(folder) for folder in folders}


def _kin(market: ReplayMarket, others: Sequence[ReplayMarket]) -> tuple[PoolRecord, ...]:
    """Pools of the same family and tick length whose record is as long."""
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
            raise InvalidInput(
                "no such file or folder", where=str(path), hint="give .json or .csv files, or folders of them"
            )
    each: dict[Path, Path] = {}
    for path in found:
        each.setdefault(path.resolve(), path)
    return list(each.values())


def _join(markets: Sequence[ReplayMarket]) -> list[ReplayMarket]:
    families: dict[str, list[ReplayMarket]] = {}
    for market in markets:
        families.setdefault(market.family, []).append(market)
    joined = []
    for family, members in families.items():
        gaps = {market.gap_seconds for market in members}
        if len(gaps) > 1:
            raise InvalidInput(
                f"the pools of {family} have ticks of {', '.join(f'{gap:g} s' for gap in sorted(gaps))}",
                where=", ".join(market.name for market in members),
                hint="pools used together need one tick",
            )
        ticks = min(market.ticks for market in members)
        pools = [pool for market in members for pool in market.pools]
        notes = list(dict.fromkeys(note for market in members for note in market.notes))
        if any(market.ticks != ticks for market in members):
            notes.append(f"pools cut to the shortest: {ticks} ticks")
        cut = tuple(PoolRecord(p.name, p.available[:ticks], p.price[:ticks], p.on_demand_price) for p in pools)
        joined.append(ReplayMarket(family, "+".join(p.name for p in cut), gaps.pop(), cut, tuple(notes)))
    return joined
