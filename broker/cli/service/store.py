"""`gpubroker store`: back up the store and restore it. Refused while logged in to a team server, whose
store is not on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

app = typer.Typer(no_args_is_help=True, help="The database of jobs, money, prices and policies: back up, restore.")


@app.command(
    epilog=examples("gpubroker store backup gpubroker-2026-11-25.db", "gpubroker store backup /backup/monday.db")
)
def backup(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file. An existing one is never overwritten.")],
    as_json: AsJson = False,
) -> None:
    """Copy the store into a file while jobs run. For SQLite; PostgreSQL has `pg_dump`.

    The copy is complete as of one moment, checked, and readable by you alone: it holds the key that signs orders to
    machines. Run folders with checkpoints and outputs are not in it; they are in GPUBROKER_RUNS.
    """
    from broker.app.service.store_copies import back_up_store

    terminal = Terminal.of(context)
    backup_copy = back_up_store(terminal.broker(look_after=False), file.absolute(), by=terminal.actor)
    if as_json:
        terminal.answer(backup_copy)
        return
    terminal.say(
        f"Backed up to {backup_copy.path} ({backup_copy.size / 1e6:.1f} MB, "
        f"{_newest_event_text(backup_copy.newest_event)})."
    )


@app.command(epilog=examples("gpubroker store restore monday.db", "gpubroker store restore monday.db --yes --json"))
def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A copy made by `gpubroker store backup`.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replace the store by a copy. The present content is kept in a file next to it.

    Refused while `gpubroker serve` runs. What happened since the copy was made is not in it: open jobs go on, and find
    their machines again; machines started since then are found by `gpubroker doctor --sweep`.
    """
    from broker.app.service.store_copies import restore_store as use_case
    from broker.store.engine.copies import examine

    terminal = Terminal.of(context)
    broker = terminal.broker(look_after=False)
    copy_details = examine(file)
    question = f"Replace {broker.store.where} by {file} ({_newest_event_text(copy_details.newest_event)})?"
    if not terminal.confirm(question, yes=yes):
        raise typer.Abort
    restored_store = use_case(broker, file, by=terminal.actor)
    if as_json:
        terminal.answer(restored_store)
        return
    terminal.say(f"Restored from {file} ({_newest_event_text(restored_store.restored.newest_event)}).")
    terminal.say(f"What was there before is kept in {restored_store.previous.path}.")
    terminal.say(
        "Machines and money since then are not in it. Next: gpubroker doctor --sweep, gpubroker capacity list --check"
    )


def _newest_event_text(newest: object) -> str:
    return "without a job" if newest is None else f"newest event {newest:%Y-%m-%d %H:%M:%S} UTC"
