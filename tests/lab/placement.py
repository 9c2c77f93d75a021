"""The cost of placement strategies on recorded spot markets: the broker's, others, and the optimum.

At the start of a tick a strategy knows that tick and the past; a changeover is billed and makes no progress. The
optimum knows the whole window in advance. The broker's strategy runs the broker's own decision code. The same traces,
options and seed give the same document.

    python -m tests.lab.placement traces/ --work 48h --deadline 52h --deadline 70h
    python -m tests.lab.placement a.json b.json --changeover 2m --changeover 30m --starts 30 --per-window --json
    python -m tests.lab.placement h100/ --zones together --policies gpubroker,eager-next-region,omniscient
    python -m tests.lab.placement traces/ --overlap --restore 3m --upload 0s
    python -m tests.lab.placement traces/ --history none --policies gpubroker,uniform-progress,levi,gepa,greedy
"""

import os
import tomllib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from broker.cli.render.formats import length, percent, text_or_dash
from broker.cli.render.tables import Column, ValueColumn, cell_table_parts, table_parts
from broker.core.errors import InvalidInput
from broker.placement.strategy.regimes import prior_from
from tests.lab import command
from tests.lab.traces import TracePrices
from tests.lab.windows import CAN_OVERLAP, DEFAULT_POLICIES, NAMES, OMNISCIENT, OVERLAP, PlacementCell, Request, measure

_NOTE = "Mean cost over mean optimum; the optimum knows the whole window in advance. Bold: lowest of the row."
_MOST_ROWS = 60


def main(arguments: Sequence[str]) -> int:
    parser = command.parser(__doc__)
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="TRACE", help="JSON traces, CSV files, or folders of them"
    )
    parser.add_argument("--traces", action="append", default=[], type=Path, metavar="TRACE", help="same as TRACE")
    parser.add_argument("--work", type=command.seconds, default=48 * 3600.0, help="work of the job; default: 48h")
    parser.add_argument("--deadline", action="append", type=command.seconds, help="repeatable; default: 60h")
    parser.add_argument("--changeover", action="append", type=command.seconds, help="repeatable; default: 12m")
    parser.add_argument("--starts", type=int, default=100, help="windows per pool")
    parser.add_argument("--seed", type=int, default=7, help="of the choice of windows")
    parser.add_argument("--from-part", "--from", type=float, default=0.5, help="fraction of the trace that is history")
    parser.add_argument("--to-part", "--to", type=float, default=1.0, help="fraction of the trace where windows end")
    parser.add_argument("--policies", type=command.names, default=DEFAULT_POLICIES, help=", ".join(NAMES))
    parser.add_argument(
        "--overlap",
        action="store_true",
        help=f"also {', '.join(CAN_OVERLAP)} that may boot spot beside working on-demand, both paid",
    )
    parser.add_argument("--restore", type=command.seconds, help="part of the changeover after boot; default: a quarter")
    parser.add_argument("--upload", type=command.seconds, default=0.0, help="on-demand's last checkpoint; default: 0s")
    parser.add_argument("--zones", choices=["apart", "together"], default="apart", help="may a job move between pools?")
    parser.add_argument("--history", choices=["all", "none"], default="all", help="what strategies learn from")
    parser.add_argument("--prior", type=Path, metavar="FILE", help="instead of broker/placement/strategy/prior.toml")
    parser.add_argument("--pool", action="append", default=[], metavar="NAME", help="only this pool; repeatable")
    parser.add_argument("--on-demand-price", type=float, metavar="USD", help="if the trace has none; default: 3.06")
    parser.add_argument("--spot-price", type=float, metavar="USD", help="if the trace has none; default: 0.9731")
    parser.add_argument("--gang", type=int, default=1, help="machines that the job needs at once")
    parser.add_argument("--per-window", action="store_true", help="with --json: every window")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    given = parser.parse_args(arguments)
    if not (traces := [*given.paths, *given.traces]):
        raise InvalidInput("expected traces", where="TRACE", hint="python -m tests.lab.placement FOLDER")
    overlap = [policy + OVERLAP for policy in given.policies if given.overlap and policy in CAN_OVERLAP]
    request = Request(
        traces=traces,
        work=given.work,
        deadlines=tuple(dict.fromkeys(given.deadline or [60 * 3600.0])),
        changeovers=tuple(dict.fromkeys(given.changeover or [720.0])),
        policies=tuple(dict.fromkeys([*given.policies, *overlap])),
        starts=given.starts,
        seed=given.seed,
        from_fraction=given.from_part,
        to_fraction=given.to_part,
        together=given.zones == "together",
        history=given.history == "all",
        prior=prior_from(tomllib.loads(given.prior.read_text())) if given.prior else None,
        restore=given.restore,
        upload=given.upload,
        zones=tuple(given.pool),
        prices=TracePrices(given.on_demand_price, given.spot_price, given.gang),
    )
    with command.progress() as told:
        cells, notes = measure(request, told, workers=given.workers)
    found = document(request, cells, notes, per_window=given.per_window)
    command.show(found, lambda console: tables(console, request, cells, notes), as_json=given.json)
    return 0


def document(
    request: Request, cells: Sequence[PlacementCell], notes: Sequence[str], *, per_window: bool
) -> dict[str, Any]:
    """Every cell, the pools of each family together, all pools together, and all cells of each policy together."""
    return {
        "work_s": _whole(request.work),
        "seed": request.seed,
        "gang": request.prices.gang,
        "cells": [_cell(cell, request.prices.gang if per_window else None) for cell in cells],
        "families": [_cell(cell) for cell in families(cells)],
        "everywhere": [_cell(replace(cell, family="")) for cell in _pooled(cells, _terms)],
        "totals": [_total(total, mine) for total, mine in totals(cells)],
        "notes": list(notes),
    }


def _cell(cell: PlacementCell, gang: int | None = None) -> dict[str, Any]:
    """``gang``: of the job, for every window's costs; None: without windows."""
    found: dict[str, Any] = {
        "family": cell.family,
        "pool": cell.pool,
        "deadline_s": _whole(cell.deadline_s),
        "changeover_s": _whole(cell.changeover_s),
        "policy": cell.policy,
        **_figures(cell),
        "windows": len(cell.windows),
        "together": cell.together,
    }
    if gang is not None:
        found["per_window"] = [
            {
                "start": window.start,
                "cost": f"{window.cost / gang:.6f}",
                "optimum": f"{window.optimum / gang:.6f}",
                "gang_cost": f"{window.cost:.6f}",
                "finish_s": window.outcome.finish if window.outcome else None,
                "missed": bool(window.outcome and window.outcome.missed),
            }
            for window in cell.windows
        ]
    return found


def _figures(cell: PlacementCell) -> dict[str, Any]:
    return {
        "ratio_mean": round(cell.ratio_mean, 6),
        "ratio_p95": round(cell.ratio_p95, 6),
        "missed": cell.missed,
        "on_demand_share": _six(cell.on_demand_share),
        "interruptions": _six(cell.interruptions),
    }


def _total(total: PlacementCell, cells: Sequence[PlacementCell]) -> dict[str, Any]:
    """The figures of a policy, with the ratio of its worst cell."""
    figures = _figures(total)
    mean, worst = figures.pop("ratio_mean"), round(max(cell.ratio_mean for cell in cells), 6)
    cost = f"{total.mean_cost:.6f}"
    return {"policy": total.policy, "mean_cost": cost, "ratio_mean": mean, "ratio_worst": worst, **figures}


def _six(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _whole(seconds: float) -> float | int:
    return int(seconds) if seconds == int(seconds) else seconds


def _terms(cell: PlacementCell) -> tuple[float, float, str]:
    return cell.deadline_s, cell.changeover_s, cell.policy


def families(cells: Sequence[PlacementCell]) -> list[PlacementCell]:
    """The pools of each family as one cell; its ``pool`` gives their number."""
    return _pooled(cells, lambda cell: (cell.family, *_terms(cell)))


def totals(cells: Sequence[PlacementCell]) -> list[tuple[PlacementCell, list[PlacementCell]]]:
    """All windows of each policy as one cell, with its cells."""
    policies = dict.fromkeys(cell.policy for cell in cells)
    mine = [[cell for cell in cells if cell.policy == policy] for policy in policies]
    return [(_together(group), group) for group in mine]


def _pooled(cells: Sequence[PlacementCell], key: Callable[[PlacementCell], Hashable]) -> list[PlacementCell]:
    groups: dict[Hashable, list[PlacementCell]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return [_together(group) for group in groups.values()]


def _together(cells: Sequence[PlacementCell]) -> PlacementCell:
    """The windows of these cells as one; as in every cell, the ratio is mean cost / mean optimum."""
    several = f"{len(cells)} pools" if len(cells) > 1 else "1 pool"
    name = f"{cells[0].together} pools together" if len(cells) == 1 and cells[0].together > 1 else several
    return replace(cells[0], pool=name, windows=tuple(window for cell in cells for window in cell.windows))


# --- tables ---------------------------------------------------------------------------------------------------------


def tables(
    console: Console, request: Request, cells: Sequence[PlacementCell], notes: Sequence[str]
) -> Iterator[RenderableType]:
    """Cost over optimum of each policy by family and by pool, then totals: cost, missed deadlines, interruptions."""
    gang = request.prices.gang
    on_gangs = f" on gangs of {gang}" if gang > 1 else ""
    yield Text(f"Cost over optimum · {_hours(request.work)} of work{on_gangs}", style="bold")
    of_families = families(cells)
    yield from _ratios(console, of_families)
    if len(cells) > len(of_families):
        rows = len(cells) // len(request.policies)
        shown = _ratios(console, cells) if rows <= _MOST_ROWS else [f"{rows} rows: use --json"]
        yield from ("", Text("By pool", style="bold"), *shown)
    yield from ("", Text("Total", style="bold"), *_totals(console, cells), "")
    paid = f"Mean cost is for all {gang} machines." if gang > 1 else ""
    yield from (Text(note, style="dim") for note in (_NOTE, paid, *notes) if note)


def _ratios(console: Console, cells: Sequence[PlacementCell]) -> list[RenderableType]:
    compared = [policy for policy in dict.fromkeys(cell.policy for cell in cells) if policy != OMNISCIENT]
    by: dict[tuple[str, str, float, float], dict[str, PlacementCell]] = {}
    for cell in cells:
        by.setdefault((cell.family, cell.pool, cell.deadline_s, cell.changeover_s), {})[cell.policy] = cell
    rows: list[list[str | Text]] = []
    for (family, pool, deadline, changeover), of in by.items():
        ratios = [of[policy].ratio_mean for policy in compared]
        shown = [Text(f"{ratio:.3f}", style="bold" if ratio == min(ratios) else "") for ratio in ratios]
        windows = str(len(next(iter(of.values())).windows))
        rows.append([family, pool, _hours(deadline), _hours(changeover), *shown, windows])
    ranks = {"gpubroker": 0, "uniform-progress": 0}  # on a narrow terminal the others are hidden first
    columns = [
        Column("family", 8 if len({family for family, *_ in by}) == 1 else 1, folds=True),
        Column("pool", folds=True),
        Column("deadline", align="right"),
        Column("changeover", 7, "right"),
        *(Column(policy, ranks.get(policy, 2 + i), "right") for i, policy in enumerate(compared)),
        Column("windows", 9, "right"),
    ]
    return cell_table_parts(console, columns, rows)


def _totals(console: Console, cells: Sequence[PlacementCell]) -> list[RenderableType]:
    worst = {total.policy: max(cell.ratio_mean for cell in mine) for total, mine in totals(cells)}
    columns: tuple[ValueColumn[PlacementCell], ...] = (
        ValueColumn("policy", lambda of: of.policy),
        ValueColumn("mean cost", lambda of: f"${of.mean_cost:,.2f}", 2, "right"),
        ValueColumn("over optimum", lambda of: f"{of.ratio_mean:.3f}", 0, "right"),
        ValueColumn("worst cell", lambda of: f"{worst[of.policy]:.3f}", 4, "right"),
        ValueColumn("95th percentile", lambda of: f"{of.ratio_p95:.3f}", 3, "right"),
        ValueColumn("missed", lambda of: Text(str(of.missed), style="bold red" if of.missed else ""), 1, "right"),
        ValueColumn("on-demand", lambda of: text_or_dash(of.on_demand_share, percent), 5, "right"),
        ValueColumn("interruptions", lambda of: text_or_dash(of.interruptions, "{:.1f}".format), 6, "right"),
    )
    return table_parts(console, columns, [total for total, _ in totals(cells)])


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:g} h" if seconds >= 3600 and seconds % 3600 == 0 else length(timedelta(seconds=seconds))


if __name__ == "__main__":
    command.run(main)
