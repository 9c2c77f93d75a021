"""Approval requests, refusals and approvals by standing grants, as events and money. Writers need a transaction."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from broker.core.events import events as ev
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import ApprovalEnded
from broker.core.market.offers import MoneyKind
from broker.core.policy.approvals import (
    RequestedApproval,
    expiry,
    max_run_time,
    questions,
    standing_grant_uses,
    total_of,
)
from broker.core.policy.decisions import Decision
from broker.core.values.money import Money
from broker.ledger.entries import Balance
from broker.reconciler.admission.admission import Admission
from broker.reconciler.settlement.settlement import pending_hold, release, release_of
from broker.store.jobs.journal import StoreWriter

_ASKED_AT = "asked_at"  # in `Decision.seen`


def ask(
    admission: Admission,
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
    open_questions, run_time = questions(admission.verdicts), max_run_time(admission.action)
    return ev.ApprovalAsked(
        by=by,
        approvers=tuple(sorted({name for question in open_questions for name in question.approvers})),
        because="; ".join(question.because for question in open_questions),
        expires_at=expiry(admission.verdicts, now),
        questions=open_questions,
        total=max(total_of(admission.action), max_cost or Money.ZERO),
        held=dict(admission.money),
        gpus=admission.placement.gpus,
        lasts_seconds=None if run_time is None else run_time.total_seconds(),
        extension=extension,
        max_cost=max_cost,
        max_duration_seconds=None if max_duration is None else max_duration.total_seconds(),
    )


def mark_as_request(record: Decision, at: datetime) -> Decision:
    """The record of a request, marked as such, made ``at`` a time (UTC).

    The job may have other judgments at that time.
    """
    return replace(record, seen={**record.seen, _ASKED_AT: _moment(at)})


def is_record_of(record: Decision, request: RequestedApproval) -> bool:
    return record.seen.get(_ASKED_AT) == _moment(request.at)


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()


def approve_by_standing_grants(
    tx: StoreWriter, admission: Admission, job_id: str, *, array: bool = False
) -> list[ev.ApprovalGiven]:
    """The events of approvals by standing grants; a move then needs no new approval. The job's money counts against the
    grants from now on, of an ``array`` judged as a whole all of it."""
    approvals, run_time = [], max_run_time(admission.action)
    looked_at = {verdict.name: verdict.looked_at for verdict in admission.verdicts}
    for number, (by, rules) in standing_grant_uses(admission.verdicts).items():
        tx.use_standing(number, job_id, total_of(admission.action) if array else Money.ZERO)
        approvals.append(
            ev.ApprovalGiven(
                by=by,
                note=f"standing grant {number}",
                rules=rules,
                standing=number,
                total=total_of(admission.action),
                gpus=(admission.action.placement or admission.placement).gpus,
                lasts_seconds=None if run_time is None else run_time.total_seconds(),
                facts={rule: looked_at[rule] for rule in rules},
            )
        )
    return approvals


def refuse(tx: StoreWriter, view: JobView, now: datetime, *, by: str = "", note: str = "") -> JobView:
    """Refuse the pending request (``by`` empty: it expired) and release its hold.

    A job that never ran ends; one that waits for the answer is paused; a running one continues with its previous
    limits.
    """
    assert view.asked is not None, "only what was asked can be refused"
    sums = tx.sums([view.id]).get(view.id, ())
    waits = view.state is JobState.AWAITING_APPROVAL
    tx.post(release(view, sums, now) if waits else release_of(view, sums, view.asked.held, now))
    current = tx.append(view.id, [(None, ev.ApprovalRefused(by=by, note=note))], now)
    if current.attempts or current.state is not JobState.PAUSED_BUDGET:
        return current
    end_event = ev.JobEnded(state=JobState.CANCELLED, reason=ApprovalEnded(by=by, note=note))
    return tx.append(view.id, [(None, end_event)], now)


def usable_balances(view: JobView, balance: Mapping[MoneyKind, Balance]) -> Mapping[MoneyKind, Balance]:
    """The job's balance without holds of pending requests."""
    return {
        kind: replace(kind_balance, held=kind_balance.held - pending_hold(view, kind))
        for kind, kind_balance in balance.items()
    }
