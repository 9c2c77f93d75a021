"""`gpubroker policy`: check, activate, show and test policy files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from broker.cli import filters
from broker.cli.options import AsJson, PolicyFiles, WhatIfPolicies, examples
from broker.cli.policy import applying, findings
from broker.cli.terminal import Terminal

app = typer.Typer(no_args_is_help=True, help="Check, activate, show and test policy files: budgets and guardrails.")


@app.command(epilog=examples("gpubroker policy check team.yaml", "gpubroker policy check policies/ --json"))
def check(context: typer.Context, files: PolicyFiles, as_json: AsJson = False) -> None:
    """Check policy files and report every error with line and column. Changes nothing.

    Warns of likely mistakes: unknown names, rules that overlap, conditions on optional job fields, lists that together
    allow nothing.
    """
    from broker.app.policy import policies
    from broker.cli.policy import policy_view

    terminal = Terminal.of(context)
    found = policies.check(terminal.broker(), files)
    warnings, cases = policies.likely_mistakes(terminal.broker(), found), policies.cases_among(files)
    if as_json:
        from broker.app.results.policies import CheckedPolicy

        terminal.answer(CheckedPolicy.of(found, warnings, cases))
    else:
        terminal.say(*policy_view.warnings(warnings), *policy_view.left_out_cases(cases))
        terminal.show(
            *policy_view.rule_table(terminal.out, found),
            "The files are valid. Activate them with `gpubroker policy apply`.",
        )


@app.command(
    epilog=examples("gpubroker policy show", "gpubroker policy show --history", "gpubroker policy show --files")
)
def show(
    context: typer.Context,
    history: Annotated[
        bool, typer.Option("--history", help="List all versions with time and user of activation.")
    ] = False,
    files: Annotated[bool, typer.Option("--files", help="Print the active files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the active policy: its rules, and time and user of its activation."""
    from broker.cli.policy import policy_view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    terminal.adopt()
    active = broker.store.active_policy()
    versions = list(broker.store.policy_history()) if history else []
    if as_json:
        from broker.app.results.policies import Activation, ActivePolicy, PolicyInForce

        in_force = None if active is None else ActivePolicy.of_set(active, broker.policy(), files=files)
        activations = [Activation.of(one) for one in versions] if history else None
        terminal.answer(PolicyInForce(active=in_force, history=activations))
    elif active is None:
        terminal.show(
            "No policy is active: nothing that costs real money is launched. Owned and sandbox capacity can be used.",
            "Activate one with `gpubroker policy apply FILES`.",
        )
    elif files:
        terminal.show(*policy_view.files(active))
    elif history:
        terminal.show(policy_view.history_table(terminal.out, versions))
    else:
        terminal.show(policy_view.heading(active), *policy_view.rule_table(terminal.out, broker.policy()))


@app.command(epilog=examples("gpubroker policy schema", "gpubroker policy schema --json"))
def schema(context: typer.Context, as_json: AsJson = False) -> None:
    """Print the JSON Schema of policy files, for completion and validation in editors."""
    terminal = Terminal.of(context)
    terminal.answer(terminal.broker(look_after=False).registries.policy_schema())


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
    """Show the verdict of every rule on a job, and the facts that the rules see.

    The rules judge the placement that the plan selects; if they allow none, the best placement that they deny. For a
    submitted job (ID or name instead of a file), shows the recorded verdicts.
    """
    from broker.app.jobs.job_input import read_job
    from broker.app.jobs.preview import NothingToJudge
    from broker.app.policy import policies
    from broker.cli.policy import policy_view, trial_view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    if not job.exists() and job.suffix not in (".yaml", ".yml"):
        decisions = policies.decisions_about(broker, str(job))
        if as_json:
            from broker.app.results.trials import RecordedDecisions

            terminal.answer(RecordedDecisions.of(decisions))
        else:
            terminal.show(*trial_view.recorded(terminal.out, decisions))
        return
    wanted = read_job(job, broker.clock.now())
    terminal.adopt()
    what_if = policies.check(broker, policy) if policy else None
    explained = policies.explain(broker, wanted, what_if, by=terminal.actor)
    if explained is None:
        raise NothingToJudge("no placement is feasible, so there is none to judge", hint=f"see `gpubroker plan {job}`")
    if as_json:
        from broker.app.results.policies import PolicyExplanation

        terminal.answer(PolicyExplanation.of(explained, (what_if or broker.policy()).version))
    else:
        seen = trial_view.inputs(explained.admission.action, explained.facts)
        terminal.show(*seen, *policy_view.explained(terminal.out, explained))


@app.command("test", epilog=examples("gpubroker policy test team.test.yaml", "gpubroker policy test policies/ --json"))
def try_cases(
    context: typer.Context,
    files: Annotated[
        list[Path], typer.Argument(metavar="CASES...", help="Case files (x.test.yaml), or folders of them.")
    ],
    as_json: AsJson = False,
) -> None:
    """Test policy files with the cases beside them: each case gives a job, facts, and the expected verdict.

    Made for CI: exits with 1 if a case fails. Needs no store.
    """
    from broker.app.policy import policies
    from broker.app.results.trials import PolicyTestResult
    from broker.cli.policy import trial_view

    terminal = Terminal.of(context)
    tried = policies.try_cases(terminal.broker(look_after=False), files)
    terminal.result(lambda: PolicyTestResult.of(tried), lambda: trial_view.tried(tried))
    if any(result.wrong for one in tried for result in one.results):
        raise typer.Exit(1)


@app.command(
    epilog=examples(
        "gpubroker policy backtest --from 2026-11-01 --to 2026-12-01 stricter.yaml",
        "gpubroker policy backtest --from 30d policies/ --json",
    )
)
def backtest(
    context: typer.Context,
    files: PolicyFiles,
    since: Annotated[str, typer.Option("--since", "--from", metavar="WHEN", help="Start: 2026-11-01, or 30d (ago).")],
    until: Annotated[
        str | None, typer.Option("--until", "--to", metavar="WHEN", help="End, exclusive. Default: now.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judge recorded decisions again by these policy files: which would be denied, need approval or be allowed, and the
    difference in cost. Changes nothing."""
    from broker.app.policy.backtest import backtest as backtested
    from broker.app.results.trials import PolicyBacktest
    from broker.cli.policy import trial_view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    now = broker.clock.now()
    start = filters.moment("--since", since, now)
    found = backtested(broker, files, start, filters.moment("--until", until, now) if until else now)
    terminal.result(lambda: PolicyBacktest.of(found), lambda: trial_view.backtested(terminal.out, found))


app.command("apply", epilog=applying.APPLY_EXAMPLES)(applying.apply)
app.command("preview", epilog=applying.PREVIEW_EXAMPLES)(applying.preview)
app.command("rollback", epilog=applying.ROLLBACK_EXAMPLES)(applying.rollback)
app.command("versions", epilog=applying.VERSIONS_EXAMPLES)(applying.versions)
app.command("findings", epilog=findings.EXAMPLES)(findings.findings)
