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

    from broker.app.doctor.result import DoctorFinding
    from broker.app.results.service import CheckedArea, DoctorReport, ProviderSetup
    from broker.app.wiring import Broker

_PLAIN_LOGINS = ("api_key", "client_id")  # names of logins that say no more than the provider's name
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
        from broker.cli.service import sweep as sweeping

        raise typer.Exit(sweeping.sweep(terminal, end=end, yes=yes, as_json=as_json))
    if end or yes:
        raise InvalidInput("--end and --yes need --sweep", hint="gpubroker doctor --sweep --end")
    from broker.app.doctor import doctor as use_case
    from broker.app.doctor.result import healthy
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
    from broker.app.doctor.result import DoctorFinding, Health

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
    yield "" if report.healthy else "\nSomething is broken: see the lines marked ✗."


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


def _table(findings: Sequence[CheckedArea]) -> Table:
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
