"""`gpubroker policy` through a team server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.options import AsJson, PolicyFiles, Reason, examples
from broker.cli.policy.applying import APPLY_EXAMPLES, PREVIEW_EXAMPLES, ROLLBACK_EXAMPLES, Diff, DryRun, Past, Yes
from broker.cli.remote import api_of, group_of, through
from broker.cli.remote.tables import DocumentColumn, listed, number, table, text, time, when
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.cli.terminal import Terminal

app = typer.Typer(
    cls=group_of("broker.cli.policy.policy:app"),
    no_args_is_help=True,
    help="Policies of the server: show, preview, apply and roll back.",
)


@app.callback()
def policy() -> None:
    """Policies of the server: show, preview, apply and roll back."""


@app.command(epilog=examples("gpubroker policy show", "gpubroker policy show --files", "gpubroker policy show --json"))
def show(
    context: typer.Context,
    files: Annotated[bool, typer.Option("--files", help="Print the active files, if you may see all teams.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the active policy: its rules with file and line, approvers, and who activated it. In a team: the rules that
    name no other team."""
    from broker.cli.render import formats

    terminal, api = through(context)
    found = api.get("/policies", files=True if files else None)
    active = found["active"]
    if as_json:
        terminal.answer(found)
    elif active is None:
        terminal.show("No policy is active: nothing that costs real money is launched.")
    elif active.get("files"):
        for name, said in active["files"].items():
            terminal.show(f"# {name}", said)
    else:
        terminal.show(f"Version {active['number']} by {active['by']}, {formats.moment(when(active['activated_at']))}")
        columns = (
            text("name", "rule"), text("kind"), text("scope", "for", folds=True), text("when", rank=3, folds=True),
            text("approvers", rank=1, folds=True), text("source", "written at", 2),
        )  # fmt: skip
        terminal.show(*table(terminal.out, columns, active["rules"], "no rule concerns your teams"))


@app.command(epilog=examples("gpubroker policy versions", "gpubroker policy versions --json"))
def versions(context: typer.Context, as_json: AsJson = False) -> None:
    """List every version of the policy: when it was applied, by whom, and why. The newest is active."""
    api = api_of(context)
    found = api.get("/policies/versions")
    columns = (
        number("number"), time("activated_at", "activated"), text("by"), text("file_names", "files", 1, folds=True),
        text("note", rank=2, folds=True),
    )  # fmt: skip
    listed(context, found, "versions", columns, "No policy was ever applied.")


@app.command(epilog=APPLY_EXAMPLES)
def apply(
    context: typer.Context,
    files: PolicyFiles,
    reason: Reason = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    past: Past = True,
    diff: Diff = False,
    as_json: AsJson = False,
) -> None:
    """Make these files the server's active policy. Files that are not named no longer apply.

    First shows the effect; asks for confirmation, or needs --yes without a terminal. Refused if another person changed
    the policy meanwhile.
    """
    body = {"files": _texts(files)}
    _propose(context, "/policies", body, _PolicyRequest(reason, yes, dry_run, past, diff, as_json))


@app.command(epilog=PREVIEW_EXAMPLES)
def preview(context: typer.Context, files: PolicyFiles, past: Past = True, as_json: AsJson = False) -> None:
    """Show what applying these files to the server would do, without applying them."""
    body = {"files": _texts(files)}
    _propose(context, "/policies", body, _PolicyRequest("", False, True, past, True, as_json))


@app.command(epilog=ROLLBACK_EXAMPLES)
def rollback(
    context: typer.Context,
    version: Annotated[
        int | None, typer.Argument(metavar="[VERSION]", help="Number in `policy versions`. Default: the previous one.")
    ] = None,
    reason: Reason = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    past: Past = True,
    diff: Diff = False,
    as_json: AsJson = False,
) -> None:
    """Activate an earlier version of the server's policy again, as a new version. Shows the effect first."""
    body = {"version": version}
    _propose(context, "/policies/rollback", body, _PolicyRequest(reason, yes, dry_run, past, diff, as_json))


@app.command(epilog=examples("gpubroker policy check team.yaml", "gpubroker policy check policies/ --json"))
def check(context: typer.Context, files: PolicyFiles, as_json: AsJson = False) -> None:
    """Have the server check policy files: every error with line and column, and likely mistakes. Changes nothing."""
    terminal, api = through(context)
    found = api.ask("/policies/check", {"files": _texts(files)})
    if as_json:
        terminal.answer(found)
        return
    terminal.say(*(f"warning: {one}" for one in found["warnings"]))
    columns = (text("name", "rule"), text("kind"), text("scope", "for", folds=True), text("source", "written at"))
    terminal.show(*table(terminal.out, columns, found["rules"], "no rules"), "The files are valid.")


@app.command(epilog=examples("gpubroker policy explain JOB.yaml", "gpubroker policy explain training-x7k2mp --json"))
def explain(
    context: typer.Context,
    job: Annotated[Path, typer.Argument(metavar="JOB", help="Job file, or ID or name of a submitted job.")],
    policy: Annotated[
        list[Path] | None,
        typer.Option("--policy", metavar="FILES", help="What-if: judge by these files instead. Repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the verdict of every rule on a job; of a submitted job, the verdicts on record."""
    from datetime import UTC, datetime

    from broker.app.jobs.job_input import read_job
    from broker.core.job.file import print_job
    from broker.remote.sending import job_id

    terminal, api = through(context)
    columns = (text("answer"), text("name", "rule"), text("message", folds=True), text("source", "written at", 1))
    if not job.exists() and job.suffix not in (".yaml", ".yml"):
        found = api.get(f"/jobs/{job_id(api, str(job))}/decisions")
        if as_json:
            terminal.answer(found)
        for one in () if as_json else found["decisions"]:
            terminal.show(f"{one['at']}: {one['action']}: {one['answer']}")
            terminal.show(*table(terminal.out, columns, one["verdicts"], "no rule applied"))
        return
    body: dict[str, Any] = {"job_file": print_job(read_job(job, datetime.now(UTC)))}
    found = api.ask("/policies/explain", {**body, "files": _texts(policy) if policy else None})
    if as_json:
        terminal.answer(found)
    else:
        terminal.show(f"{found['offer']}: {found['answer']}")
        terminal.show(*table(terminal.out, columns, found["verdicts"], "no rule applies"))


@app.command(epilog=examples("gpubroker policy backtest --from 30d policies/ --json"))
def backtest(
    context: typer.Context,
    files: PolicyFiles,
    since: Annotated[str, typer.Option("--since", "--from", metavar="WHEN", help="Start: 2026-11-01, or 30d (ago).")],
    until: Annotated[str | None, typer.Option("--until", "--to", metavar="WHEN", help="End, exclusive.")] = None,
    as_json: AsJson = False,
) -> None:
    """Have the server judge its recorded decisions by these policy files. Changes nothing."""
    terminal, api = through(context)
    body = {"files": _texts(files), "since": _moment("--since", since)}
    found = api.ask("/policies/backtest", {**body, "until": _moment("--until", until) if until else None})
    if as_json:
        terminal.answer(found)
    else:
        unknown = f"; {found['unknown']} without recorded facts" if found["unknown"] else ""
        terminal.show(f"{len(found['differences'])} of {found['decisions']} decisions would differ{unknown}.")
        columns = (time("at"), text("user"), text("job_name", "job"), text("before"), text("after"))
        terminal.show(*table(terminal.out, columns, found["differences"], "no difference"))


@app.command(epilog=examples("gpubroker policy findings", "gpubroker policy findings --since 180d --json"))
def findings(
    context: typer.Context,
    since: Annotated[
        str, typer.Option("--since", "--from", metavar="WHEN", help="Start of the period: 90d (ago), or a date.")
    ] = "90d",
    as_json: AsJson = False,
) -> None:
    """Compare recorded use with owned, reserved and rented capacity, and list what rules that only warn would have
    stopped."""
    terminal, api = through(context)
    found = api.get("/policies/findings", since=_moment("--since", since))
    if as_json:
        terminal.answer(found)
    else:
        columns = (text("sentence", "finding", folds=True), text("because", folds=True))
        terminal.show(*table(terminal.out, columns, found["findings"], "no finding"))
        terminal.show(*(f"{one['name']} ({one['source']}): only warns" for one in found["warned_rules"]))


def _moment(option: str, text: str) -> str:
    from datetime import UTC, datetime

    from broker.cli import filters

    return filters.moment(option, text, datetime.now(UTC)).isoformat()


def _texts(files: list[Path]) -> dict[str, str]:
    from broker.app.policy.policies import read_files

    texts = read_files(files)
    found = {Path(name).name: text for name, text in texts.items()}
    if len(found) < len(texts):
        raise InvalidInput("two of the files have the same name", hint="a server knows policy files by their names")
    return found


@dataclass(frozen=True, slots=True)
class _PolicyRequest:
    """The options of a policy change, as of `policy apply` without a server."""

    reason: str
    yes: bool
    dry_run: bool
    past: bool
    diff: bool
    as_json: bool


def _propose(context: typer.Context, path: str, body: dict[str, Any], asked: _PolicyRequest) -> None:
    terminal, api = through(context)
    seen = api.ask(f"{path}/preview", body, past=asked.past)
    if asked.dry_run and asked.as_json:
        terminal.answer(seen)
        return
    if seen["changed"] and not asked.as_json:
        _show_effect(terminal, seen, diff=asked.diff)
    if asked.dry_run or not seen["changed"]:
        terminal.say("Nothing was changed." if seen["changed"] else "Nothing changes: these files are already active.")
        if asked.dry_run or not asked.as_json:
            return
    elif not asked.yes:
        if not terminal.asks:
            raise InvalidInput("no terminal for the confirmation; nothing was changed", hint="add --yes")
        if not typer.confirm("Apply this?", default=False, err=True):
            terminal.say("Nothing was changed.")
            raise typer.Exit(1)
    done = api.change(path, body | {"reason": asked.reason, "base": seen["active_version"]})
    if asked.as_json:
        terminal.answer(done)
        return
    terminal.say(*(f"warning: {one}" for one in done["warnings"]))
    terminal.show(f"Version {done['number']} is active.")


def _show_effect(terminal: Terminal, seen: dict[str, Any], *, diff: bool) -> None:
    from rich.text import Text

    if diff:
        terminal.show(*(Text(line) for line in seen["difference"].splitlines()), "")
    columns = (
        text("job_id", "job"), text("user", rank=1), text("team", rank=2), text("effect"),
        DocumentColumn("rule", lambda row: "; ".join(one["message"] for one in row["rules"]), folds=True),
    )  # fmt: skip
    terminal.show(f"If this is applied now, of {seen['looked_at']} open jobs:")
    terminal.show(*table(terminal.out, columns, seen["jobs"], "no job changes"))
    for one in seen["budgets"]:
        was, will = (
            f"{side['amount']} a {side['period']}" if side else "none" for side in (one["before"], one["after"])
        )
        terminal.show(f"budget {one['name']}: {was} → {will}")
    if seen["past"] is not None:
        judged = seen["past"]["decisions"]
        changed = len(judged["differences"])
        terminal.show(f"Of {judged['decisions']} decisions of the last 30 days, {changed} would differ.")
