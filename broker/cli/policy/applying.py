"""`gpubroker policy apply` and `rollback`: change the active policy, and show the effect before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, PolicyFiles, Reason, examples, expand_options
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.app.policy.documents import AppliedPolicy
    from broker.app.policy.trial_documents import PolicyPreviewResult

APPLY_EXAMPLES = examples(
    "gpubroker policy apply team.yaml",
    "gpubroker policy apply policies/ --reason 'Q4 budgets' --yes",
    "gpubroker policy apply policies/ --dry-run --json",
)
ROLLBACK_EXAMPLES = examples(
    "gpubroker policy rollback", "gpubroker policy rollback 3 --reason 'the price limit stopped the evaluation' --yes"
)


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """How a change is recorded, and what is shown and asked before it."""

    reason: Reason = ""
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the effect, and change nothing.")] = False
    diff: Annotated[bool, typer.Option("--diff", help="Also show the changed lines of the files.")] = False


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of policies: to these ``files`` (text by name), or back to a ``version`` (None: the previous one).
    ``command``: for messages; ``paths``: as the user gave them; ``left_out``: files of test cases."""

    command: str
    files: dict[str, str] | None = None
    version: int | None = None
    paths: Sequence[Path] = ()
    left_out: Sequence[str] = ()


@expand_options
def apply(context: typer.Context, files: PolicyFiles, given: ChangeOptions, as_json: AsJson = False) -> None:
    """Make these files the active policy. Files that are not named no longer apply.

    First shows the effect, with the rule behind each change: running jobs that stop, requests and budgets that change,
    and decisions of the last 30 days that would differ. Asks for confirmation if a policy is active, and says so if
    none is; without a terminal, add `--yes`. Refused if somebody else changed the policy meanwhile. The change is
    recorded with its user, time, reason and difference. Prints the warnings of `policy check`.
    """
    from broker.app.policy.policies import case_files

    terminal = Terminal.of(context)
    case_paths = tuple(map(str, case_files(files)))
    texts = policy_texts(terminal, files)
    _propose(terminal, _Change("policy apply", texts, paths=files, left_out=case_paths), given)


@expand_options
def rollback(
    context: typer.Context,
    given: ChangeOptions,
    version: Annotated[
        int | None,
        typer.Argument(metavar="[VERSION]", help="Number in `policy show --versions`. Default: the previous version."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Activate an earlier version of the policy again, as a new version.

    Shows the effect and asks for confirmation, as `policy apply` does. Jobs that a policy stopped resume if these rules
    allow it.
    """
    terminal = Terminal.of(context)
    _propose(terminal, _Change(f"policy rollback {version or ''}".rstrip(), version=version), given)


def policy_texts(terminal: Terminal, files: Sequence[Path]) -> dict[str, str]:
    """The texts of policy files by path; for a server by name. Raises `InvalidInput`, also if two files for a server
    have the same name."""
    from broker.app.policy.policies import read_files

    texts_by_path = read_files(files)
    if not terminal.through_server:
        return texts_by_path
    texts_by_name = {Path(path).name: text for path, text in texts_by_path.items()}
    if len(texts_by_name) < len(texts_by_path):
        raise InvalidInput("two of the files have the same name", hint="a server knows policy files by their names")
    return texts_by_name


@contextmanager
def restore_file_paths(terminal: Terminal, files: Sequence[Path]) -> Iterator[None]:
    """Errors of a server about files that it knows by name get the paths of the files, so that their lines are
    shown."""
    try:
        yield
    except InvalidInput as error:
        if not terminal.through_server:
            raise
        from broker.app.policy.policies import read_files

        paths = {Path(path).name: path for path in read_files(files)}
        for file_error in (error, *error.others):
            file_error.where = paths.get(file_error.where, file_error.where)
        raise


def _load_preview(terminal: Terminal, change: _Change) -> PolicyPreviewResult:
    from broker.app.use_cases import policies

    with restore_file_paths(terminal, change.paths):
        if change.files is not None:
            return terminal.ask(policies.preview_policy, change.files)
        return terminal.ask(policies.preview_rollback, change.version)


def _apply_change(terminal: Terminal, change: _Change, reason: str, base: int) -> AppliedPolicy:
    from broker.app.use_cases import policies

    with restore_file_paths(terminal, change.paths):
        if change.files is not None:
            return terminal.ask(policies.apply_policy, change.files, reason, base)
        return terminal.ask(policies.rollback_policy, change.version, reason, base)


def _propose(terminal: Terminal, change: _Change, given: ChangeOptions) -> None:
    from broker.cli.policy import policy_view, trial_view

    policy_preview = _load_preview(terminal, change)
    if given.dry_run and terminal.as_json:
        terminal.answer(policy_preview)
        return
    if given.diff and policy_preview.changed:
        terminal.show(*policy_view.diff_lines(policy_preview.difference))
    if policy_preview.changed and (policy_preview.active_version or given.dry_run):
        terminal.show(*trial_view.preview_lines(terminal.err if terminal.as_json else terminal.out, policy_preview))
    if given.dry_run:
        terminal.show(
            "Nothing was changed."
            if policy_preview.changed
            else policy_view.unchanged_text(policy_preview.active_version)
        )
        return
    if policy_preview.changed and policy_preview.active_version:
        hint = f"check the effect above, then add --yes: `gpubroker {change.command} … --yes`"
        question = f"Replace the active version {policy_preview.active_version}?"
        if not terminal.confirm(question, yes=given.yes, hint=hint):
            terminal.say("Nothing was changed.")
            raise typer.Exit(1)
    applied_policy = _apply_change(terminal, change, given.reason, policy_preview.active_version).model_copy(
        update={"left_out": list(change.left_out)}
    )
    terminal.result(applied_policy, lambda: policy_view.applied_lines(terminal.out, applied_policy))
    if not terminal.as_json:
        terminal.say(
            *policy_view.warnings(applied_policy.warnings), *policy_view.ignored_cases_note(applied_policy.left_out)
        )
    if policy_preview.changed and not policy_preview.active_version and not given.yes:
        terminal.say("No policy was active, so there was nothing to compare with: applied without confirmation.")
