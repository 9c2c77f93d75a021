"""`gpubroker demo`: one job from market prices to the bill, printed as it happens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from rich.rule import Rule
from rich.text import Text

from broker.cli.options import AsJson, examples
from broker.cli.render import formats
from broker.cli.terminal import Terminal
from broker.core.actors import Actor
from broker.core.errors import MissingExtra
from broker.core.events.outcomes import JobState

if TYPE_CHECKING:
    from broker.app.demo import Demo
    from broker.app.jobs.preview import Preview
    from broker.app.service.documents import DemoReport
    from broker.app.wiring import Broker
    from broker.core.events.views import JobView


PAGE_MODULES = ("fastapi", "jinja2", "uvicorn")


@dataclass(frozen=True, slots=True)
class DemoPage:
    """The page's address, and the link by which a person signs in, once."""

    url: str
    link: str


def page_is_available() -> bool:
    """Whether the extra of the page is installed."""
    return all(find_spec(name) for name in PAGE_MODULES)


@contextmanager
def demo_page(broker: Broker, actor: Actor) -> Iterator[DemoPage]:
    """Serve the page of the demo's store on a free port of loopback. ``actor`` becomes its administrator. Raises
    `MissingExtra`."""
    if not page_is_available():
        raise MissingExtra("server", "the web UI")
    from broker.app.access.documents import CreatedLink
    from broker.app.access.sessions import invite
    from broker.app.service.health import Pulses
    from broker.server.api.team_server import TeamServer
    from broker.server.api.transport import Transport
    from broker.server.page.application import api_and_page

    invitation = invite(broker, actor.identity, by=actor, administrator=True)
    server, stop_event = TeamServer(broker, Pulses(), "127.0.0.1:0", None, Transport(), api_and_page), threading.Event()
    server_thread = threading.Thread(target=server.run, args=(stop_event,), name="page", daemon=True)
    server_thread.start()
    try:
        yield DemoPage(server.url, CreatedLink.of(invitation, server.url).link)
    finally:
        stop_event.set()
        server_thread.join()


def wait_for_the_end() -> None:
    """Wait until Ctrl-C."""
    threading.Event().wait()


EXAMPLES = examples("gpubroker demo", "gpubroker demo --page", "gpubroker demo --seed 3", "gpubroker demo --json")


def demo(
    context: typer.Context,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the market: decides prices and when machines are interrupted.")
    ] = None,
    page: Annotated[
        bool, typer.Option("--page", help="Show it in the web UI as well, while it runs and then until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run one job on a simulated market in about a minute: prices, plan, policy, launch, interruptions, resume, bill.

    Market and money are simulated, in a separate store, and time runs up to 240 times as fast, slower on a slow or busy
    machine. The training, the agents, the kills, the checkpoints and the ledger are real. Exits with 0 if the job
    succeeded, else 7.
    """
    from broker.app.demo import DEFAULT_SEED, Demo

    terminal = Terminal.of(context)
    demo_run = Demo(
        terminal.settings().home, terminal.registries(), terminal.actor, DEFAULT_SEED if seed is None else seed
    )
    opened_page: DemoPage | None = None
    with ExitStack() as until_the_end:
        try:
            _show_market(terminal, demo_run)
            if page:
                opened_page = until_the_end.enter_context(demo_page(demo_run.broker, terminal.actor))
                terminal.say("", f"In the web UI; this link signs you in, once:\n  {opened_page.link}")
            _show_run(terminal, demo_run, _show_plan(terminal, demo_run))
        except KeyboardInterrupt:
            demo_run.give_up()
            terminal.say("", "Stopped. The job is cancelled and its simulated machines are terminated.")
            raise typer.Exit(130) from None
        summary = demo_run.summary()
        if as_json:
            terminal.answer(summary)
        else:
            _show_bill(terminal, demo_run, summary, tells_page=opened_page is None)
        if opened_page is not None:
            terminal.say("", f"{opened_page.url}/jobs/{summary.job_id} stays open until Ctrl-C.")
            with suppress(KeyboardInterrupt):
                wait_for_the_end()
    if summary.job_state is not JobState.SUCCEEDED:
        raise typer.Exit(7)


def _show_heading(terminal: Terminal, text: str) -> None:
    terminal.show("", Rule(Text(text, style="bold"), align="left") if terminal.out.is_terminal else f"== {text}")


def _show_market(terminal: Terminal, demo_run: Demo) -> None:
    terminal.show(
        Text.assemble(
            ("gpubroker demo", "bold"),
            f"  seed {demo_run.seed}; simulated market and money, time runs {demo_run.speed:.0f}x, everything else "
            "is real",
        )
    )
    count = demo_run.prepare()
    _show_heading(terminal, "1  The market")
    cheapest = demo_run.cheapest()
    terminal.show(f"{formats.plural(count, 'simulated offer')}. Hourly prices of the machine that the job needs:")
    for capacity, offers in cheapest.items():
        prices_text = ", ".join(f"{formats.rate(o.price)} {o.zone}" for o in offers[:4])
        terminal.show(f"  {capacity.value.replace('_', '-'):<10} {prices_text}")


def _show_plan(terminal: Terminal, demo_run: Demo) -> Preview:
    from broker.app.jobs.plan_documents import plan_result
    from broker.cli.jobs import plan_view

    _show_heading(terminal, "2  The plan and the policy's decision")
    job_preview = demo_run.plan()
    terminal.show(*plan_view.plan_screen(terminal.out, plan_result(demo_run.broker, job_preview, limit=4)))
    return job_preview


def _show_run(terminal: Terminal, demo_run: Demo, job_preview: Preview) -> None:
    from broker.cli.jobs.job_view import event_line
    from broker.core.events.agent_events import CheckpointSaved

    _show_heading(terminal, "3  The run")
    view = demo_run.start(job_preview)
    terminal.show(f"{view.id}: money held, launch requested; the background process runs the job from now on.")
    with terminal.live() as live:

        def waiting(current_view: JobView) -> None:
            if live is not None:
                live.update(_status_line(demo_run, current_view), refresh=True)

        for event, view_at_event in demo_run.follow(waiting):
            # Checkpoints are not printed: the status line shows the steps, and a line per checkpoint would hide the
            # other events.
            if (
                not isinstance(event.body, CheckpointSaved)
                and (event_text := event_line(event, view_at_event.submitted_at)) is not None
            ):
                terminal.show(event_text)


def _status_line(demo_run: Demo, view: JobView) -> Text:
    from broker.app.jobs import details
    from broker.cli.jobs.job_view import running_cost_text, state_text, step_text

    job = details.details(demo_run.broker, view, progress=True)
    parts = [
        state_text(job),
        Text(f"{formats.length(demo_run.broker.clock.now() - job.submitted_at)} simulated"),
        Text(step_text(job.step, job.total_steps)),
        Text(running_cost_text(job.cost_so_far)),
    ]
    status_text = Text("  ").join(part for part in parts if part.plain)
    status_text.no_wrap, status_text.overflow = True, "ellipsis"
    return status_text


def _show_bill(terminal: Terminal, demo_run: Demo, summary: DemoReport, *, tells_page: bool) -> None:
    from broker.app.jobs import details, jobs
    from broker.app.jobs.reasons import program_name
    from broker.cli.jobs.job_view import attempt_table

    _show_heading(terminal, "4  The bill")
    attempts = details.attempts(demo_run.broker, jobs.find(demo_run.broker, summary.job_id))
    terminal.show(*attempt_table(terminal.out, attempts))
    interruption_text = formats.plural(summary.interruptions, "interruption")
    resumed_text = f"; resumed at step {summary.resumed_from_step:,}" if summary.resumed_from_step else ""
    terminal.show(
        f"{summary.job_state.value} after {formats.plural(summary.attempts, 'attempt')} and "
        f"{interruption_text}{resumed_text}, "
        f"{summary.steps_redone:,} of {summary.steps:,} steps repeated"
    )
    verb = "saved" if summary.savings.micros >= 0 else "lost"
    style = "green" if verb == "saved" else "yellow"
    terminal.show(
        f"cost        {formats.money(summary.cost, 4)} (simulated)",
        f"on-demand   {formats.money(summary.on_demand_cost, 4)} for the same work on the cheapest on-demand machine",
        Text(f"{verb:<11} {formats.money(abs(summary.savings), 4)}, {abs(summary.savings_percent):.1f} %", style=style),
        f"ledger      {'balanced' if summary.ledger_balanced else 'DOES NOT BALANCE'}, "
        f"{formats.money(summary.held)} still held",
        Text(
            f"\nDetails: GPUBROKER_HOME={quote(str(demo_run.home))} {program_name()} status {summary.job_id}",
            style="dim",
        ),
    )
    if tells_page and page_is_available():
        _show_page_hint(terminal, demo_run)


def _show_page_hint(terminal: Terminal, demo_run: Demo) -> None:
    """Print how to open the web UI."""
    from broker.app.jobs.reasons import program_name

    home = f"GPUBROKER_HOME={quote(str(demo_run.home))}"
    terminal.show(
        Text(
            f"In the web UI while it runs: {program_name()} demo --page\n"
            f"Afterwards: {home} {program_name()} serve    # prints a link that signs you in",
            style="dim",
        )
    )
