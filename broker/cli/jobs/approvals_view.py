"""Approval requests and standing grants as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.jobs.approvals import ApprovalState
from broker.app.results.approvals import ApprovalList, ApprovalRequest, StandingGrantResult
from broker.app.results.purchases import PurchaseResult
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed
from broker.cli.service import notices_view

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_STYLES = {
    ApprovalState.WAITING: "yellow",
    ApprovalState.APPROVED: "green",
    ApprovalState.REFUSED: "red",
    ApprovalState.EXPIRED: "red",
    ApprovalState.WITHDRAWN: "dim",
}


def listing(console: Console, found: ApprovalList) -> Iterator[RenderableType]:
    """The requests, the next command, the standing grants, and the purchases of capacity."""
    yield from _requests(console, found.requests) if found.requests else ["No approval requests."]
    if mine := next((one for one in found.requests if one.mine), None):
        yield from ("You can decide:", f"  gpubroker approvals grant {mine.job}    (or refuse)")
    notices = [notice for one in found.requests for notice in one.notices if notice.delivered_at is None]
    yield from (Text(notices_view.dispatch(one), style="yellow") for one in notices)
    if found.standing:
        yield from ("", Text("Standing grants", style="bold"), *_standing(console, found.standing))
        yield Text("A standing grant covers its rules at every place and price, up to its total.", style="dim")
    if found.purchases:
        yield from ("", Text("Purchases of capacity", style="bold"))
        for one in found.purchases:
            missing = formats.plural(max(one.approvals_missing, 1), "approval")
            yield Text(f"{one.user} asks to buy {_capacity(one)}; {missing} missing")
            yield Text(f"  gpubroker capacity grant {one.id}", style="dim")


def _requests(console: Console, found: list[ApprovalRequest]) -> list[RenderableType]:
    def expires(one: ApprovalRequest) -> str:
        return formats.moment(one.expires_at) if one.state in (ApprovalState.WAITING, ApprovalState.EXPIRED) else ""

    def reason(one: ApprovalRequest) -> str:
        because = "; ".join(question.because for question in one.questions)
        return f"{because}{f' (“{one.reason}”)' if one.reason else ''}"

    all_wait = all(one.state is ApprovalState.WAITING for one in found)
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


def _standing(console: Console, found: list[StandingGrantResult]) -> list[RenderableType]:
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
