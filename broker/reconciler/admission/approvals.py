"""Approval requests, refusals and approvals by standing grants, as events and money. Writers need a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from broker.core.events import events as ev
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import ApprovalEnded
from broker.core.market.offers import MoneyKind
from broker.core.policy.approvals import RequestedApproval, expiry, lasts, questions, standing_used, total_of
from broker.core.policy.decisions import Decision
from broker.core.values.money import Money
from broker.ledger.entries import Balance
from broker.ledger.journal import Writing
from broker.reconciler.admission.admission import Admission
from broker.reconciler.settlement.settlement import release, release_of, waiting

_ASKED_AT = "asked_at"  # in `Decision.seen`


def ask(
    found: Admission,
    now: datetime,
    *,
    by: str = "",
    extension: bool = False,
    max_cost: Money | None = None,
    max_duration: timedelta | None = None,
) -> ev.ApprovalAsked:
    """The approval request to the approvers of the rules. The caller holds `Admission.money` in the same transaction.

    ``extension``: requests higher limits (``max_cost``, ``max_duration``) for a job that continues meanwhile. An
    approval of a limit covers spending up to it.
    """
    asked, longest = questions(found.verdicts), lasts(found.action)
    return ev.ApprovalAsked(
        by=by,
        approvers=tuple(sorted({name for question in asked for name in question.approvers})),
        because="; ".join(question.because for question in asked),
        expires_at=expiry(found.verdicts, now),
        questions=asked,
        total=max(total_of(found.action), max_cost or Money.ZERO),
        held=dict(found.money),
        gpus=found.placement.gpus,
        lasts_seconds=None if longest is None else longest.total_seconds(),
        extension=extension,
        max_cost=max_cost,
        max_duration_seconds=None if max_duration is None else max_duration.total_seconds(),
    )


def of_ask(record: Decision, at: datetime) -> Decision:
    """The record of a request, marked as such, made ``at`` a time (UTC).

    The job may have other judgments at that time.
    """
    return replace(record, seen={**record.seen, _ASKED_AT: _moment(at)})


def is_of(record: Decision, asked: RequestedApproval) -> bool:
    """Whether the record is that of this request."""
    return record.seen.get(_ASKED_AT) == _moment(asked.at)


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()


def through_standing(tx: Writing, found: Admission, job_id: str, *, array: bool = False) -> list[ev.ApprovalGiven]:
    """The events of approvals by standing grants; a move then needs no new approval. The job's money counts against the
    grants from now on, of an ``array`` judged as a whole all of it."""
    given, longest = [], lasts(found.action)
    looked_at = {verdict.name: verdict.looked_at for verdict in found.verdicts}
    for number, (by, rules) in standing_used(found.verdicts).items():
        tx.use_standing(number, job_id, total_of(found.action) if array else Money.ZERO)
        given.append(
            ev.ApprovalGiven(
                by=by,
                note=f"standing grant {number}",
                rules=rules,
                standing=number,
                total=total_of(found.action),
                gpus=(found.action.placement or found.placement).gpus,
                lasts_seconds=None if longest is None else longest.total_seconds(),
                facts={rule: looked_at[rule] for rule in rules},
            )
        )
    return given


def refuse(tx: Writing, view: JobView, now: datetime, *, by: str = "", note: str = "") -> JobView:
    """Refuse the pending request (``by`` empty: it expired) and release its hold.

    A job that never ran ends; one that waits for the answer is paused; a running one continues with its previous
    limits.
    """
    assert view.asked is not None, "only what was asked can be refused"
    sums = tx.sums([view.id]).get(view.id, ())
    waits = view.state is JobState.AWAITING_APPROVAL
    tx.post(release(view, sums, now) if waits else release_of(view, sums, view.asked.held, now))
    after = tx.append(view.id, [(None, ev.ApprovalRefused(by=by, note=note))], now)
    if after.attempts or after.state is not JobState.PAUSED_BUDGET:
        return after
    ended = ev.JobEnded(state=JobState.CANCELLED, reason=ApprovalEnded(by=by, note=note))
    return tx.append(view.id, [(None, ended)], now)


def usable(view: JobView, balance: Mapping[MoneyKind, Balance]) -> Mapping[MoneyKind, Balance]:
    """The job's balance without holds of pending requests."""
    return {kind: replace(one, held=one.held - waiting(view, kind)) for kind, one in balance.items()}
