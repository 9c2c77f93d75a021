"""`gpubroker policy`: check, test, preview, activate and show policy files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from broker.cli import filters
from broker.cli.options import AsJson, PolicyFiles, Reason, WhatIfPolicies, examples, expand_options
from broker.cli.policy import policy as applying
from broker.cli.render import formats
from broker.cli.render.tables import indent_text
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.core.values.figures import join_names

if TYPE_CHECKING:
    from broker.app.capacity.findings import CapacityFindingList, WarnedRuleResult
    from broker.app.policy.documents import AppliedPolicy, PolicyExplanation
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


_MAX_NAMED = 8
EXAMPLES = examples("gpubroker policy findings", "gpubroker policy findings --since 180d --json")


def findings(
    context: typer.Context,
    since: Annotated[
        str, typer.Option("--since", "--from", metavar="WHEN", help="Start of the period: 90d (ago), or a date.")
    ] = "90d",
    as_json: AsJson = False,
) -> None:
    """Compare recorded use with owned, reserved and rented capacity, and say what to buy, to stop renting or not to
    renew.

    Then lists what rules with `action: warn` would have stopped and refused.

    Each finding shows its arithmetic. The thresholds are assumptions; policy files may replace them
    (`assumptions:`). Changes nothing.
    """
    from broker.app.use_cases.capacity import policy_findings

    terminal = Terminal.of(context)
    finding_list = terminal.ask(policy_findings, filters.moment_option("--since", since, terminal.now()))
    terminal.result(finding_list, lambda: _finding_lines(finding_list))


def _finding_lines(finding_list: CapacityFindingList) -> Iterator[RenderableType]:
    for finding in finding_list.findings:
        saves = finding.saves_usd_per_month
        yield Text.assemble(
            (finding.sentence, "bold"), (f"  ${saves:,.2f} per month" if saves is not None else "", "green")
        )
        yield indent_text(Text(finding.because), 2)
    if not finding_list.findings and finding_list.enough_use:
        yield f"No findings in the use since {finding_list.since:%Y-%m-%d}: keep the present capacity."
    elif not finding_list.findings:
        yield _not_enough_data_text(finding_list)
    yield from (Text(f"note: {note}", style="dim") for note in finding_list.notes)
    for rule in finding_list.warned_rules:
        yield from (
            Text(_warned_rule_text(rule), style="bold"),
            indent_text(Text(f"{rule.message} ({rule.source})"), 2),
        )


def _not_enough_data_text(finding_list: CapacityFindingList) -> str:
    """Why there is not enough data, and what is needed."""
    from broker.economics.reserve.capacity_findings import SHORTEST

    recorded_uses = ", ".join(f"{use.hours} h of {use.accelerator}" for use in finding_list.uses)
    recorded_text = f"{recorded_uses} are recorded" if recorded_uses else "no use with a comparable price is recorded"
    return (
        f"Not enough data to recommend owning, reserving or renting: {recorded_text} since "
        f"{finding_list.since:%Y-%m-%d}. Findings need"
        f" a week ({SHORTEST} h) of an accelerator's use: GPU jobs run by gpubroker on real machines, or machines"
        " recorded with `gpubroker capacity add`, used or not."
    )


def _warned_rule_text(rule: WarnedRuleResult) -> str:
    effects = [
        f"{verb} {formats.plural(len(jobs), 'job')} ({join_names(jobs, _MAX_NAMED)})"
        for verb, jobs in (("stopped", rule.stopped), ("refused", rule.refused))
        if jobs
    ]
    return f"Rule {rule.name} only warns: it would have {' and '.join(effects)} since {formats.moment(rule.first)}."


app = typer.Typer(no_args_is_help=True, help="Check, activate, show and test policy files: budgets and guardrails.")


@app.command(epilog=examples("gpubroker policy check team.yaml", "gpubroker policy check policies/ --json"))
def check(context: typer.Context, files: PolicyFiles, as_json: AsJson = False) -> None:
    """Check policy files and report every error with line and column. Changes nothing.

    Warns of likely mistakes: unknown names, conditions on optional job fields, a rule with only one approver.
    """
    from broker.app.policy.policies import case_files
    from broker.app.use_cases.policies import check_policy
    from broker.cli.policy import policy_view

    terminal = Terminal.of(context)
    policy_texts = applying.policy_texts(terminal, files)
    with applying.restore_file_paths(terminal, files):
        checked_policy = terminal.ask(check_policy, policy_texts)
    checked_policy = checked_policy.model_copy(update={"left_out": [str(case_path) for case_path in case_files(files)]})
    if not as_json:
        terminal.say(
            *policy_view.warnings(checked_policy.warnings), *policy_view.ignored_cases_note(checked_policy.left_out)
        )
    valid = "The files are valid. Activate them with `gpubroker policy apply`."
    terminal.result(checked_policy, lambda: [*policy_view.rule_table(terminal.out, checked_policy), valid])


@app.command(
    epilog=examples("gpubroker policy show", "gpubroker policy show --files", "gpubroker policy show --versions --json")
)
def show(
    context: typer.Context,
    files: Annotated[
        bool, typer.Option("--files", help="Print the active files; through a server, if you may see all teams.")
    ] = False,
    versions: Annotated[
        bool, typer.Option("--versions", help="List all versions: when each was applied, by whom, and why.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the active policy: its rules, and time and user of its activation; through a server, the rules that name no
    other team than yours."""
    from broker.app.use_cases.policies import policy_in_force, policy_versions
    from broker.cli.policy import policy_view

    terminal = Terminal.of(context)
    if versions:
        if files:
            raise InvalidInput("--files and --versions cannot be combined")
        version_list = terminal.ask(policy_versions)
        terminal.result(version_list, lambda: policy_view.history_table(terminal.out, version_list.versions))
        return
    terminal.adopt()
    active_policy = terminal.ask(policy_in_force, files)
    if files and active_policy.active is not None and active_policy.active.files is None:
        terminal.say("The server shows the texts of the files to those who may see all teams.")
    terminal.result(active_policy, lambda: policy_view.active_policy_lines(terminal.out, active_policy))


@app.command(
    epilog=examples(
        "gpubroker policy explain JOB.yaml",
        "gpubroker policy explain JOB.yaml --policy stricter.yaml --json",
        "gpubroker policy explain training-x7k2mp",
    )
)
def explain(
    context: typer.Context,
    job: Annotated[Path, typer.Argument(metavar="JOB", help="Job file, or ID or name of a submitted job.")],
    policy: WhatIfPolicies = None,
    as_json: AsJson = False,
) -> None:
    """Show what every rule decides on a job, and the facts that the rules see.

    The rules judge the placement that the plan selects; if they allow none, the best placement that they deny. For a
    submitted job (ID or name instead of a file), shows the recorded decisions.
    """
    from broker.app.use_cases.jobs import job_decisions
    from broker.cli.policy import policy_view, trial_view

    terminal = Terminal.of(context)
    if not job.exists() and job.suffix not in (".yaml", ".yml"):
        if policy:
            hint = "give its job file; `gpubroker policy apply --dry-run` judges past decisions again"
            raise InvalidInput("a submitted job has its decisions on record", where="--policy", hint=hint)
        decisions = terminal.ask(job_decisions, terminal.job_id(str(job)))
        terminal.result(decisions, lambda: trial_view.recorded_lines(terminal.out, decisions))
        return
    explanation = _explanation(terminal, job, policy)
    terminal.result(explanation, lambda: policy_view.explanation_lines(terminal.out, explanation))


@app.command(
    epilog=examples("gpubroker policy decisions --denied", "gpubroker policy decisions --since 7d --json"),
)
def decisions(
    context: typer.Context,
    denied: Annotated[bool, typer.Option("--denied", help="Only what the policy denied.")] = False,
    since: Annotated[
        str, typer.Option("--since", "--from", metavar="WHEN", help="Start of the period: 30d (ago), or a date.")
    ] = "30d",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of rows.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List who asked for what, how much it would hold, and what the policy answered, newest first.

    Not through a server. Of one job: `gpubroker policy explain JOB`.
    """
    from broker.app.use_cases.policies import recent_decisions
    from broker.cli.policy import trial_view

    terminal = Terminal.of(context)
    start = filters.moment_option("--since", since, terminal.now())
    decisions = recent_decisions(terminal.broker(), start, denied=denied, limit=limit)
    terminal.result(decisions, lambda: trial_view.decision_rows(terminal.out, decisions))


def _explanation(terminal: Terminal, file: Path, policy: Sequence[Path] | None) -> PolicyExplanation:
    from broker.app.access.callers import local_caller
    from broker.app.jobs.job_input import read_job
    from broker.app.use_cases.policies import explain_job, explain_policy
    from broker.core.job.file import print_job

    job, files = read_job(file, terminal.now()), applying.policy_texts(terminal, policy) if policy else None
    if terminal.through_server:
        with applying.restore_file_paths(terminal, policy or ()):
            return terminal.ask(explain_policy, print_job(job), files)
    terminal.adopt()
    return explain_job(local_caller(terminal.broker(), terminal.actor), job, files)


@app.command("test", epilog=examples("gpubroker policy test team.test.yaml", "gpubroker policy test policies/ --json"))
def try_cases(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="CASES...", help="Case files (x.test.yaml), policy files, or folders."),
    ],
    as_json: AsJson = False,
) -> None:
    """Test policy files with the cases next to them: each case gives a job, facts, and the expected verdict.

    Under `cases:`, team.test.yaml lists those of team.yaml. A case has `name` and `expect` (allow, ask or deny). The
    rest is optional: `user`, `job` (keys of a job file), `offer` (accelerator, count, price, provider, region, …),
    `spent` and `held` (amounts by budget), `running`, `at` (UTC), `because` (the rule that objects).

    For example: {name: night, user: ann, job: {team: nlp, max_duration: 10h}, offer: {accelerator: H100, price: $4},
    expect: allow}

    Made for CI: exits with 1 if a case fails. Needs no store.
    """
    from broker.app.policy import policies
    from broker.app.policy.trial_documents import PolicyTestResult
    from broker.cli.policy import trial_view

    terminal = Terminal.of(context)
    result = PolicyTestResult.of(policies.run_case_files(terminal.broker(look_after=False), files))
    terminal.result(result, lambda: trial_view.case_lines(result))
    if result.failed:
        raise typer.Exit(1)


app.command("apply", epilog=applying.APPLY_EXAMPLES)(applying.apply)
app.command("rollback", epilog=applying.ROLLBACK_EXAMPLES)(applying.rollback)
app.command("findings", epilog=EXAMPLES)(findings)
