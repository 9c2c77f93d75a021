"""`gpubroker dev`: a session on a machine with GPUs, for SSH, editors and Jupyter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.jobs import job_options
from broker.cli.jobs.submit import SubmitManner, plan_and_submit, show_notified_approvers, tell_waiting
from broker.cli.options import AsJson, examples, expand_options
from broker.cli.terminal import Terminal
from broker.core.events.outcomes import AttemptState

if TYPE_CHECKING:
    from broker.app.wiring import Broker
    from broker.core.events.views import JobView
    from broker.core.job.jobs import Job

EXAMPLES = examples(
    "gpubroker dev",
    "gpubroker dev --gpu L4 --for 4h --idle 30m --name bert",
    "gpubroker dev --gpu L4 --dry-run",
    "gpubroker dev --jupyter --setup 'pip install jupyterlab' --yes",
    "gpubroker dev --provider slurm --gpu H100 --cpus 8 --memory 64GB",
)
_POLL_SECONDS = 0.5  # seconds of the wall clock
_REVIVE_EVERY = 4  # looks


@dataclass(frozen=True)
class SessionOptions:
    """The session, and how it is opened."""

    machine: job_options.MachineOptions
    longest: Annotated[
        str, typer.Option("--for", metavar="TIME", help="Machine time after which the session ends.")
    ] = "4h"
    idle: Annotated[str, typer.Option("--idle", metavar="TIME", help="Stop after this much idle time.")] = "30m"
    jupyter: Annotated[
        bool, typer.Option("--jupyter", help="Run Jupyter in it; `gpubroker ssh --jupyter` opens it.")
    ] = False
    name: Annotated[
        str,
        typer.Option("--name", help="Name of the session. It gets the home folder of the last session with that name."),
    ] = "dev"
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin with an empty home folder.")] = False
    setup: Annotated[str | None, typer.Option("--setup", metavar="COMMAND", help="Command to run before it opens.")] = (
        None
    )
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan, the price per hour and the money held; start nothing.")
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return at once, without waiting for the machine.")] = (
        False
    )


@expand_options
def dev(context: typer.Context, given: SessionOptions, as_json: AsJson = False) -> None:
    """Open a session: a machine to work on, through SSH, an editor or Jupyter.

    It is a job of the workload `development`, judged and paid for like any other, but its money is held for an hour at
    a time, and renewed while it runs. It ends when it is idle (no `exec` program, no SSH traffic, no busy Jupyter
    kernel, GPU or CPU), at its time limit, or when its money ends. Its home folder, without `.cache`, is saved at its
    end and restored in the next session of that name, on any engine. Exits as `gpubroker submit` does.
    """
    from broker.app.jobs.sessions import SessionRequest, resume_home, session_job

    terminal = Terminal.of(context)
    broker = terminal.broker()
    request = SessionRequest(given.name, given.longest, given.idle, given.jupyter)
    beside = job_options.overrides(given.machine, setup=given.setup)
    job = session_job(request, broker.clock.now(), beside)
    job = job if given.fresh else resume_home(broker, job, by=terminal.actor)
    if given.dry_run:
        raise typer.Exit(_show_plan(terminal, broker, job))
    view, has_detached = plan_and_submit(terminal, broker, job, SubmitManner(yes=given.yes, detach=True, events=True))
    show_notified_approvers(terminal, broker, view)
    if has_detached or given.detach or as_json:
        _show_return_command(terminal, broker, view, has_detached=has_detached)
    else:
        _wait_until_open(terminal, broker, view)


def _show_plan(terminal: Terminal, broker: Broker, job: Job) -> int:
    """Show the plan; the exit code of a submission."""
    from broker.app.jobs.plan_documents import plan
    from broker.cli.jobs import plan_view

    terminal.adopt()
    job_plan = plan(broker, job, by=terminal.actor, limit=8)
    terminal.result(job_plan, lambda: plan_view.plan_screen(terminal.out, job_plan))
    return job_plan.exit_code


def _show_return_command(terminal: Terminal, broker: Broker, view: JobView, *, has_detached: bool) -> None:
    """Print how to return to the session. Raises `typer.Exit` after Ctrl-C."""
    from broker.app.jobs import details
    from broker.cli.jobs.job_view import return_commands

    terminal.result(lambda: details.details(broker, view, progress=True), lambda: [return_commands(view.id)])
    if has_detached:
        raise typer.Exit(130)


def _wait_until_open(terminal: Terminal, broker: Broker, view: JobView) -> None:
    """Wait until the session can be entered, and print how. Raises `typer.Exit` if it ends before, or needs a person to
    continue."""
    from broker.app.jobs import background, jobs
    from broker.app.jobs.details import details
    from broker.cli.jobs import job_view
    from broker.cli.jobs.follow import exit_code, show_detached

    polls, name = 0, view.job.name
    try:
        while not (view.latest is not None and view.latest.state is AttemptState.RUNNING):
            if view.asked is not None:
                raise typer.Exit(tell_waiting(terminal, details(broker, view)))
            if view.state.final or jobs.is_waiting_for_people(view):
                terminal.show(*job_view.end_summary(details(broker, view)))
                raise typer.Exit(exit_code(view))
            if polls % _REVIVE_EVERY == 0:
                background.revive(broker)
            polls += 1
            broker.clock.sleep(_POLL_SECONDS)
            view = jobs.find(broker, view.id)
    except KeyboardInterrupt:
        show_detached(terminal, view.id)
        raise typer.Exit(130) from None
    session = view.job.session
    terminal.show(f"{view.id} is open.", f"  enter     gpubroker ssh {name}")
    if session is not None and session.jupyter:
        terminal.show(f"  Jupyter   gpubroker ssh {name} --jupyter")
    terminal.show(f"  editor    gpubroker ssh {name} --config >> ~/.ssh/config    (host gpubroker-{name})")
    terminal.show(f"  end       gpubroker cancel {name}    (its home folder is saved)")
