"""`gpubroker doctor`: what works on this machine, what is missing, and how to fix it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from broker.app.doctor.providers import DoctorFinding
    from broker.app.results.service import DoctorReport, LeftoverResult, ProviderSetup, SweepReport
    from broker.app.wiring import Broker

_PLAIN_LOGINS = ("api_key", "client_id")  # login names that add nothing to the provider's name
_THROUGH_SERVER = re.compile(r"\bgpubroker (?=jobs|policy|prices)")  # commands that act through a server

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
    login = _login(terminal)
    if sweep:
        if login is not None:
            terminal.say(f"{login.message}.")

        raise typer.Exit(_sweep(terminal, end=end, yes=yes, as_json=as_json))
    if end or yes:
        raise InvalidInput("--end and --yes need --sweep", hint="gpubroker doctor --sweep --end")
    from broker.app.doctor import doctor as use_case
    from broker.app.doctor.providers import healthy
    from broker.app.results.service import DoctorReport

    def open_broker() -> Broker:
        return terminal.broker(look_after=False)

    found = list(use_case.examine(open_broker))
    if rebuild and healthy([one for one in found if one.area in ("settings", "store")]):
        found += use_case.prove(open_broker())
    if login is not None:
        own = r"GPUBROKER_SERVER=off \g<0>"
        found = [login, *(replace(one, fix=_THROUGH_SERVER.sub(own, one.fix)) for one in found)]
    report = DoctorReport.of(found)
    terminal.result(report, lambda: _screen(report, verbose=verbose))
    if not report.healthy:
        raise typer.Exit(2)


def _login(terminal: Terminal) -> DoctorFinding | None:
    """What a login to a team server means for these checks; None without one."""
    from broker.app.doctor.providers import DoctorFinding, Health

    try:
        server = terminal.server
    except InvalidInput as error:
        return DoctorFinding("login", Health.PROBLEM, str(error), error.hint)
    if server is None:
        return None
    said = f"what follows is about this machine and its own store, not about {server.url}, to which you are logged in"
    return DoctorFinding("login", Health.NOTE, said, facts={"server": server.url})


def _screen(report: DoctorReport, *, verbose: bool) -> Iterator[RenderableType]:
    yield _table(report.findings)
    yield from _logins(report.providers)
    yield from _endpoints(report.providers, every=verbose)
    adds: dict[str, str] = next((one.facts["adds"] for one in report.findings if verbose and "adds" in one.facts), {})
    yield from (f"  pip install 'gpubroker[{extra}]' adds {what}" for extra, what in adds.items())
    yield "" if report.healthy else "\nSomething is broken: see the lines marked ✗; those marked – are not set up."
    yield from _next_steps(report.findings)


_FIRST = ("policy", "provider", "engine", "notify", "extra")
_STEPS = 3


def _next_steps(findings: Sequence[DoctorFinding]) -> Iterator[RenderableType]:
    """The most useful things to do: what is broken, then what is not set up, in the order of its use."""
    from rich.text import Text

    def rank(finding: DoctorFinding) -> tuple[bool, int]:
        areas = [*_FIRST, finding.area]
        return finding.health != "problem", areas.index(finding.area)

    useful = [one for one in findings if one.health != "ok" and one.fix and one.area not in ("gpu", "extra")]
    steps: dict[str, DoctorFinding] = {}
    for one in sorted(useful, key=rank):
        steps.setdefault(one.fix, one)
    if steps:
        yield Text("\nMost useful next", style="bold")
    for number, one in enumerate(list(steps.values())[:_STEPS], 1):
        yield Text.assemble(
            f"  {number}. ", (one.fix, "cyan"), (f"   ({one.area}: {one.message.splitlines()[0]})", "dim")
        )


def _logins(setups: Sequence[ProviderSetup]) -> list[RenderableType]:
    """What each missing login would add, and how to configure it."""
    from rich.text import Text

    from broker.cli.render.tables import hanging

    missing = [(setup.provider, login) for setup in setups for login in setup.logins_missing]
    if not missing:
        return []
    told = set[tuple[str, str, str]]()
    lines: list[RenderableType] = ["", Text("Missing logins and what they would add", style="bold")]
    for provider, login in missing:
        if (provider, login.how, login.adds) in told:  # configured as another one, and adds the same
            continue
        told.add((provider, login.how, login.adds))
        label = f"{provider} ({login.name})" if login.name not in (provider, *_PLAIN_LOGINS) else provider
        lines.append(hanging(Text.assemble((f"{label}: ", "bold"), login.adds or "more offers"), 2))
        lines.append(hanging(Text(login.how, style="cyan"), 4))
    return lines


def _endpoints(setups: Sequence[ProviderSetup], *, every: bool) -> list[RenderableType]:
    """The endpoints of providers: all of them, or those that a setting changed."""
    from rich.text import Text

    from broker.cli.render.tables import hanging

    shown = [(setup.provider, it) for setup in setups for it in setup.endpoints if every or it.changed]
    if not shown:
        return []
    title = "Endpoints and the setting of each" if every else "Endpoints changed by a setting"
    lines: list[RenderableType] = ["", Text(title, style="bold")]
    for provider, it in shown:
        mark = " (changed)" if every and it.changed else ""
        lines.append(hanging(Text.assemble((f"{provider} {it.name}: ", "bold"), it.url, (mark, "yellow")), 2))
        lines.append(hanging(Text(it.setting, style="cyan"), 4))
    return lines


def _table(findings: Sequence[DoctorFinding]) -> Table:
    from rich.table import Table
    from rich.text import Text

    marks = {"ok": ("✓", "green"), "note": ("–", "yellow"), "problem": ("✗", "bold red")}
    table = Table.grid(padding=(0, 1))
    for finding in findings:
        message = Text(finding.message)
        if finding.fix and finding.health != "ok":
            message.append("\nfix: ", style="cyan")
            message.append(finding.fix)
        table.add_row(Text(*marks[finding.health]), Text(finding.area, style="bold"), message)
    return table


_KINDS = {"machine_without_attempt": "machine", "attempt_without_machine": "attempt", "hold_without_either": "money"}
_STANDINGS = {
    "orphan": "orphan",
    "too_young": "too recent to judge",
    "reconciler": "handled by the reconciler",
    "another_store": "owned by another store",
    "unknown_owner": "owner unknown",
}


def _sweep(terminal: Terminal, *, end: bool, yes: bool, as_json: bool) -> int:
    """Show what a sweep finds; with ``end``, end the orphans after confirmation, or at once with ``yes``. Returns the
    exit code: 0 if no orphan is left and every engine and provider answered, else 2."""
    from broker.app.results.service import SweepReport
    from broker.app.service import sweep as use_case

    broker = terminal.broker(look_after=False)
    swept = use_case.sweep(broker)
    report = SweepReport.of(swept)
    if not as_json:
        terminal.show(*_shown(terminal, report))
    if end and report.orphans and _agreed(terminal, report.orphans, yes=yes):
        report = SweepReport.of(swept, use_case.end(broker, swept))
    terminal.result(report, lambda: _told(report, end=end))
    tried = [one for one in report.found if one.ended or one.error]
    kept = sum(bool(one.error) for one in tried) if tried else report.orphans
    return 2 if kept or report.trouble else 0


def _agreed(terminal: Terminal, orphans: int, *, yes: bool) -> bool:
    if yes:
        return True
    if not terminal.asks:
        raise InvalidInput("ending orphans needs confirmation", hint="add --yes")
    import typer

    from broker.cli.render.formats import plural

    return typer.confirm(f"End {plural(orphans, 'orphan')}?", default=False, err=True)


def _shown(terminal: Terminal, swept: SweepReport) -> Iterator[RenderableType]:
    from rich.text import Text

    from broker.cli.render import formats
    from broker.cli.render.tables import ValueColumn, listed

    if swept.found:
        columns: tuple[ValueColumn[LeftoverResult], ...] = (
            ValueColumn("type", lambda one: _KINDS[one.kind]),
            ValueColumn("ID", lambda one: one.id, folds=True),
            ValueColumn(
                "status",
                lambda one: Text(_STANDINGS[one.standing], style="bold red" if one.standing == "orphan" else ""),
            ),
            ValueColumn("age", lambda one: formats.age(swept.at - one.since if one.since else None), 2),
            ValueColumn("details", lambda one: one.about, 3, folds=True),
            ValueColumn("reason", lambda one: one.why, 1, folds=True),
        )
        yield from listed(terminal.out, columns, swept.found)
    asked = ", ".join(swept.asked) or "none, because no engine was used and no provider has a login"
    orphans = formats.plural(swept.orphans, "orphan") if swept.orphans else "no orphans"
    yield f"{orphans}; queried: {asked}"
    yield from (Text(f"✗ {name} could not be queried: {why}", style="red") for name, why in swept.trouble.items())
    if swept.without_login:
        yield Text(f"not queried, no login: {', '.join(swept.without_login)}", style="dim")


def _told(swept: SweepReport, *, end: bool) -> Iterator[str]:
    for one in swept.found:
        if one.error:
            yield f"✗ {one.id}: {one.error}"
        elif one.ended:
            yield f"✓ {one.id}: {'ended' if one.place is None else 'termination requested'}"
    if swept.orphans and not end:
        yield "Nothing was changed. To end the orphans: gpubroker doctor --sweep --end"
