"""`gpubroker approvals`: approval requests and standing grants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from broker.cli import completion, filters
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, Reason, examples
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed
from broker.cli.terminal import Terminal
from broker.core.errors import BrokerError, InvalidInput

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.results.approvals import ApprovalList, ApprovalRequest, StandingGrantResult
    from broker.app.results.jobs import JobDetails
    from broker.app.results.purchases import PurchaseResult

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

    terminal = Terminal.of(context)
    found = _listed(terminal, decided=all_of_them, mine=mine)
    terminal.result(found, lambda: listing(terminal.out, found))


def _listed(terminal: Terminal, *, decided: bool, mine: bool) -> ApprovalList:
    if terminal.through_server:
        from broker.app.results.approvals import ApprovalList

        return terminal.api.fetch(ApprovalList, "/approvals", decided=decided, mine=mine)
    from broker.app.jobs.approval_lists import approval_list

    return approval_list(terminal.broker(), by=terminal.actor, decided=decided, mine=mine)


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
    Standing grants cannot be created through a server.
    """
    from rich.text import Text

    from broker.cli.jobs.jobs import history_of
    from broker.core.events.events import ApprovalGiven

    terminal = Terminal.of(context)
    given = {f"--{name.replace('_', '-')}": value for name, value in vars(ahead).items() if value}
    if job is not None and given:
        raise InvalidInput("applies to standing grants, not to the request of a job", where=next(iter(given)))
    if job is None:
        _standing(terminal, ahead, given, reason)
        return

    def approved() -> str:
        try:
            happened = [event.body for event in history_of(terminal, after.id).events]
        except BrokerError as error:  # the decision is made, whether or not its rules can be shown
            terminal.say(Text(f"the rules of the approval cannot be shown: {error}", style="yellow"))
            return "approval recorded"
        last = [body for body in happened if isinstance(body, ApprovalGiven)][-1:]
        rules = last[0].rules if last and last[0].by else ()
        return f"approved ({', '.join(rules)})" if rules else "no approval needed: no active rule requires it any more"

    after = _decided(terminal, job, "grant", reason)
    terminal.result(after, lambda: [_answered(after, approved())])


@app.command(epilog=examples("gpubroker approvals refuse bert --reason 'too expensive this quarter'"))
def refuse(context: typer.Context, job: Job, reason: Reason = "", as_json: AsJson = False) -> None:
    """Refuse the request of a job; the money held for it is released.

    A job that never ran ends; a waiting job is paused; a running job continues within its current limits.
    """
    terminal = Terminal.of(context)
    after = _decided(terminal, job, "refuse", reason)
    terminal.result(after, lambda: [_answered(after, "refused")])


def _decided(terminal: Terminal, job: str, decision: Literal["grant", "refuse"], reason: str) -> JobDetails:
    if terminal.through_server:
        from broker.app.results.jobs import JobDetails
        from broker.remote.sending import job_id

        path = f"/approvals/{job_id(terminal.api, job)}/{decision}"
        return terminal.api.request(JobDetails, path, {"reason": reason})
    from broker.app.jobs import approvals, details
    from broker.app.service import background

    broker = terminal.broker()
    decide = approvals.grant if decision == "grant" else approvals.refuse
    after = decide(broker, job, reason, by=terminal.actor)
    background.revive(broker)
    return details.details(broker, after)


def _answered(after: JobDetails, word: str) -> str:
    if after.asked is not None:
        return f"{after.id}: {word}; still waiting for {after.asked.whom}"
    state = after.state.value.replace("_", " ")
    return f"{after.id}: {word}; state: {state}. See `gpubroker jobs show {after.id}`."


@app.command(epilog=examples("gpubroker approvals revoke 3"))
def revoke(
    context: typer.Context,
    number: Annotated[int, typer.Argument(min=1, help="Number in `gpubroker approvals list`.")],
    as_json: AsJson = False,
) -> None:
    """Revoke a standing grant. Jobs launched under it continue."""
    terminal = Terminal.of(context)
    _granted(terminal, _revoked(terminal, number), "Revoked")


def _revoked(terminal: Terminal, number: int) -> StandingGrantResult:
    from broker.app.results.approvals import StandingGrantResult

    if terminal.through_server:
        return terminal.api.request(StandingGrantResult, f"/approvals/standing/{number}/revoke")
    from broker.app.jobs import approvals

    broker = terminal.broker()
    return StandingGrantResult.of(approvals.revoke(broker, number, by=terminal.actor), broker.clock.now())


def _standing(terminal: Terminal, wanted: StandingOptions, given: Mapping[str, object], reason: str) -> None:
    from rich.text import Text

    from broker.app.jobs import approvals
    from broker.app.results.approvals import StandingGrantResult
    from broker.core.values.units import parse_money

    terminal.only_here(given)
    total, until = wanted.total, wanted.until
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
    broker = terminal.broker()
    end = filters.moment_ahead("--until", until, broker.clock.now())
    rules, users = tuple(wanted.rule or ()), tuple(wanted.for_user or ())
    teams, projects = tuple(wanted.for_team or ()), tuple(wanted.for_project or ())
    ahead = approvals.GrantRequest(amount, end, rules, users, teams, projects, reason)
    granted = approvals.give_standing(broker, ahead, by=terminal.actor)
    terminal.say(*(Text(f"warning: {one}", style="yellow") for one in approvals.unknown_grantees(broker, ahead)))
    _granted(terminal, StandingGrantResult.of(granted, broker.clock.now()), "Granted")


def _granted(terminal: Terminal, grant: StandingGrantResult, word: str) -> None:

    terminal.result(grant, lambda: [f"{word}: {standing_sentence(grant)}"])


_STYLES = {
    "waiting": "yellow",
    "approved": "green",
    "refused": "red",
    "expired": "red",
    "withdrawn": "dim",
}


def listing(console: Console, found: ApprovalList) -> Iterator[RenderableType]:
    """The requests, the next command, the standing grants, and the purchases of capacity."""
    from broker.cli.service.notices import dispatch

    yield from _requests(console, found.requests) if found.requests else ["No approval requests."]
    if mine := next((one for one in found.requests if one.mine), None):
        yield from ("You can decide:", f"  gpubroker approvals grant {mine.job}    (or refuse)")
    unsent = [notice for one in found.requests for notice in one.notices if notice.delivered_at is None]
    yield from (Text(dispatch(notice), style="yellow") for notice in unsent)
    if found.standing:
        yield from ("", Text("Standing grants", style="bold"), *_standing_grants(console, found.standing))
        yield Text("A standing grant covers its rules at every place and price, up to its total.", style="dim")
    if found.purchases:
        yield from ("", Text("Purchases of capacity", style="bold"))
        for one in found.purchases:
            missing = formats.plural(max(one.approvals_missing, 1), "approval")
            yield Text(f"{one.user} asks to buy {_capacity(one)}; {missing} missing")
            yield Text(f"  gpubroker capacity grant {one.id}", style="dim")


def _requests(console: Console, found: list[ApprovalRequest]) -> list[RenderableType]:
    def expires(one: ApprovalRequest) -> str:
        return formats.moment(one.expires_at) if one.state in ("waiting", "expired") else ""

    def reason(one: ApprovalRequest) -> str:
        because = "; ".join(question.because for question in one.questions)
        return f"{because}{f' (“{one.reason}”)' if one.reason else ''}"

    all_wait = all(one.state == "waiting" for one in found)
    columns: tuple[ValueColumn[ApprovalRequest], ...] = (
        ValueColumn("job", lambda one: one.job),
        ValueColumn("requester", lambda one: one.asked_by, 2),
        ValueColumn("amount", lambda one: formats.money(one.total), align="right"),
        ValueColumn("state", lambda one: Text(one.state.value, style=_STYLES[one.state]), 3 if all_wait else 0),
        ValueColumn("expires", expires, 1),
        ValueColumn("approvers", lambda one: ", ".join(one.decided_by) or one.whom, 1),
        ValueColumn("reason", reason, folds=True),
        ValueColumn("covers", lambda one: one.covers, folds=True),
    )
    return listed(console, columns, found, formats.plural(len(found), "request"))


def _standing_grants(console: Console, found: list[StandingGrantResult]) -> list[RenderableType]:
    columns: tuple[ValueColumn[StandingGrantResult], ...] = (
        ValueColumn("#", lambda one: str(one.number), align="right"),
        ValueColumn("for", _beneficiaries, folds=True),
        ValueColumn("by", lambda one: one.by, 1),
        ValueColumn("amount", lambda one: formats.money(one.total), align="right"),
        ValueColumn("left", lambda one: formats.money(one.total - one.used) if one.active else "", align="right"),
        ValueColumn("until", lambda one: "revoked" if one.revoked_at else formats.moment(one.until)),
        ValueColumn("rules", lambda one: ", ".join(one.rules), 2, folds=True),
        ValueColumn("note", lambda one: one.reason, 3, folds=True),
    )
    return listed(console, columns, found)


def _capacity(one: PurchaseResult) -> str:
    """``2 × p5.48xlarge (H100:8) in us-east-1a, … to …, for at most $900.00``."""
    quote = one.quote
    return (
        f"{quote.machines} × {quote.instance_type} ({quote.accelerator}:{quote.count}) in {quote.zone or quote.region},"
        f" {formats.moment(quote.starts)} to {formats.moment(quote.ends)}, for at most {one.ceiling_usd.rounded(2)}"
    )


def _beneficiaries(one: StandingGrantResult) -> str:
    said = (("user", one.users), ("team", one.teams), ("project", one.projects))
    return ", ".join(f"{word} {' or '.join(names)}" for word, names in said if names)


def standing_sentence(one: StandingGrantResult) -> str:
    """``standing grant 3 for team nlp: $3,000 in total until 2027-01-31 (big-jobs)``."""
    until = formats.moment(one.until)
    return (
        f"standing grant {one.number} for {_beneficiaries(one)}: {formats.money(one.total)} in total until {until}"
        f" ({', '.join(one.rules)})"
    )
