"""`gpubroker doctor --sweep`: find and end orphaned machines, attempts and holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from broker.app.results.service import LeftoverResult, SweepReport

_KINDS = {"machine_without_attempt": "machine", "attempt_without_machine": "attempt", "hold_without_either": "money"}
_STANDINGS = {
    "orphan": "orphan",
    "too_young": "too recent to judge",
    "reconciler": "handled by the reconciler",
    "another_store": "owned by another store",
    "unknown_owner": "owner unknown",
}


def sweep(terminal: Terminal, *, end: bool, yes: bool, as_json: bool) -> int:
    """Show what a sweep finds; with ``end``, end the orphans after confirmation, or at once with ``yes``. Returns the
    exit code: 0 if no orphan is left and every engine and provider answered, else 2."""
    from broker.app.results.service import SweepReport
    from broker.app.service import sweep as use_case

    broker = terminal.broker(look_after=False)
    swept = use_case.sweep(broker)
    report = SweepReport.of(swept)
    if not as_json:
        terminal.show(*_shown(terminal, report))
    if end and report.orphans and _agreed(terminal, report.orphans, yes=yes):
        report = SweepReport.of(swept, use_case.end(broker, swept))
    terminal.result(report, lambda: _told(report, end=end))
    tried = [one for one in report.found if one.ended or one.error]
    kept = sum(bool(one.error) for one in tried) if tried else report.orphans
    return 2 if kept or report.trouble else 0


def _agreed(terminal: Terminal, orphans: int, *, yes: bool) -> bool:
    if yes:
        return True
    if not terminal.asks:
        raise InvalidInput("ending orphans needs confirmation", hint="add --yes")
    import typer

    from broker.cli.render.formats import plural

    return typer.confirm(f"End {plural(orphans, 'orphan')}?", default=False, err=True)


def _shown(terminal: Terminal, swept: SweepReport) -> Iterator[RenderableType]:
    from rich.text import Text

    from broker.cli.render import formats
    from broker.cli.render.tables import ValueColumn, listed

    if swept.found:
        columns: tuple[ValueColumn[LeftoverResult], ...] = (
            ValueColumn("type", lambda one: _KINDS[one.kind]),
            ValueColumn("ID", lambda one: one.id, folds=True),
            ValueColumn(
                "status",
                lambda one: Text(_STANDINGS[one.standing], style="bold red" if one.standing == "orphan" else ""),
            ),
            ValueColumn("age", lambda one: formats.age(swept.at - one.since if one.since else None), 2),
            ValueColumn("details", lambda one: one.about, 3, folds=True),
            ValueColumn("reason", lambda one: one.why, 1, folds=True),
        )
        yield from listed(terminal.out, columns, swept.found)
    asked = ", ".join(swept.asked) or "none, because no engine was used and no provider has a login"
    orphans = formats.plural(swept.orphans, "orphan") if swept.orphans else "no orphans"
    yield f"{orphans}; queried: {asked}"
    yield from (Text(f"✗ {name} could not be queried: {why}", style="red") for name, why in swept.trouble.items())
    if swept.without_login:
        yield Text(f"not queried, no login: {', '.join(swept.without_login)}", style="dim")


def _told(swept: SweepReport, *, end: bool) -> Iterator[str]:
    for one in swept.found:
        if one.error:
            yield f"✗ {one.id}: {one.error}"
        elif one.ended:
            yield f"✓ {one.id}: {'ended' if one.place is None else 'termination requested'}"
    if swept.orphans and not end:
        yield "Nothing was changed. To end the orphans: gpubroker doctor --sweep --end"
