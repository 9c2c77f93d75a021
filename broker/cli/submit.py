"""`gpubroker submit`: plan, ask, hold the money, launch, follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.options import AsJson, JobFile, examples
from broker.cli.terminal import Terminal
from broker.core.errors import ApprovalNeeded, BrokerError, InvalidInput

if TYPE_CHECKING:
    from broker.app.submit import Preview
    from broker.app.wiring import Broker
    from broker.core.views import JobView

EXAMPLES = examples(
    "gpubroker submit JOB.yaml",
    "gpubroker submit JOB.yaml --yes --detach",
    "gpubroker submit JOB.yaml --yes --json",
)


def submit(
    context: typer.Context,
    job: JobFile,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; submit if the policies allow it.")] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return at once; the job goes on by itself.")] = False,
    as_json: AsJson = False,
) -> None:
    """Submit a job: see the plan and the verdict, confirm, and follow it to its end.

    The money is held before anything is launched. The job goes on when this command, this terminal or this login ends.
    Exits with 0 when the job succeeded, 7 when it failed or was cancelled, 3 when a policy denies it or its money is
    used up, 4 without feasible capacity, 6 when it waits for approval.
    """
    from broker.app.submit import preview, read_job

    terminal = Terminal.of(context)
    broker = terminal.broker()
    wanted = read_job(job, broker.clock.now())
    if not yes and not terminal.asks:
        raise InvalidInput("there is no terminal to confirm on", hint="add --yes to submit without being asked")
    terminal.adopt()
    view, left = _agree_and_submit(terminal, broker, preview(broker, wanted), yes=yes)
    _afterwards(terminal, broker, view, detach=detach, left=left)


def _agree_and_submit(terminal: Terminal, broker: Broker, seen: Preview, *, yes: bool) -> tuple[JobView, bool]:
    """Show the plan, ask, submit; when it has become dearer meanwhile, show and ask again. ``yes``: whatever it costs
    within the job's own limits was agreed to. Raises `typer.Exit` when nothing is submitted.

    The job, and whether Ctrl-C was pressed meanwhile: money is held then, so that is told before it is heeded.
    """
    from broker.app import background
    from broker.app.submit import DearerNow
    from broker.app.submit import submit as admit
    from broker.cli import plan_view
    from broker.cli.keyboard import ctrl_c_waits

    while True:
        if seen.exit_code in (2, 3, 4):
            _refused(terminal, broker, seen)
        if not terminal.as_json:
            terminal.show(*plan_view.screen(terminal.out, seen, judged=plan_view.judged_by(broker), limit=3))
        if not yes and not typer.confirm("Submit it?", default=False, err=True):
            terminal.say("Nothing was submitted.")
            raise typer.Exit(0)
        try:
            with ctrl_c_waits() as pressed:
                view = admit(broker, seen.job, agreed=None if yes else seen)
                background.ensure(broker, for_secrets_of=view)
                terminal.say(f"Submitted as {view.id}.")
            return view, pressed()
        except DearerNow as error:
            if pressed():
                raise KeyboardInterrupt from None  # nothing is held, and nobody is there to be asked again
            terminal.say(f"{error.message}. This is the plan now:")
            seen = error.preview


def _afterwards(terminal: Terminal, broker: Broker, view: JobView, *, detach: bool, left: bool) -> None:
    from broker.app import jobs
    from broker.cli import job_document, job_view
    from broker.cli.follow import detached, exit_code, follow

    waits = jobs.waiting_for_people(view)
    tell_approvers(terminal, broker, view)
    if left:
        detached(terminal, broker, view.id)
    followed = None if detach or waits or left else follow(terminal, broker, view.id)
    last = followed or jobs.find(broker, view.id)
    bill = jobs.bill(broker, last)
    if terminal.as_json:
        terminal.answer(job_document.document(last, bill, jobs.progress(broker, last), broker.clock.now()))
    elif waits:
        raise typer.Exit(terminal.refuse(approval_needed(last)))
    elif followed is not None:
        terminal.show(*job_view.ending(last, bill))
    elif detach and not left:
        terminal.show(job_view.come_back(last))
    if left or (followed is None and not detach and not waits):
        raise typer.Exit(130)
    if code := 0 if detach and not waits else exit_code(last):
        raise typer.Exit(code)


def tell_approvers(terminal: Terminal, broker: Broker, view: JobView) -> None:
    """Tell whoever is to be told that somebody is asked, and say so."""
    from broker.app import approvers
    from broker.cli import notices_view

    if view.asked is not None and (sent := approvers.tell(broker, view)):
        terminal.say(f"{notices_view.deliveries(sent)}.")


def approval_needed(view: JobView) -> ApprovalNeeded:
    """That somebody must be asked first: whom, until when, and what they type."""
    from broker.cli import words

    asked = view.asked
    if asked is None:
        return ApprovalNeeded(f"{view.id} waits for approval: {view.waiting_because}")
    because = "; ".join(question.because for question in asked.open)
    until = f" until {words.moment(asked.expires_at)}" if asked.expires_at else ""
    what = "more for it is asked" if asked.extension else "the money is held"
    return ApprovalNeeded(
        f"{view.id} waits for approval: {because} ({what}{until})",
        hint=f"ask {asked.whom(view.user)}: `gpubroker approvals grant {view.id}`;"
        f" `gpubroker jobs show {view.id}` tells what came of it",
    )


def _refused(terminal: Terminal, broker: Broker, seen: Preview) -> None:
    """Show why nothing can be submitted, and leave. Raises `typer.Exit`."""
    from broker.app.refusals import denied, denied_everywhere
    from broker.app.submit import NoFeasibleCapacity, record_refusal
    from broker.cli import plan_view
    from broker.cli.errors import error_document

    error: BrokerError
    if seen.exit_code == 4:
        error = NoFeasibleCapacity(seen)
    else:
        record_refusal(broker, seen)
        error = denied_everywhere(seen) if seen.admission is None else denied(seen.admission)
    if terminal.as_json:
        document: dict[str, Any] = error_document(error)
        terminal.answer(document | {"plan": plan_view.document(seen, broker.policy(), limit=3)})
    else:
        terminal.show(*plan_view.screen(terminal.out, seen, judged=plan_view.judged_by(broker), limit=3))
        terminal.refuse(error)
    raise typer.Exit(error.exit_code)
