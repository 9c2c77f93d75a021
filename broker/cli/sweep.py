"""`gpubroker doctor --sweep`: what nobody looks after, and ending it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from broker.app.sweep import Ended, Swept
    from broker.launch.sweep import Leftover

_KINDS = {
    "machine_without_attempt": "machine",
    "attempt_without_machine": "attempt",
    "hold_without_either": "money",
}
_STANDINGS = {
    "orphan": "orphan",
    "too_young": "too young to tell",
    "reconciler": "the reconciler's",
    "another_store": "another store's",
    "unknown_owner": "whose is not known",
}


def sweep(terminal: Terminal, *, end: bool, yes: bool, as_json: bool) -> int:
    """Show what a sweep finds; with ``end``, end the orphans once a person, or ``yes``, says so. The exit code: 0 when
    no orphan is left and everybody could be asked, else 2."""
    from broker.app import sweep as use_case

    broker = terminal.broker(look_after=False)
    swept = use_case.sweep(broker)
    if not as_json:
        terminal.show(*_shown(terminal, swept))
    ended: list[Ended] = []
    if end and swept.orphans and _agreed(terminal, swept, yes=yes):
        ended = use_case.end(broker, swept)
    if as_json:
        terminal.answer(document(swept, ended))
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
        raise InvalidInput("nobody is there to confirm what is to be ended", hint="add --yes")
    import typer

    from broker.cli.words import plural

    return typer.confirm(f"End {plural(len(swept.orphans), 'orphan')}?", default=False)


def _shown(terminal: Terminal, swept: Swept) -> list[RenderableType]:
    from rich.text import Text

    from broker.cli import words
    from broker.cli.tables import Column, fitting, left_out

    parts: list[RenderableType] = []
    if swept.found:
        columns = (
            Column("what"),
            Column("which", folds=True),
            Column("standing"),
            Column("since", 2),
            Column("about", 3, folds=True),
            Column("why", 1, folds=True),
        )
        cells: list[list[str | Text]] = [
            [
                _KINDS[one.kind],
                one.id,
                Text(_STANDINGS[one.standing], style="bold red" if one.standing == "orphan" else ""),
                words.age(swept.at - one.since if one.since else None),
                _about(one),
                one.why,
            ]
            for one in swept.found
        ]
        table, hidden = fitting(terminal.out, columns, cells)
        parts.append(table)
        if hidden:
            parts.append(Text(left_out(hidden), style="dim"))
    asked = ", ".join(swept.asked) or "nobody: no engine was used from here, and no provider is logged in to"
    orphans = words.plural(len(swept.orphans), "orphan") if swept.orphans else "no orphans"
    parts.append(f"{orphans}; asked: {asked}")
    parts += [Text(f"✗ {name} could not be asked: {why}", style="red") for name, why in swept.trouble.items()]
    if swept.without_login:
        parts.append(Text(f"not asked, for want of a login: {', '.join(swept.without_login)}", style="dim"))
    return parts


def _about(one: Leftover) -> str:
    if one.held is not None:
        return f"{one.held.amount} {one.held.money}"
    return one.machine.about if one.machine is not None else f"attempt {one.attempt}"


def _told(ended: Sequence[Ended]) -> list[str]:
    return [
        f"✗ {one.leftover.id}: {one.error}"
        if one.error
        else f"✓ {one.leftover.id}: told to end"
        if one.leftover.machine is not None
        else f"✓ {one.leftover.id}: ended"
        for one in ended
    ]


def document(swept: Swept, ended: Sequence[Ended]) -> dict[str, Any]:
    """As JSON has it."""
    errors = {one.leftover.id: one.error for one in ended}
    return {
        "at": swept.at,
        "store": swept.store,
        "asked": swept.asked,
        "trouble": swept.trouble,
        "without_login": swept.without_login,
        "orphans": len(swept.orphans),
        "found": [
            {
                "id": one.id,
                "kind": one.kind,
                "standing": one.standing,
                "job": one.job_id,
                "key": one.key or None,
                "since": one.since,
                "why": one.why,
                "about": _about(one),
                "place": one.machine.place if one.machine else None,
                "store": one.machine.store or None if one.machine else None,
                "amount": one.held.amount if one.held else None,
                "ended": one.id in errors and not errors[one.id],
                "error": errors.get(one.id) or None,
            }
            for one in swept.found
        ],
    }
