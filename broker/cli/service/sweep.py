"""`gpubroker doctor --sweep`: find and end orphaned machines, attempts and holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from broker.app.service.sweep import EndedLeftover, Swept
    from broker.reconciler.sweep import Leftover

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
    if not as_json:
        terminal.show(*_shown(terminal, swept))
    ended: list[EndedLeftover] = []
    if end and swept.orphans and _agreed(terminal, swept, yes=yes):
        ended = use_case.end(broker, swept)
    if as_json:
        terminal.answer(SweepReport.of(swept, ended))
    else:
        terminal.show(*_told(ended))
        if swept.orphans and not end:
            terminal.show("Nothing was changed. To end the orphans: gpubroker doctor --sweep --end")
    kept = len(swept.orphans) if not ended else sum(bool(one.error) for one in ended)
    return 2 if kept or swept.trouble else 0


def _agreed(terminal: Terminal, swept: Swept, *, yes: bool) -> bool:
    if yes:
        return True
    if not terminal.asks:
        raise InvalidInput("ending orphans needs confirmation", hint="add --yes")
    import typer

    from broker.cli.render.formats import plural

    return typer.confirm(f"End {plural(len(swept.orphans), 'orphan')}?", default=False, err=True)


def _shown(terminal: Terminal, swept: Swept) -> list[RenderableType]:
    from rich.text import Text

    from broker.app.results.service import about
    from broker.cli.render import formats
    from broker.cli.render.tables import ValueColumn, listed

    parts: list[RenderableType] = []
    if swept.found:
        columns: tuple[ValueColumn[Leftover], ...] = (
            ValueColumn("type", lambda one: _KINDS[one.kind]),
            ValueColumn("ID", lambda one: one.id, folds=True),
            ValueColumn(
                "status",
                lambda one: Text(_STANDINGS[one.standing], style="bold red" if one.standing == "orphan" else ""),
            ),
            ValueColumn("age", lambda one: formats.age(swept.at - one.since if one.since else None), 2),
            ValueColumn("details", lambda one: about(one), 3, folds=True),
            ValueColumn("reason", lambda one: one.why, 1, folds=True),
        )
        parts += listed(terminal.out, columns, swept.found)
    asked = ", ".join(swept.asked) or "none, because no engine was used and no provider has a login"
    orphans = formats.plural(len(swept.orphans), "orphan") if swept.orphans else "no orphans"
    parts.append(f"{orphans}; queried: {asked}")
    parts += [Text(f"✗ {name} could not be queried: {why}", style="red") for name, why in swept.trouble.items()]
    if swept.without_login:
        parts.append(Text(f"not queried, no login: {', '.join(swept.without_login)}", style="dim"))
    return parts


def _told(ended: Sequence[EndedLeftover]) -> list[str]:
    return [
        f"✗ {one.leftover.id}: {one.error}"
        if one.error
        else f"✓ {one.leftover.id}: termination requested"
        if one.leftover.machine is not None
        else f"✓ {one.leftover.id}: ended"
        for one in ended
    ]
