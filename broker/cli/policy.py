"""`gpubroker policy`: the money rules: check them, put them in force, see what they say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli import policy_findings
from broker.cli.options import AsJson, PolicyFiles, examples, one_line
from broker.cli.terminal import Terminal
from broker.core.errors import BrokerError, InvalidInput

if TYPE_CHECKING:
    from datetime import datetime

    from broker.app.wiring import Broker
    from broker.core.ports import PolicySet

app = typer.Typer(no_args_is_help=True, help="The money rules: check them, put them in force, see what they say.")


@app.command(epilog=examples("gpubroker policy check team.yaml", "gpubroker policy check policies/ --json"))
def check(context: typer.Context, files: PolicyFiles, as_json: AsJson = False) -> None:
    """Whether policy files are right, with every mistake, its line and column. Warns of what may not be meant: names
    that nobody here knows, rules about some of the same jobs, conditions on what a job need not say, lists that allow
    nothing together. Changes nothing."""
    from broker.app import policies
    from broker.cli import policy_view as view

    terminal = Terminal.of(context)
    found = policies.check(terminal.broker(), files)
    warnings, cases = _warnings(terminal.broker(), found), policies.cases_among(files)
    if as_json:
        terminal.answer({"valid": True, **view.document(found), "warnings": warnings, "left_out": cases})
    else:
        terminal.say(*view.warnings(warnings), *view.left_out_cases(cases))
        terminal.show(
            *view.rule_table(terminal.out, found), "The files are right. `gpubroker policy apply` activates them."
        )


@app.command(
    epilog=examples("gpubroker policy apply team.yaml", "gpubroker policy apply policies/ --note 'Q4 budgets'")
)
def apply(
    context: typer.Context,
    files: PolicyFiles,
    note: Annotated[str, typer.Option("--note", callback=one_line, help="Why, for the record.")] = "",
    diff: Annotated[bool, typer.Option("--diff", help="Also what changed in the files, line by line.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make these files the active policy, all of it: files that are not named no longer apply. Recorded with who, when
    and the difference. Warns as `policy check` does."""
    from broker.app import background, policies
    from broker.cli import policy_view as view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    before, old = broker.store.active_policy(), _active(broker)
    version, difference = policies.apply(broker, files, note)
    background.revive(broker)  # what waits for an approval that nobody asks any more goes on
    changed, warnings = before is None or before.number != version.number, _warnings(broker, broker.policy())
    cases = policies.cases_among(files)
    if as_json:
        more = {"changed": changed, "difference": difference, "warnings": warnings, "left_out": cases}
        terminal.answer({**view.version_json(version), **more})
    elif not changed:
        terminal.show(f"Nothing changed: this is version {version.number}, in force already.")
    else:
        if diff:
            terminal.show(*view.difference(difference))
        terminal.show(*view.rule_table(terminal.out, broker.policy()), view.changes(old, broker.policy()))
        terminal.show(f"Version {version.number} is in force.")
    if not as_json:
        terminal.say(*view.warnings(warnings), *view.left_out_cases(cases))


def _warnings(broker: Broker, policy: PolicySet) -> list[str]:
    """What files that are right in themselves may not have meant."""
    from broker.app.policy_names import unseen

    return [*policy.warnings, *map(str, unseen(broker, policy))]


def _active(broker: Broker) -> PolicySet | None:
    """The set in force; None without one, or when this version cannot read it (which applying another mends)."""
    try:
        return broker.policy()
    except InvalidInput:
        return None


@app.command(
    epilog=examples("gpubroker policy show", "gpubroker policy show --history", "gpubroker policy show --files")
)
def show(
    context: typer.Context,
    history: Annotated[bool, typer.Option("--history", help="Every version: who activated it, when.")] = False,
    files: Annotated[bool, typer.Option("--files", help="The text of the active files.")] = False,
    as_json: AsJson = False,
) -> None:
    """The active policy: which rules are in force, since when, by whom."""
    from broker.cli import policy_view as view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    terminal.adopt()
    active = broker.store.active_policy()
    versions = list(broker.store.policy_history()) if history else []
    if as_json:
        document: dict[str, Any] = {"active": None}
        if active is not None:
            texts = {"files": dict(active.files)} if files else {}
            document = {"active": view.version_json(active) | view.document(broker.policy()) | texts}
        if history:
            document["history"] = [view.version_json(one) for one in versions]
        terminal.answer(document)
    elif active is None:
        terminal.show(
            "No policy is active: nothing that costs real money is launched. Owned and sandbox capacity works.",
            "Activate one with `gpubroker policy apply FILES`.",
        )
    elif files:
        terminal.show(*view.files(active))
    elif history:
        terminal.show(view.history_table(terminal.out, versions))
    else:
        terminal.show(view.heading(active), *view.rule_table(terminal.out, broker.policy()))


@app.command(epilog=examples("gpubroker policy schema", "gpubroker policy schema --json"))
def schema(context: typer.Context, as_json: AsJson = False) -> None:
    """The JSON Schema of policy files, for editors to complete and check with."""
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
    job: Annotated[Path, typer.Argument(metavar="JOB", help="A job file; or a submitted job's id or name.")],
    policy: Annotated[
        list[Path] | None,
        typer.Option(
            "--policy", metavar="FILES", help="Judge by these policy files instead: what-if only. Repeatable."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What every rule says to a job, with what it sees, on the placement that the plan takes; where the rules leave
    none, on the best that they turn down. Of a job that was submitted (its id or name instead of a file): what was said
    when it was decided."""
    from broker.app import policies
    from broker.app.submit import read_job
    from broker.cli import policy_trial_view as trial
    from broker.cli import policy_view as view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    if not job.exists() and job.suffix not in (".yaml", ".yml"):
        decisions = policies.decisions_about(broker, str(job))
        if as_json:
            terminal.answer(trial.recorded_json(decisions))
        else:
            terminal.show(*trial.recorded(terminal.out, decisions))
        return
    wanted = read_job(job, broker.clock.now())
    terminal.adopt()
    what_if = policies.check(broker, policy) if policy else None
    explained = policies.explain(broker, wanted, what_if)
    if explained is None:
        raise _NothingToJudge("the market alone leaves no placement to judge", hint=f"see `gpubroker plan {job}`")
    if as_json:
        terminal.answer(view.explained_json(explained, (what_if or broker.policy()).version))
    else:
        seen = trial.inputs(explained.admission.action, explained.facts)
        terminal.show(*seen, *view.explained(terminal.out, explained))


@app.command("test", epilog=examples("gpubroker policy test team.test.yaml", "gpubroker policy test policies/ --json"))
def try_cases(
    context: typer.Context,
    files: Annotated[
        list[Path], typer.Argument(metavar="CASES...", help="Files of cases (x.test.yaml), or folders of them.")
    ],
    as_json: AsJson = False,
) -> None:
    """Try policy files out on cases that stand beside them: this job, these facts, this verdict. For a team's CI: ends
    with 1 when a case comes out differently. Needs no store."""
    from broker.app import policies
    from broker.cli import policy_trial_view as trial

    terminal = Terminal.of(context)
    tried = policies.try_cases(terminal.broker(look_after=False), files)
    if as_json:
        terminal.answer(trial.tried_json(tried))
    else:
        terminal.show(*trial.tried(tried))
    if any(result.wrong for one in tried for result in one.results):
        raise typer.Exit(1)


@app.command(
    epilog=examples(
        "gpubroker policy backtest --from 2026-11-01 --to 2026-12-01 stricter.yaml",
        "gpubroker policy backtest --from 30d policies/ --json",
    ),
)
def backtest(
    context: typer.Context,
    files: PolicyFiles,
    since: Annotated[
        str, typer.Option("--from", "--since", metavar="WHEN", help="From then on: 2026-11-01, or 30d ago.")
    ],
    until: Annotated[
        str | None, typer.Option("--to", metavar="WHEN", help="Before then; until now by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What these policy files would have said to the decisions on record: what would have been refused, asked for or
    let through, and what that comes to. Changes nothing."""
    from broker.app.policies_backtest import backtest as backtested
    from broker.cli import policy_trial_view as trial

    terminal = Terminal.of(context)
    broker = terminal.broker()
    now = broker.clock.now()
    found = backtested(broker, files, _when("--from", since, now), _when("--to", until, now) if until else now)
    if as_json:
        terminal.answer(trial.backtested_json(found))
    else:
        terminal.show(*trial.backtested(terminal.out, found))


app.command("findings", epilog=policy_findings.EXAMPLES)(policy_findings.findings)


def _when(option: str, text: str, now: datetime) -> datetime:
    from broker.cli.words import parse_moment

    try:
        return parse_moment(text, now)
    except ValueError as error:
        raise InvalidInput(str(error), where=option) from error


class _NothingToJudge(BrokerError):
    exit_code = 4
