"""`gpubroker approvals`: approval requests and standing grants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import completion, filters
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, Reason, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.app.wiring import Broker
    from broker.core.events.views import JobView
    from broker.core.policy.approvals import StandingGrant

app = typer.Typer(no_args_is_help=True, help="Approval requests: list, grant or refuse them; standing grants.")

Job = Annotated[
    str,
    typer.Argument(metavar="JOB", autocompletion=completion.jobs, help="Waiting job: ID, unique ID prefix, or name."),
]


@app.command(
    "list",
    epilog=examples("gpubroker approvals list", "gpubroker approvals list --all", "gpubroker approvals list --json"),
)
def list_(
    context: typer.Context,
    all_of_them: Annotated[
        bool, typer.Option("--all", "-a", help="Also decided requests and ended standing grants.")
    ] = False,
    mine: Annotated[bool, typer.Option("--mine", help="Only requests that I may decide.")] = False,
    as_json: AsJson = False,
) -> None:
    """List approval requests with requester, amount, expiry, approvers and reason; standing grants; and purchases of
    capacity that wait for approval."""
    from broker.app.alerts import approvers
    from broker.app.jobs import approvals
    from broker.cli.jobs import approvals_view
    from broker.core.purchases.purchases import PurchaseState

    terminal = Terminal.of(context)
    broker, me = terminal.broker(), terminal.actor.identity
    found = approvals.requests(broker, all_of_them=all_of_them)
    if mine:
        found = [one for one in found if one.asked.answerable_by(me, one.view.user)]
    standing = approvals.standing_grants(broker, all_of_them=all_of_them)
    asking = [one for one in broker.store.purchases() if one.state is PurchaseState.ASKING]
    if mine:
        asking = [one for one in asking if one.may_approve(me)]
    now = broker.clock.now()
    waiting = [one.view for one in found if one.state is approvals.ApprovalState.WAITING]
    told = approvers.told_of(broker, waiting)
    if as_json:
        from broker.app.results.approvals import ApprovalList, ApprovalRequest, StandingGrantResult
        from broker.app.results.purchases import PurchaseResult

        requests = [ApprovalRequest.of(one, told.get(one.view.id, ()), by=terminal.actor) for one in found]
        grants = [StandingGrantResult.of(one, now) for one in standing]
        purchases = [PurchaseResult.of(one) for one in asking]
        terminal.answer(ApprovalList(requests=requests, standing=grants, purchases=purchases))
    else:
        terminal.show(
            *approvals_view.listing(terminal.out, found, standing, me, now, told), *approvals_view.purchases(asking)
        )


@dataclass(frozen=True)
class StandingOptions:
    """The options of a standing grant."""

    for_user: Annotated[
        list[str] | None, typer.Option("--for-user", help="Standing grant: for this user. Repeatable.")
    ] = None
    for_team: Annotated[
        list[str] | None, typer.Option("--for-team", help="Standing grant: for this team. Repeatable.")
    ] = None
    for_project: Annotated[
        list[str] | None, typer.Option("--for-project", help="Standing grant: for this project. Repeatable.")
    ] = None
    rule: Annotated[
        list[str] | None,
        typer.Option(
            "--rule", help="Standing grant: for this rule. Repeatable. Default: all rules that I may approve."
        ),
    ] = None
    total: Annotated[
        str | None, typer.Option("--total", metavar="USD", help="Standing grant: total amount over all jobs.")
    ] = None
    until: Annotated[
        str | None,
        typer.Option("--until", "--to", metavar="WHEN", help="Standing grant: end, 2027-01-31 or 30d (from now)."),
    ] = None


@app.command(
    epilog=examples(
        "gpubroker approvals grant bert --reason 'agreed in the stand-up'",
        "gpubroker approvals grant --for-user ann --total '$3,000' --until 2027-01-31 --reason 'thesis'",
        "gpubroker approvals grant --for-team nlp --rule big-jobs --total '$3,000' --until 30d",
    )
)
@gathered
def grant(
    context: typer.Context,
    ahead: StandingOptions,
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Waiting job. Without it, a standing grant is created.")
    ] = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Approve the request of a waiting job, or create a standing grant for future requests.

    The approval is recorded with user, time and reason. It covers what `approvals list` shows; a standing grant covers
    its rules at every place and price, up to its total. A request that the policies now deny cannot be approved.
    """
    from broker.app.jobs import approvals, jobs
    from broker.core.events.events import ApprovalGiven

    terminal = Terminal.of(context)
    given = [f"--{name.replace('_', '-')}" for name, value in vars(ahead).items() if value]
    if job is not None and given:
        raise InvalidInput("applies to standing grants, not to the request of a job", where=given[0])
    broker = terminal.broker()
    if job is None:
        _standing(terminal, broker, ahead, reason, as_json=as_json)
        return
    after = approvals.grant(broker, job, reason, by=terminal.actor)
    by_whom = [body for event in jobs.events(broker, after) if isinstance(body := event.body, ApprovalGiven)]
    mine = by_whom[-1].rules if by_whom and by_whom[-1].by == terminal.actor.identity else ()
    word = f"approved ({', '.join(mine)})" if mine else "no approval needed: no active rule requires it any more"
    _answered(terminal, broker, after, word, as_json=as_json)


@app.command(epilog=examples("gpubroker approvals refuse bert --reason 'too expensive this quarter'"))
def refuse(context: typer.Context, job: Job, reason: Reason = "", as_json: AsJson = False) -> None:
    """Refuse the request of a job; the money held for it is released.

    A job that never ran ends; a waiting job is paused; a running job continues within its current limits.
    """
    from broker.app.jobs import approvals, jobs

    terminal = Terminal.of(context)
    broker = terminal.broker()
    asked = jobs.find(broker, job).asked
    after = approvals.refuse(broker, job, reason, by=terminal.actor)
    rules = f" ({', '.join(one.rule for one in asked.open)})" if asked and asked.open else ""
    _answered(terminal, broker, after, f"refused{rules}", as_json=as_json)


@app.command(epilog=examples("gpubroker approvals revoke 3"))
def revoke(
    context: typer.Context,
    number: Annotated[int, typer.Argument(min=1, help="Number in `gpubroker approvals list`.")],
    as_json: AsJson = False,
) -> None:
    """Revoke a standing grant. Jobs launched under it continue."""
    from broker.app.jobs import approvals

    terminal = Terminal.of(context)
    broker = terminal.broker()
    _granted(terminal, broker, approvals.revoke(broker, number, by=terminal.actor), "Revoked", as_json=as_json)


def _answered(terminal: Terminal, broker: Broker, after: JobView, word: str, *, as_json: bool) -> None:
    from broker.app.jobs import details
    from broker.app.service import background

    background.revive(broker)
    if as_json:
        terminal.answer(details.details(broker, after))
        return
    state = after.state.value.replace("_", " ")
    if after.asked is not None:
        terminal.show(f"{after.id}: {word}; still waiting for {after.asked.whom(after.user)}")
    else:
        terminal.show(f"{after.id}: {word}; state: {state}. See `gpubroker jobs show {after.id}`.")


def _standing(terminal: Terminal, broker: Broker, given: StandingOptions, reason: str, *, as_json: bool) -> None:
    from rich.text import Text

    from broker.app.jobs import approvals
    from broker.core.values.units import parse_money

    total, until = given.total, given.until
    missing = [name for name, value in (("--total", total), ("--until", until)) if value is None]
    if missing or total is None or until is None:
        raise InvalidInput(
            f"name a waiting job, or give {' and '.join(missing)} for a standing grant",
            hint="see `gpubroker approvals grant --help`",
        )
    try:
        amount = parse_money(total)
    except ValueError as error:
        raise InvalidInput(str(error), where="--total") from error
    end = filters.moment_ahead("--until", until, broker.clock.now())
    rules, users = tuple(given.rule or ()), tuple(given.for_user or ())
    teams, projects = tuple(given.for_team or ()), tuple(given.for_project or ())
    ahead = approvals.GrantRequest(amount, end, rules, users, teams, projects, reason)
    granted = approvals.give_standing(broker, ahead, by=terminal.actor)
    terminal.say(*(Text(f"warning: {one}", style="yellow") for one in approvals.unknown_grantees(broker, ahead)))
    _granted(terminal, broker, granted, "Granted", as_json=as_json)


def _granted(terminal: Terminal, broker: Broker, grant: StandingGrant, word: str, *, as_json: bool) -> None:
    from broker.app.results.approvals import StandingGrantResult
    from broker.cli.jobs import approvals_view

    terminal.result(
        lambda: StandingGrantResult.of(grant, broker.clock.now()),
        lambda: [f"{word}: {approvals_view.standing_sentence(grant)}"],
    )
