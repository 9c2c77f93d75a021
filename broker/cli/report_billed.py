"""`gpubroker report billed` and `gpubroker report charges`: what was quoted, metered and charged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from broker.app.charges import Billed, Recorded
    from broker.core.money import Money
    from broker.launch.charges import Comparison

BILLED_EXAMPLES = examples(
    "gpubroker report billed",
    "gpubroker report billed --by job --from 30d",
    "gpubroker report billed --from 2026-11-01 --to 2026-12-01 --json",
)
_DIMENSIONS = ("provider", "job", "attempt")
_MOST_NAMED = 5

charges = typer.Typer(no_args_is_help=True, help="What providers charged.")


@charges.callback()
def _charges() -> None:
    """What providers charged: asked, or imported from a file."""


def billed(
    context: typer.Context,
    by: Annotated[str, typer.Option("--by", metavar="DIM", help="provider, job or attempt.")] = "provider",
    since: Annotated[
        str | None, typer.Option("--from", metavar="WHEN", help="What ran then or later: 2026-11-01, or 7d ago.")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="WHEN", help="What ran before then.")] = None,
    as_json: AsJson = False,
) -> None:
    """What was quoted when jobs were placed, what was metered, and what the provider charged in the end.

    An attempt is compared once its job is closed and its charges cover all of its time; the difference is in the
    ledger then, as an adjustment. Amounts are of whole attempts. Read `gpubroker report charges fetch --help` for
    where charges come from.
    """
    from broker.app import charges as use_case

    if by not in _DIMENSIONS:
        raise InvalidInput(
            f"{by!r} is not something to group by", where="--by", hint=f"one of {', '.join(_DIMENSIONS)}"
        )
    terminal = Terminal.of(context)
    broker = terminal.broker()
    now = broker.clock.now()
    start, end = _when("--from", since, now), _when("--to", until, now)
    found = use_case.billed(broker, start, end)
    if as_json:
        terminal.answer(_document(found, by, start, end))
    else:
        terminal.show(*_table(terminal, found, by))


@charges.command(
    "fetch", epilog=examples("gpubroker report charges fetch", "gpubroker report charges fetch --provider aws --json")
)
def fetch(
    context: typer.Context,
    provider: Annotated[str, typer.Option("--provider", "-p", help="Only this one.")] = "",
    as_json: AsJson = False,
) -> None:
    """Ask the providers that tell (aws, azure) what they charged, and adjust the ledger. AWS bills a cent a question.

    `gpubroker serve` does it once a day. Machines are told apart by their tag gpubroker, which AWS must be told to use
    as a cost allocation tag (Billing console) once. For other providers: gpubroker report charges import FILE.
    """
    from broker.app import charges as use_case

    terminal = Terminal.of(context)
    _tell(terminal, use_case.fetch(terminal.broker(), provider), as_json=as_json)


@charges.command("import", epilog=examples("gpubroker report charges import vast-2026-11.csv --provider vast"))
def import_(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV with a header: key,starts,ends,amount (or day for the times).")
    ],
    provider: Annotated[
        str, typer.Option("--provider", "-p", help="Whose charges these are, where no column says it.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Import what a provider charged from a CSV file, and adjust the ledger. The same file again changes nothing.

    Columns: key (the attempt's, as its machine is named: train-k3v9qz-1; empty for what is none of ours), starts and
    ends (ISO 8601, UTC) or day, amount (USD); and provider, line (tells several for one time apart), estimated (yes
    for what may still change), where they are known.
    """
    from broker.app import charges as use_case

    terminal = Terminal.of(context)
    _tell(terminal, use_case.import_file(terminal.broker(), file, provider), as_json=as_json)


def _when(option: str, text: str | None, now: datetime) -> datetime | None:
    from broker.cli.words import parse_moment

    try:
        return None if text is None else parse_moment(text, now)
    except ValueError as error:
        raise InvalidInput(str(error), where=option) from error


# --- drawing --------------------------------------------------------------------------------------------------------


def _group(row: Comparison, by: str) -> str:
    return {"provider": row.provider, "job": row.job_id, "attempt": row.key}[by]


def _grouped(rows: Sequence[Comparison], by: str) -> list[tuple[str, list[Comparison]]]:
    groups: dict[str, list[Comparison]] = {}
    for row in rows:
        groups.setdefault(_group(row, by), []).append(row)
    return sorted(groups.items(), key=lambda item: (-_sum(one.metered for one in item[1]).micros, item[0]))


def _sum(amounts: Any) -> Money:
    from broker.core.money import Money

    return sum(amounts, Money.ZERO)


def _figures(rows: Sequence[Comparison]) -> dict[str, Any]:
    """``difference`` and ``compared_metered`` are of the attempts that could be compared."""
    compared = [row for row in rows if row.difference is not None]
    known = [row.billed for row in rows if row.billed is not None]
    return {
        "attempts": len(rows),
        "compared": len(compared),
        "quoted": _sum(row.quoted for row in rows),
        "metered": _sum(row.metered for row in rows),
        "billed": _sum(known) if known else None,
        "difference": _sum(row.difference for row in compared) if compared else None,
        "compared_metered": _sum(row.metered for row in compared),
        "adjusted": _sum(row.adjusted for row in rows),
        "estimated": any(row.estimated for row in rows),
    }


def _table(terminal: Terminal, found: Billed, by: str) -> list[RenderableType]:
    from rich.text import Text

    from broker.cli import words
    from broker.cli.tables import Column, fitting, left_out

    others = [f"{name} charged {words.money(sum_)} for none of them" for name, sum_ in sorted(found.for_others.items())]
    if not found.rows:
        return ["no attempt that costs cash ran in that time", *others]
    columns = (
        Column(by),
        Column("quoted", 2, align="right"),
        Column("metered", align="right"),
        Column("billed", align="right"),
        Column("difference", align="right"),
        Column("adjusted", 3, align="right"),
        Column("compared", 1, align="right"),
    )
    cells: list[list[str | Text]] = []
    for group, rows in _grouped(found.rows, by):
        it = _figures(rows)
        billed = words.money(it["billed"]) + (" est." if it["estimated"] else "")
        cells.append(
            [
                group,
                words.money(it["quoted"]),
                words.money(it["metered"]),
                billed,
                _difference(it),
                words.money(it["adjusted"]),
                f"{it['compared']} of {it['attempts']}",
            ]
        )
    table, hidden = fitting(terminal.out, columns, cells)
    parts: list[RenderableType] = [table]
    lines = [left_out(hidden)] if hidden else []
    lines += others
    if any(row.billed is None for row in found.rows):
        lines.append("nothing was charged yet where there is –; gpubroker report charges fetch asks the providers")
    return [*parts, *(Text(line, style="dim") for line in lines)]


def _difference(figures: dict[str, Any]) -> str:
    from broker.cli import words

    difference, metered = figures["difference"], figures["compared_metered"]
    if difference is None:
        return words.NOTHING
    sign = "+" if difference.micros > 0 else ""
    share = f" ({sign}{difference.micros / metered.micros * 100:.1f} %)" if metered else ""
    return f"{sign}{words.money(difference)}{share}"


def _document(found: Billed, by: str, since: datetime | None, until: datetime | None) -> dict[str, Any]:
    return {
        "by": by,
        "from": since,
        "to": until,
        "rows": [{"group": group, **_figures(rows)} for group, rows in _grouped(found.rows, by)],
        "total": _figures(found.rows),
        "attempts": [
            {
                "key": row.key,
                "job": row.job_id,
                "attempt": row.attempt,
                "provider": row.provider,
                "standing": row.standing,
                "gone_at": row.gone_at,
                "quoted": row.quoted,
                "metered": row.metered,
                "billed": row.billed,
                "difference": row.difference,
                "adjusted": row.adjusted,
                "estimated": row.estimated,
            }
            for row in found.rows
        ],
        "for_others": found.for_others,
    }


def _tell(terminal: Terminal, done: Recorded, *, as_json: bool) -> None:
    from rich.text import Text

    from broker.cli import words

    if as_json:
        terminal.answer(
            {
                "changed": done.changed,
                "adjusted": [{"key": one.key, "difference": one.difference} for one in done.adjusted],
                "alerts": [notice.title for notice in done.alerts],
                "trouble": done.trouble,
                "without_login": done.without_login,
                "unknown": done.unknown,
            }
        )
    else:
        for name, count in sorted(done.changed.items()):
            terminal.show(f"{name}: {words.plural(count, 'charge')} new or changed")
        if done.unknown:
            more = f" and {len(done.unknown) - _MOST_NAMED} more" if len(done.unknown) > _MOST_NAMED else ""
            named = ", ".join(done.unknown[:_MOST_NAMED])
            terminal.say(f"warning: no attempt of this store is called {named}{more}; what they cost is nobody's here")
        if not done.changed and not done.trouble:
            terminal.show("no provider that tells what it charged is awaited")
        for one in done.adjusted:
            terminal.show(f"{one.key}: billed {one.billed}, metered {one.metered}; the ledger has the difference now")
        terminal.show(*(Text(f"! {notice.title}", style="yellow") for notice in done.alerts))
        if done.without_login:
            terminal.show(Text(f"not asked, for want of a login: {', '.join(done.without_login)}", style="dim"))
    for name, why in done.trouble.items():
        terminal.say(f"{name} could not be asked: {why}")
    if done.trouble:
        raise typer.Exit(5)
