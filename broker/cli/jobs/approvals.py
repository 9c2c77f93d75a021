"""`gpubroker approvals`: approval requests and standing grants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from broker.cli import completion, filters
from broker.cli.capacity import purchases
from broker.cli.jobs.jobs import load_history
from broker.cli.options import AsJson, Reason, examples, expand_options
from broker.cli.prices.watch import notice_text
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, table_parts
from broker.cli.terminal import Terminal
from broker.core.errors import BrokerError, InvalidInput

if TYPE_CHECKING:
    from broker.app.capacity.purchase_documents import PurchaseResult
    from broker.app.jobs.approval_documents import ApprovalList, ApprovalRequest, StandingGrantResult
    from broker.app.jobs.documents import JobDetails

app = typer.Typer(no_args_is_help=True, help="Approval requests: list, grant or refuse them; standing grants.")

Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB|PURCHASE", autocompletion=completion.jobs, help="Waiting job, or purchase that asks for approval."
    ),
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
    from broker.app.use_cases.approvals import list_approvals

    terminal = Terminal.of(context)
    approval_list = terminal.ask(list_approvals, all_of_them, mine)
    terminal.result(approval_list, lambda: approval_lines(terminal.out, approval_list))


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
        "gpubroker approvals grant purchase-0123456789ab --binding 4f1c",
    )
)
@expand_options
def grant(
    context: typer.Context,
    ahead: StandingOptions,
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB|PURCHASE]", help="Waiting job or purchase. Without it, a standing grant is created."
        ),
    ] = None,
    binding: Annotated[
        str | None, typer.Option("--binding", metavar="HASH", help="Approve a purchase only if it has this hash.")
    ] = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Approve the request of a waiting job or purchase, or create a standing grant for future requests.

    The approval is recorded with user, time and reason. It covers what `approvals list` shows; a standing grant covers
    its rules at every place and price, up to its total. A request that the policies now deny cannot be approved.
    Standing grants cannot be created through a server.

    The last approval of a purchase orders it if this machine has a login to the provider; a server orders it itself.
    """
    from broker.app.use_cases.approvals import grant_approval
    from broker.core.events.events import ApprovalGiven
    from broker.core.purchases.purchases import is_purchase

    terminal = Terminal.of(context)
    standing_options = {f"--{name.replace('_', '-')}": value for name, value in vars(ahead).items() if value}
    if job is not None and standing_options:
        raise InvalidInput(
            "applies to standing grants, not to the request of a job", where=next(iter(standing_options))
        )
    if job is not None and is_purchase(job):
        if reason:
            raise InvalidInput("an approval of a purchase has no reason", where="--reason", hint="leave it out")
        purchases.grant(terminal, job, binding)
        return
    if binding is not None:
        raise InvalidInput("applies to purchases", where="--binding", hint="gpubroker capacity purchases")
    if job is None:
        _create_standing_grant(terminal, ahead, standing_options, reason)
        return

    def approved() -> str:
        try:
            bodies = [event.body for event in load_history(terminal, details.id).events]
        except BrokerError as error:  # the decision is made, whether or not its rules can be shown
            terminal.say(Text(f"the rules of the approval cannot be shown: {error}", style="yellow"))
            return "approval recorded"
        last_approvals = [body for body in bodies if isinstance(body, ApprovalGiven)][-1:]
        rules = last_approvals[0].rules if last_approvals and last_approvals[0].by else ()
        return f"approved ({', '.join(rules)})" if rules else "no approval needed: no active rule requires it any more"

    details = terminal.ask(grant_approval, terminal.job_id(job), reason)
    terminal.result(details, lambda: [_answer_line(details, approved())])


@app.command(epilog=examples("gpubroker approvals refuse bert --reason 'too expensive this quarter'"))
def refuse(context: typer.Context, job: Job, reason: Reason = "", as_json: AsJson = False) -> None:
    """Refuse the request of a job or purchase, as one of its approvers; the money held for it is released.

    A job that never ran ends; a waiting job is paused; a running job continues within its current limits.
    """
    from broker.app.use_cases.approvals import refuse_approval
    from broker.core.purchases.purchases import is_purchase

    terminal = Terminal.of(context)
    if is_purchase(job):
        purchases.refuse(terminal, job, reason)
        return
    details = terminal.ask(refuse_approval, terminal.job_id(job), reason)
    terminal.result(details, lambda: [_answer_line(details, "refused")])


def _answer_line(details: JobDetails, outcome: str) -> str:
    if details.asked is not None:
        return f"{details.id}: {outcome}; still waiting for {details.asked.whom}"
    state = details.state.value.replace("_", " ")
    return f"{details.id}: {outcome}; state: {state}. See `gpubroker status {details.id}`."


@app.command(epilog=examples("gpubroker approvals revoke 3"))
def revoke(
    context: typer.Context,
    number: Annotated[int, typer.Argument(min=1, help="Number in `gpubroker approvals list`.")],
    as_json: AsJson = False,
) -> None:
    """Revoke a standing grant. Jobs launched under it continue."""
    from broker.app.use_cases.approvals import revoke_grant

    terminal = Terminal.of(context)
    _show_grant(terminal, terminal.ask(revoke_grant, number), "Revoked")


def _create_standing_grant(
    terminal: Terminal, options: StandingOptions, stated: Mapping[str, object], reason: str
) -> None:
    from broker.app.jobs import approvals
    from broker.app.jobs.approval_documents import StandingGrantResult
    from broker.core.values.units import parse_money

    terminal.only_here(stated)
    total, until = options.total, options.until
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
    end = filters.moment_ahead_option("--until", until, broker.clock.now())
    rules, users = tuple(options.rule or ()), tuple(options.for_user or ())
    teams, projects = tuple(options.for_team or ()), tuple(options.for_project or ())
    request = approvals.GrantRequest(amount, end, rules, users, teams, projects, reason)
    standing_grant = approvals.give_standing(broker, request, by=terminal.actor)
    terminal.say(
        *(Text(f"warning: {warning}", style="yellow") for warning in approvals.unknown_grantees(broker, request))
    )
    _show_grant(terminal, StandingGrantResult.of(standing_grant, broker.clock.now()), "Granted")


def _show_grant(terminal: Terminal, grant: StandingGrantResult, verb: str) -> None:
    terminal.result(grant, lambda: [f"{verb}: {standing_sentence(grant)}"])


_STYLES = {
    "waiting": "yellow",
    "approved": "green",
    "refused": "red",
    "expired": "red",
    "withdrawn": "dim",
}


def approval_lines(console: Console, approval_list: ApprovalList) -> Iterator[RenderableType]:
    """The requests, the next command, the standing grants, and the purchases of capacity."""
    yield from _requests(console, approval_list.requests) if approval_list.requests else ["No approval requests."]
    if decidable := next((entry for entry in approval_list.requests if entry.mine), None):
        yield from ("You can decide:", f"  gpubroker approvals grant {decidable.job}    (or refuse)")
    undelivered = [
        notice for entry in approval_list.requests for notice in entry.notices if notice.delivered_at is None
    ]
    yield from (Text(notice_text(notice), style="yellow") for notice in undelivered)
    if approval_list.standing:
        yield from ("", Text("Standing grants", style="bold"), *_standing_grants(console, approval_list.standing))
        yield Text("A standing grant covers its rules at every place and price, up to its total.", style="dim")
    if approval_list.purchases:
        yield from ("", Text("Purchases of capacity", style="bold"))
        for entry in approval_list.purchases:
            missing = formats.plural(max(entry.approvals_missing, 1), "approval")
            given = f"approved by {', '.join(entry.approved_by)}; " if entry.approved_by else ""
            open_text = f"{given}{missing} missing, of {' or '.join(entry.approvers)}"
            yield Text(f"{entry.user} asks to buy {_capacity_text(entry)}; {open_text}")
            yield Text(f"  gpubroker approvals grant {entry.id}", style="dim")


def _requests(console: Console, requests: list[ApprovalRequest]) -> list[RenderableType]:
    def expires(request: ApprovalRequest) -> str:
        return formats.moment(request.expires_at) if request.state in ("waiting", "expired") else ""

    def reason(request: ApprovalRequest) -> str:
        reasons = "; ".join(question.because for question in request.questions)
        return f"{reasons}{f' (“{request.reason}”)' if request.reason else ''}"

    all_wait = all(request.state == "waiting" for request in requests)
    columns: tuple[ValueColumn[ApprovalRequest], ...] = (
        ValueColumn("job", lambda row: row.job),
        ValueColumn("requester", lambda row: row.asked_by, 2),
        ValueColumn("amount", lambda row: formats.money(row.total), align="right"),
        ValueColumn("state", lambda row: Text(row.state.value, style=_STYLES[row.state]), 3 if all_wait else 0),
        ValueColumn("expires", expires, 1),
        ValueColumn("approvers", lambda row: row.decisions, 1),
        ValueColumn("reason", reason, folds=True),
        ValueColumn("covers", lambda row: row.covers, folds=True),
    )
    return table_parts(console, columns, requests, formats.plural(len(requests), "request"))


def _standing_grants(console: Console, grants: list[StandingGrantResult]) -> list[RenderableType]:
    columns: tuple[ValueColumn[StandingGrantResult], ...] = (
        ValueColumn("#", lambda standing_grant: str(standing_grant.number), align="right"),
        ValueColumn("for", _beneficiaries_text, folds=True),
        ValueColumn("by", lambda row: row.by, 1),
        ValueColumn("amount", lambda row: formats.money(row.total), align="right"),
        ValueColumn("left", lambda row: formats.money(row.total - row.used) if row.active else "", align="right"),
        ValueColumn("until", lambda row: "revoked" if row.revoked_at else formats.moment(row.until)),
        ValueColumn("rules", lambda row: ", ".join(row.rules), 2, folds=True),
        ValueColumn("note", lambda row: row.reason, 3, folds=True),
    )
    return table_parts(console, columns, grants)


def _capacity_text(purchase: PurchaseResult) -> str:
    """``2 × p5.48xlarge (H100:8) in us-east-1a, … to …, for at most $900.00``."""
    quote = purchase.quote
    return (
        f"{quote.machines} × {quote.instance_type} ({quote.accelerator}:{quote.count}) in {quote.zone or quote.region},"
        f" {formats.moment(quote.starts)} to {formats.moment(quote.ends)}, for at most "
        f"{purchase.ceiling_usd.rounded(2)}"
    )


def _beneficiaries_text(standing_grant: StandingGrantResult) -> str:
    groups = (("user", standing_grant.users), ("team", standing_grant.teams), ("project", standing_grant.projects))
    return ", ".join(f"{group} {' or '.join(names)}" for group, names in groups if names)


def standing_sentence(standing_grant: StandingGrantResult) -> str:
    """``standing grant 3 for team nlp: $3,000 in total until 2027-01-31 (big-jobs)``."""
    until = formats.moment(standing_grant.until)
    return (
        f"standing grant {standing_grant.number} for {_beneficiaries_text(standing_grant)}: "
        f"{formats.money(standing_grant.total)} in total until {until}"
        f" ({', '.join(standing_grant.rules)})"
    )
