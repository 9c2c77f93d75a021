"""`gpubroker policy apply`, `rollback` and `versions`: change the active policy, and show the effect before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.gathered import gathered
from broker.cli.options import AsJson, PolicyFiles, Reason, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.app.results.policies import AppliedPolicy
    from broker.app.results.trials import PolicyPreviewResult

APPLY_EXAMPLES = examples(
    "gpubroker policy apply team.yaml",
    "gpubroker policy apply policies/ --reason 'Q4 budgets' --yes",
    "gpubroker policy apply policies/ --dry-run --json",
)
ROLLBACK_EXAMPLES = examples(
    "gpubroker policy rollback", "gpubroker policy rollback 3 --reason 'the price limit stopped the evaluation' --yes"
)
VERSIONS_EXAMPLES = examples("gpubroker policy versions", "gpubroker policy versions --json")


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """How a change is recorded, and what is shown and asked before it."""

    reason: Reason = ""
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the effect, and change nothing.")] = False
    diff: Annotated[bool, typer.Option("--diff", help="Also show the changed lines of the files.")] = False


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of policies. ``body``: what a server is asked for at ``path``; on this machine the ``files`` of it (text
    by path). ``reason``: for the record; ``command``: for messages; ``paths``: as the user gave them; ``left_out``:
    files of test cases."""

    body: Mapping[str, Any]
    reason: str
    command: str
    path: str = "/policies"
    paths: Sequence[Path] = ()
    left_out: Sequence[str] = ()


@gathered
def apply(context: typer.Context, files: PolicyFiles, given: ChangeOptions, as_json: AsJson = False) -> None:
    """Make these files the active policy. Files that are not named no longer apply.

    First shows the effect, with the rule behind each change: running jobs that stop, requests and budgets that change,
    and decisions of the last 30 days that would differ. Asks for confirmation if a policy is active, and says so if
    none is; without a terminal, add `--yes`. Refused if somebody else changed the policy meanwhile. The change is
    recorded with its user, time, reason and difference. Prints the warnings of `policy check`.
    """
    from broker.app.policy.policies import cases_among

    terminal = Terminal.of(context)
    left_out = tuple(map(str, cases_among(files)))
    body = {"files": texts(terminal, files)}
    _propose(terminal, _Change(body, given.reason, "policy apply", paths=files, left_out=left_out), given)


@gathered
def rollback(
    context: typer.Context,
    given: ChangeOptions,
    version: Annotated[
        int | None,
        typer.Argument(metavar="[VERSION]", help="Number in `policy versions`. Default: the previous version."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Activate an earlier version of the policy again, as a new version.

    Shows the effect and asks for confirmation, as `policy apply` does. Jobs that a policy stopped resume if these rules
    allow it.
    """
    from broker.app.policy import policies

    terminal = Terminal.of(context)
    if terminal.through_server:
        command = f"policy rollback {version or ''}".rstrip()
        change = _Change({"version": version}, given.reason, command, "/policies/rollback")
    else:
        found = policies.version_before(terminal.broker(), version)
        note = policies.rollback_note(found, given.reason)
        change = _Change({"files": found.files}, note, f"policy rollback {found.number}")
    _propose(terminal, change, given)


def versions(context: typer.Context, as_json: AsJson = False) -> None:
    """List every version of the policy: when it was applied, by whom, and why. The newest is active."""
    from broker.app.policy import documents
    from broker.app.results.policies import PolicyVersionList
    from broker.cli.policy import policy_view

    terminal = Terminal.of(context)
    if terminal.through_server:
        found = terminal.api.fetch(PolicyVersionList, "/policies/versions")
    else:
        found = documents.versions(terminal.broker())
    terminal.result(found, lambda: policy_view.history_table(terminal.out, found.versions))


def texts(terminal: Terminal, files: Sequence[Path]) -> dict[str, str]:
    """The texts of policy files by path; for a server by name. Raises `InvalidInput`, also if two files for a server
    have the same name."""
    from broker.app.policy.policies import read_files

    found = read_files(files)
    if not terminal.through_server:
        return found
    named = {Path(path).name: text for path, text in found.items()}
    if len(named) < len(found):
        raise InvalidInput("two of the files have the same name", hint="a server knows policy files by their names")
    return named


@contextmanager
def errors_at(files: Sequence[Path]) -> Iterator[None]:
    """Errors of a server about files that it knows by name get the paths of the files, so that their lines are
    shown."""
    try:
        yield
    except InvalidInput as error:
        from broker.app.policy.policies import read_files

        paths = {Path(path).name: path for path in read_files(files)}
        for one in (error, *error.others):
            one.where = paths.get(one.where, one.where)
        raise


def _seen_before(terminal: Terminal, change: _Change) -> PolicyPreviewResult:
    from broker.app.policy import documents
    from broker.app.results.trials import PolicyPreviewResult

    if terminal.through_server:
        with errors_at(change.paths):
            return terminal.api.query(PolicyPreviewResult, f"{change.path}/preview", change.body)
    return documents.seen_before(terminal.broker(), change.body["files"])


def _applied(terminal: Terminal, change: _Change, base: int) -> AppliedPolicy:
    from broker.app.policy import documents
    from broker.app.results.policies import AppliedPolicy
    from broker.app.service import background

    if terminal.through_server:
        asked = {**change.body, "reason": change.reason, "base": base}
        with errors_at(change.paths):
            return terminal.api.request(AppliedPolicy, change.path, asked)
    broker = terminal.broker()
    done = documents.apply(broker, change.body["files"], change.reason, by=terminal.actor, base=base)
    background.revive(broker)  # waiting jobs may be allowed now
    return done


def _propose(terminal: Terminal, change: _Change, given: ChangeOptions) -> None:
    from broker.cli.policy import policy_view, trial_view

    seen = _seen_before(terminal, change)
    if given.dry_run and terminal.as_json:
        terminal.answer(seen)
        return
    if given.diff and seen.changed:
        terminal.show(*policy_view.difference(seen.difference))
    if seen.changed and (seen.active_version or given.dry_run):
        terminal.show(*trial_view.screen(terminal.err if terminal.as_json else terminal.out, seen))
    if given.dry_run:
        terminal.show("Nothing was changed." if seen.changed else policy_view.unchanged(seen.active_version))
        return
    if seen.changed and seen.active_version and not given.yes:
        _confirm(terminal, seen.active_version, change.command)
    done = _applied(terminal, change, seen.active_version).model_copy(update={"left_out": list(change.left_out)})
    terminal.result(done, lambda: policy_view.applied(terminal.out, done))
    if not terminal.as_json:
        terminal.say(*policy_view.warnings(done.warnings), *policy_view.left_out_cases(done.left_out))
    if seen.changed and not seen.active_version and not given.yes:
        terminal.say("No policy was active, so there was nothing to compare with: applied without confirmation.")


def _confirm(terminal: Terminal, active: int, command: str) -> None:
    """Raises `InvalidInput` without a terminal, and `typer.Exit` (1) if the user declines."""
    if not terminal.asks:
        raise InvalidInput(
            f"this replaces the active version {active}, and no terminal can confirm it; nothing was changed",
            hint=f"check the effect above, then add --yes: `gpubroker {command} … --yes`",
        )
    if not typer.confirm("Apply this?", default=False, err=True):
        terminal.say("Nothing was changed.")
        raise typer.Exit(1)
