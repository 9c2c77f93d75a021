"""`gpubroker policy apply`, `preview`, `rollback` and `versions`: preview and change the active policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, PolicyFiles, Reason, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.app.policy.preview import PolicyPreview
    from broker.app.wiring import Broker
    from broker.core.ports import PolicySet

APPLY_EXAMPLES = examples(
    "gpubroker policy apply team.yaml",
    "gpubroker policy apply policies/ --reason 'Q4 budgets' --yes",
    "gpubroker policy apply policies/ --dry-run",
)
PREVIEW_EXAMPLES = examples("gpubroker policy preview team.yaml", "gpubroker policy preview policies/ --json")
ROLLBACK_EXAMPLES = examples(
    "gpubroker policy rollback", "gpubroker policy rollback 3 --reason 'the price limit stopped the evaluation' --yes"
)
VERSIONS_EXAMPLES = examples("gpubroker policy versions", "gpubroker policy versions --json")

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the effect, and change nothing.")]
Past = Annotated[bool, typer.Option("--past/--no-past", help="Also judge the decisions of the last 30 days.")]
Diff = Annotated[bool, typer.Option("--diff", help="Also show the changed lines of the files.")]


@dataclass(frozen=True, slots=True)
class _Proposal:
    """Files to activate, the note for the record, and the command for messages."""

    files: Mapping[str, str]
    note: str
    command: str
    left_out: tuple[str, ...] = ()


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
    """Make these files the active policy. Files that are not named no longer apply.

    First shows the effect, with the rule behind each change: running jobs that stop, requests and budgets that change,
    and decisions of the last 30 days that would differ. Asks for confirmation if a policy is active, and says so if
    none is; without a terminal, add `--yes`. The change is recorded with its user, time, reason and difference. Prints
    the warnings of `policy check`.
    """
    from broker.app.policy import policies

    left_out = tuple(map(str, policies.cases_among(files)))
    proposal = _Proposal(policies.read_files(files), reason, "policy apply", left_out)
    _propose(Terminal.of(context), proposal, yes=yes, dry_run=dry_run, past=past, diff=diff, as_json=as_json)


def preview(context: typer.Context, files: PolicyFiles, past: Past = True, as_json: AsJson = False) -> None:
    """Show the effect of applying these files now, without applying them.

    Jobs, requests and budgets are judged by the reconciler's own code, in a transaction that is rolled back.
    """
    from broker.app.policy import policies

    proposal = _Proposal(policies.read_files(files), "", "policy preview")
    _propose(Terminal.of(context), proposal, yes=False, dry_run=True, past=past, diff=False, as_json=as_json)


def rollback(
    context: typer.Context,
    version: Annotated[
        int | None,
        typer.Argument(metavar="[VERSION]", help="Number in `policy versions`. Default: the previous version."),
    ] = None,
    reason: Reason = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    past: Past = True,
    diff: Diff = False,
    as_json: AsJson = False,
) -> None:
    """Activate an earlier version of the policy again, as a new version.

    Shows the effect and asks for confirmation, as `policy apply` does. Jobs that a policy stopped resume if these rules
    allow it.
    """
    from broker.app.policy import policies

    terminal = Terminal.of(context)
    found = policies.version_before(terminal.broker(), version)
    note = f"rollback to version {found.number}" + (f": {reason}" if reason else "")
    proposal = _Proposal(found.files, note, f"policy rollback {found.number}")
    _propose(terminal, proposal, yes=yes, dry_run=dry_run, past=past, diff=diff, as_json=as_json)


def versions(context: typer.Context, as_json: AsJson = False) -> None:
    """List every version of the policy: when it was applied, by whom, and why. The newest is active."""
    from broker.app.results.policies import Activation
    from broker.app.results.policy_preview import PolicyVersionList
    from broker.cli.policy import policy_view

    terminal = Terminal.of(context)
    found = list(terminal.broker().store.policy_history())
    if as_json:
        terminal.answer(PolicyVersionList(versions=[Activation.of(one) for one in found]))
    elif found:
        terminal.show(policy_view.history_table(terminal.out, found))
    else:
        terminal.show("No policy was ever applied. Apply one with `gpubroker policy apply FILES`.")


def _propose(
    terminal: Terminal, proposal: _Proposal, *, yes: bool, dry_run: bool, past: bool, diff: bool, as_json: bool
) -> None:
    from broker.app.policy.preview import LAST_MONTH
    from broker.app.policy.preview import preview as previewed
    from broker.app.results.policy_preview import PolicyPreviewResult
    from broker.cli.policy import policy_view, preview_view

    broker = terminal.broker()
    seen = previewed(broker, proposal.files, LAST_MONTH if past else None)
    if dry_run and as_json:
        terminal.answer(PolicyPreviewResult.of(seen))
        return
    if diff and seen.changed:
        terminal.show(*policy_view.difference(seen.difference))
    if seen.changed and (seen.before or dry_run):
        terminal.show(*preview_view.screen(terminal.err if as_json else terminal.out, seen))
    if dry_run:
        terminal.show("Nothing was changed." if seen.changed else _unchanged(seen))
    elif seen.changed and seen.before and not yes:
        _confirm(terminal, seen, proposal.command)
    if not dry_run:
        _activate(terminal, broker, proposal, as_json=as_json)
        if seen.changed and not seen.before and not yes:
            terminal.say("No policy was active, so there was nothing to compare with: applied without confirmation.")


def _unchanged(seen: PolicyPreview) -> str:
    return f"Nothing changed: version {seen.before} with these files is already active."


def _confirm(terminal: Terminal, seen: PolicyPreview, command: str) -> None:
    """Raises `InvalidInput` without a terminal, and `typer.Exit` (1) if the user declines."""
    if not terminal.asks:
        raise InvalidInput(
            f"this replaces the active version {seen.before}, and no terminal can confirm it; nothing was changed",
            hint=f"check the effect above, then add --yes: `gpubroker {command} … --yes`",
        )
    if not typer.confirm("Apply this?", default=False, err=True):
        terminal.say("Nothing was changed.")
        raise typer.Exit(1)


def _activate(terminal: Terminal, broker: Broker, proposal: _Proposal, *, as_json: bool) -> None:
    from broker.app.policy import policies
    from broker.app.service import background
    from broker.cli.policy import policy_view

    before, old = broker.store.active_policy(), _active(broker)
    version, difference = policies.activate(broker, proposal.files, proposal.note, by=terminal.actor)
    background.revive(broker)  # waiting jobs may be allowed now
    changed = before is None or before.number != version.number
    warnings = policies.likely_mistakes(broker, broker.policy())
    if as_json:
        from broker.app.results.policies import AppliedPolicy

        left_out = list(proposal.left_out)
        terminal.answer(
            AppliedPolicy.of(version, changed=changed, difference=difference, warnings=warnings, left_out=left_out)
        )
        return
    if not changed:
        terminal.show(f"Nothing changed: version {version.number} with these files is already active.")
    else:
        terminal.show(*policy_view.rule_table(terminal.out, broker.policy()), policy_view.changes(old, broker.policy()))
        terminal.show(f"Version {version.number} is active.")
    terminal.say(*policy_view.warnings(warnings), *policy_view.left_out_cases(proposal.left_out))


def _active(broker: Broker) -> PolicySet | None:
    """The active set; None if there is none, or if this version cannot read it (applying another set fixes that)."""
    try:
        return broker.policy()
    except InvalidInput:
        return None
