"""`gpubroker doctor`: what works on this machine, what is missing, and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.table import Column, Table
from rich.text import Text

from broker.cli.options import AsJson, examples
from broker.cli.render import formats
from broker.cli.render.formats import plural
from broker.cli.render.tables import ValueColumn, indent_text, table_parts
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.core.extras import install_command

if TYPE_CHECKING:
    from broker.app.providers import DoctorFinding, ProviderSetup
    from broker.app.service.documents import DoctorReport, LeftoverResult, SweepReport
    from broker.app.wiring import Broker

_GENERIC_LOGINS = ("api_key", "client_id")  # login names that add nothing to the provider's name
_SERVER_COMMAND_PATTERN = re.compile(r"\bgpubroker (?=jobs|policy|prices)")  # commands that act through a server

EXAMPLES = examples(
    "gpubroker doctor",
    "gpubroker doctor --verbose",
    "gpubroker doctor --rebuild --json",
    "gpubroker doctor --sweep",
    "gpubroker doctor --sweep --end --yes",
)


def doctor(
    context: typer.Context,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild", help="Also verify that jobs and balances follow from the events, and that the ledger balances."
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also list all endpoints with their settings, and the optional extras."),
    ] = False,
    sweep: Annotated[
        bool,
        typer.Option("--sweep", help="Instead, query engines and providers for orphaned machines, attempts and holds."),
    ] = False,
    end: Annotated[bool, typer.Option("--end", help="With --sweep: end the orphans, after confirmation.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --end: skip the confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what works on this machine, what is missing, and how to fix it.

    While you are logged in to a team server, it checks this machine all the same, and not the server. Exits with 2 if
    something is broken.
    """
    terminal = Terminal.of(context)
    login = _login_finding(terminal)
    if sweep:
        if login is not None:
            terminal.say(f"{login.message}.")
        raise typer.Exit(_run_sweep(terminal, end=end, yes=yes, as_json=as_json))
    if end or yes:
        raise InvalidInput("--end and --yes need --sweep", hint="gpubroker doctor --sweep --end")
    from broker.app.doctor import doctor as use_case
    from broker.app.providers import is_healthy
    from broker.app.service.documents import DoctorReport

    def open_broker() -> Broker:
        return terminal.broker(look_after=False)

    findings = list(use_case.examine(open_broker))
    if rebuild and is_healthy([finding for finding in findings if finding.area in ("settings", "store")]):
        findings += use_case.verify_store(open_broker())
    if login is not None:
        local_command = r"GPUBROKER_SERVER=off \g<0>"
        findings = [
            login,
            *(replace(finding, fix=_SERVER_COMMAND_PATTERN.sub(local_command, finding.fix)) for finding in findings),
        ]
    report = DoctorReport.of(findings)
    terminal.result(report, lambda: _report_lines(report, verbose=verbose))
    if not report.healthy:
        raise typer.Exit(2)


def _login_finding(terminal: Terminal) -> DoctorFinding | None:
    """What a login to a team server means for these checks; None without one."""
    from broker.app.providers import DoctorFinding, Health

    try:
        server = terminal.server
    except InvalidInput as error:
        return DoctorFinding("login", Health.PROBLEM, str(error), error.hint)
    if server is None:
        return None
    message = (
        f"what follows is about this machine and its own store, not about {server.url}, to which you are logged in"
    )
    return DoctorFinding("login", Health.NOTE, message, facts={"server": server.url})


def _report_lines(report: DoctorReport, *, verbose: bool) -> Iterator[RenderableType]:
    yield finding_table(report.findings)
    yield from _missing_login_lines(report.providers)
    yield from _endpoint_lines(report.providers, shows_all=verbose)
    extras: dict[str, str] = next(
        (finding.facts["adds"] for finding in report.findings if verbose and "adds" in finding.facts), {}
    )
    yield from (f"  {install_command(extra)} adds {added}" for extra, added in extras.items())
    yield "" if report.healthy else "\nSomething is broken: see the lines marked ✗; those marked – are not set up."
    yield from _next_steps(report.findings)


_FIRST = ("cloud", "policy", "provider", "engine", "notify", "extra")
_STEPS = 3


def _next_steps(findings: Sequence[DoctorFinding]) -> Iterator[RenderableType]:
    """The most useful things to do: what is broken, then what is not set up, in the order of its use."""

    def rank(finding: DoctorFinding) -> tuple[bool, int]:
        areas = [*_FIRST, finding.area]
        return finding.health != "problem", areas.index(finding.area)

    useful = [
        finding
        for finding in findings
        if finding.health != "ok" and finding.fix and finding.area not in ("gpu", "extra")
    ]
    steps: dict[str, DoctorFinding] = {}
    for finding in sorted(useful, key=rank):
        steps.setdefault(finding.fix, finding)
    if steps:
        yield Text("\nMost useful next", style="bold")
    for number, finding in enumerate(list(steps.values())[:_STEPS], 1):
        yield Text.assemble(
            f"  {number}. ", (finding.fix, "cyan"), (f"   ({finding.area}: {finding.message.splitlines()[0]})", "dim")
        )


def _missing_login_lines(setups: Sequence[ProviderSetup]) -> list[RenderableType]:
    """What each missing login would add, and how to configure it."""
    missing = [(setup.provider, login) for setup in setups for login in setup.logins_missing]
    if not missing:
        return []
    printed = set[tuple[str, str, str]]()
    lines: list[RenderableType] = ["", Text("Missing logins and what they would add", style="bold")]
    for provider, login in missing:
        if (provider, login.how, login.adds) in printed:  # configured as another one, and adds the same
            continue
        printed.add((provider, login.how, login.adds))
        label = f"{provider} ({login.name})" if login.name not in (provider, *_GENERIC_LOGINS) else provider
        lines.append(indent_text(Text.assemble((f"{label}: ", "bold"), login.adds or "more offers"), 2))
        lines.append(indent_text(Text(login.how, style="cyan"), 4))
    return lines


def _endpoint_lines(setups: Sequence[ProviderSetup], *, shows_all: bool) -> list[RenderableType]:
    """The endpoints of providers: all of them, or those that a setting changed."""
    endpoint_pairs = [
        (setup.provider, endpoint) for setup in setups for endpoint in setup.endpoints if shows_all or endpoint.changed
    ]
    if not endpoint_pairs:
        return []
    title = "Endpoints and the setting of each" if shows_all else "Endpoints changed by a setting"
    lines: list[RenderableType] = ["", Text(title, style="bold")]
    for provider, endpoint in endpoint_pairs:
        mark = " (changed)" if shows_all and endpoint.changed else ""
        lines.append(
            indent_text(Text.assemble((f"{provider} {endpoint.name}: ", "bold"), endpoint.url, (mark, "yellow")), 2)
        )
        lines.append(indent_text(Text(endpoint.setting, style="cyan"), 4))
    return lines


def finding_table(findings: Sequence[DoctorFinding]) -> Table:
    """A line for each finding, with the fix of what is missing."""
    marks = {"ok": ("✓", "green"), "note": ("–", "yellow"), "problem": ("✗", "bold red")}
    table = Table.grid(Column(), Column(no_wrap=True), Column(overflow="fold"), padding=(0, 1))
    for finding in _by_message(findings):
        message = Text(finding.message)
        if finding.fix and finding.health != "ok":
            message.append("\nfix: ", style="cyan")
            message.append(finding.fix)
        mark = ("·", "dim") if finding.facts.get("planned") else marks[finding.health]
        table.add_row(Text(*mark), Text(finding.area, style="bold"), message)
    return table


def _by_message(findings: Sequence[DoctorFinding]) -> Iterator[DoctorFinding]:
    """The findings; those of several providers that say the same are one."""

    def message_of(finding: DoctorFinding) -> tuple[str, str]:
        return finding.message.removeprefix(f"{finding.facts.get('provider')}: "), finding.fix

    names: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        if finding.fix and (name := finding.facts.get("provider")):
            names.setdefault(message_of(finding), []).append(name)
    for finding in findings:
        sharing = names.pop(message_of(finding), ()) if finding.fix and finding.facts.get("provider") else ("",)
        if len(sharing) > 1:
            yield replace(finding, message=f"{', '.join(sharing)}: {message_of(finding)[0]}")
        elif sharing:
            yield finding


_LEFTOVER_KINDS = {
    "machine_without_attempt": "machine",
    "attempt_without_machine": "attempt",
    "hold_without_either": "money",
}
_STANDING_TEXTS = {
    "orphan": "orphan",
    "too_young": "too recent to judge",
    "reconciler": "handled by the background process",
    "another_store": "owned by another store",
    "unknown_owner": "owner unknown",
}


def _run_sweep(terminal: Terminal, *, end: bool, yes: bool, as_json: bool) -> int:
    """Show what a sweep finds; with ``end``, end the orphans after confirmation, or at once with ``yes``. Returns the
    exit code: 0 if no orphan is left and every engine and provider answered, else 2."""
    from broker.app.service import sweep as use_case
    from broker.app.service.documents import SweepReport

    broker = terminal.broker(look_after=False)
    sweep_result = use_case.sweep(broker)
    report = SweepReport.of(sweep_result)
    if not as_json:
        terminal.show(*_sweep_lines(terminal, report))
    question = f"End {plural(report.orphans, 'orphan')}?"
    if end and report.orphans and terminal.confirm(question, yes=yes):
        report = SweepReport.of(sweep_result, use_case.end_orphans(broker, sweep_result))
    terminal.result(report, lambda: _ended_lines(report, end=end))
    attempted = [leftover for leftover in report.found if leftover.ended or leftover.error]
    remaining_count = sum(bool(leftover.error) for leftover in attempted) if attempted else report.orphans
    return 2 if remaining_count or report.trouble else 0


def _sweep_lines(terminal: Terminal, report: SweepReport) -> Iterator[RenderableType]:
    if report.found:
        columns: tuple[ValueColumn[LeftoverResult], ...] = (
            ValueColumn("type", lambda row: _LEFTOVER_KINDS[row.kind]),
            ValueColumn("ID", lambda row: row.id, folds=True),
            ValueColumn(
                "status",
                lambda row: Text(_STANDING_TEXTS[row.standing], style="bold red" if row.standing == "orphan" else ""),
            ),
            ValueColumn("age", lambda row: formats.age(report.at - row.since if row.since else None), 2),
            ValueColumn("details", lambda row: row.about, 3, folds=True),
            ValueColumn("reason", lambda row: row.why, 1, folds=True),
        )
        yield from table_parts(terminal.out, columns, report.found)
    queried = ", ".join(report.asked) or "none, because no engine was used and no provider has a login"
    orphans = formats.plural(report.orphans, "orphan") if report.orphans else "no orphans"
    yield f"{orphans}; queried: {queried}"
    if "local" in report.asked:
        limit = "a process that gave up its job's variables, output, folder and parent cannot be recognized"
        yield Text(limit, style="dim")
    yield from (
        Text(f"✗ {name} could not be queried: {reason}", style="red") for name, reason in report.trouble.items()
    )
    if report.without_login:
        yield Text(f"not queried, no login: {', '.join(report.without_login)}", style="dim")


def _ended_lines(report: SweepReport, *, end: bool) -> Iterator[str]:
    for leftover in report.found:
        if leftover.error:
            yield f"✗ {leftover.id}: {leftover.error}"
        elif leftover.ended:
            yield f"✓ {leftover.id}: {'ended' if leftover.place is None else 'termination requested'}"
    if report.orphans and not end:
        yield "Nothing was changed. To end the orphans: gpubroker doctor --sweep --end"
