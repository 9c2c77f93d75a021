"""`gpubroker policy`: check, activate, show and test policy files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from broker.cli import filters
from broker.cli.options import AsJson, PolicyFiles, WhatIfPolicies, examples
from broker.cli.policy import applying
from broker.cli.render import formats
from broker.cli.render.tables import indent_text
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.core.values.figures import join_names

if TYPE_CHECKING:
    from broker.app.capacity.plan_documents import CapacityFindingList, WarnedRuleResult
    from broker.app.policy.documents import PolicyExplanation


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
    found = recent_decisions(terminal.broker(), start, denied=denied, limit=limit)
    terminal.result(found, lambda: trial_view.decision_rows(terminal.out, found))


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
