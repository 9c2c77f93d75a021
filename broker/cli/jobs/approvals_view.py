"""Approval requests and standing grants as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.jobs.approvals import ApprovalState, TrackedApproval
from broker.app.results.notices import NoticeResult
from broker.cli.render import formats
from broker.cli.render.tables import Column, fitted
from broker.cli.service import notices_view
from broker.core.policy.approvals import StandingGrant
from broker.core.policy.coverage_words import covered
from broker.procurement.notices import summary

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.core.purchases.purchases import Purchase
    from broker.store.outbox import Dispatch

_STYLES = {
    ApprovalState.WAITING: "yellow",
    ApprovalState.APPROVED: "green",
    ApprovalState.REFUSED: "red",
    ApprovalState.EXPIRED: "red",
    ApprovalState.WITHDRAWN: "dim",
}
_COLUMNS = (
    Column("Job"),
    Column("Requester", rank=2),
    Column("Amount", align="right"),
    Column("State"),
    Column("Expires", rank=1),
    Column("Approvers", rank=1),
    Column("Reason", folds=True),
    Column("Covers", folds=True),
)
_STANDING = (
    Column("#", align="right"),
    Column("For", folds=True),
    Column("By", rank=1),
    Column("Amount", align="right"),
    Column("Left", align="right"),
    Column("Until"),
    Column("Rules", rank=2, folds=True),
    Column("Note", rank=3, folds=True),
)


def listing(
    console: Console,
    found: Sequence[TrackedApproval],
    standing: Sequence[StandingGrant],
    me: str,
    now: datetime,
    told: Mapping[str, Sequence[Dispatch]],
) -> list[RenderableType]:
    """The requests, the standing grants, and the next command. ``told``: notices about each job's request."""
    parts: list[RenderableType] = []
    if found:
        all_wait = all(one.state is ApprovalState.WAITING for one in found)
        columns = [replace(c, rank=3) if all_wait and c.title == "State" else c for c in _COLUMNS]
        parts += fitted(console, columns, [_cells(one, now) for one in found])
    else:
        parts.append("No approval requests.")
    mine = [one for one in found if one.state is ApprovalState.WAITING and one.asked.answerable_by(me, one.view.user)]
    if mine:
        parts.append(f"You can decide: `gpubroker approvals grant {mine[0].view.id}`, or `refuse`.")
    parts += [
        Text(notices_view.dispatch(NoticeResult.of(one)), style="yellow")
        for all_of in told.values()
        for one in all_of
        if one.delivered_at is None
    ]
    if standing:
        parts += ["", Text("Standing grants", style="bold")]
        parts += fitted(console, _STANDING, [_standing_cells(one, now) for one in standing])
        parts.append(Text("A standing grant covers its rules at every place and price, up to its total.", style="dim"))
    return parts


def purchases(asking: Sequence[Purchase]) -> list[RenderableType]:
    """Purchases of capacity that wait for approval: buyer, capacity, and the command to approve."""
    if not asking:
        return []
    lines = []
    for one in asking:
        missing = formats.plural(max(one.approvals_missing, 1), "approval")
        lines.append(Text(f"{one.user} asks to buy {summary(one)}; {missing} missing"))
        lines.append(Text(f"  gpubroker capacity approve {one.id}", style="dim"))
    return ["", Text("Purchases of capacity", style="bold"), *lines]


def _cells(one: TrackedApproval, now: datetime) -> list[str | Text]:
    asked = one.asked
    who = ", ".join(one.decided_by) or asked.whom(one.view.user)
    because = "; ".join(question.because for question in asked.questions)
    expires = formats.moment(asked.expires_at) if one.state in (ApprovalState.WAITING, ApprovalState.EXPIRED) else ""
    return [
        one.view.id,
        asked.by or one.view.user,
        formats.money(asked.total),
        Text(one.state.value, style=_STYLES[one.state]),
        expires,
        who,
        f"{because}{f' (“{one.note}”)' if one.note else ''}",
        covered(asked),
    ]


def _standing_cells(one: StandingGrant, now: datetime) -> list[str | Text]:
    over = "revoked" if one.revoked_at else formats.moment(one.until)
    return [
        str(one.number),
        _whom(one),
        one.by,
        formats.money(one.total),
        formats.money(one.total - one.used) if one.active(now) else "",
        over,
        ", ".join(one.rules),
        one.note,
    ]


def _whom(one: StandingGrant) -> str:
    said = (("user", one.users), ("team", one.teams), ("project", one.projects))
    return ", ".join(f"{word} {' or '.join(names)}" for word, names in said if names)


def standing_sentence(one: StandingGrant) -> str:
    """``standing grant 3 for team nlp: $3,000 in total until 2027-01-31 (big-jobs)``."""
    until = formats.moment(one.until)
    return (
        f"standing grant {one.number} for {_whom(one)}: {formats.money(one.total)} in total until {until}"
        f" ({', '.join(one.rules)})"
    )
