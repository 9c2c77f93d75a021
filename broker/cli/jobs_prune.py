"""`gpubroker jobs prune`: letting go of checkpoints that nobody needs any more."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

EXAMPLES = examples("gpubroker jobs prune --dry-run", "gpubroker jobs prune --keep 7d --newest-too --yes")


def prune(
    context: typer.Context,
    keep: Annotated[
        str, typer.Option(metavar="TIME", help="Jobs that ended within this time keep theirs: 30d, 12h.")
    ] = "30d",
    newest_too: Annotated[
        bool, typer.Option("--newest-too", help="Each job's newest one, too, which may be its result.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete checkpoints of your jobs that have ended; each job's newest one stays.

    While a job goes on, `checkpoint.keep` in its file says how many stay. What jobs printed, did and cost is kept.
    """
    from broker.app.retention import prune as prune_checkpoints
    from broker.cli import words
    from broker.core.errors import InvalidInput
    from broker.core.units import parse_duration
    from broker.placement.words import gigabytes

    try:
        kept = parse_duration(keep)
    except ValueError as error:
        raise InvalidInput(str(error), where="--keep") from error
    terminal = Terminal.of(context)
    broker = terminal.broker()
    before = broker.clock.now() - kept
    found = prune_checkpoints(broker, before, newest_too=newest_too, dry_run=True)
    count = words.plural(sum(len(one.gone) for one in found), "checkpoint")
    what = f"{count} of {words.plural(len(found), 'job')}, {gigabytes(sum(one.size for one in found))}"
    doing = bool(found) and not dry_run
    if doing and not yes:
        if as_json or not terminal.out.is_terminal:
            raise InvalidInput(f"nobody is there to confirm that {what} are to go", hint="add --yes, or --dry-run")
        doing = typer.confirm(f"Delete {what}?", default=False, err=True)
    if doing:
        found = prune_checkpoints(broker, before, newest_too=newest_too)
    if as_json:
        terminal.answer(
            {
                "before": before,
                "deleted": doing,
                "jobs": [
                    {
                        "id": one.view.id,
                        "gone": [{"checkpoint": kept.id, "bytes": kept.size} for kept in one.gone],
                        "stays": [{"checkpoint": kept.id, "bytes": kept.size} for kept in one.stays],
                    }
                    for one in found
                ],
            }
        )
        return
    if not found:
        terminal.show(f"Nothing to delete of jobs that ended before {words.moment(before)}.")
        return
    for one in found:
        stays = "its newest stays" if one.stays else "none stays"
        terminal.show(f"{one.view.id}: {words.plural(len(one.gone), 'checkpoint')}, {gigabytes(one.size)}; {stays}")
    terminal.show(f"Deleted {what}." if doing else f"Would delete {what}.")
