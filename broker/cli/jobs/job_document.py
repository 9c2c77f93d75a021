"""A job in JSON, the same in every command."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from broker.cli.jobs.held_view import shares_json
from broker.cli.jobs.job_view import last_step
from broker.cli.render import reasons
from broker.core.errors import UnreadableJob
from broker.core.events.views import AttemptView, JobView, SavedCheckpoint
from broker.core.market.offers import MoneyKind
from broker.core.policy.approvals import Asked
from broker.core.policy.coverage_words import covered
from broker.core.values.money import Money
from broker.reconciler.progress import billed_time, machine_time, steps_redone

if TYPE_CHECKING:
    from broker.app.jobs.jobs import Bill, Progress


def unreadable(job: UnreadableJob) -> dict[str, Any]:
    """A job that this version cannot read: what is known of it all the same, and why not more."""
    return {
        "id": job.job_id,
        "name": job.name,
        "user": job.user,
        "state": job.state,
        "because": job.because,
        "written_by_newer_version": job.newer,
        "hint": job.hint,
    }


def document(view: JobView, bill: Bill, progress: Progress | None, now: datetime) -> dict[str, Any]:
    """A job in JSON. Amounts by kind of money; ``savings`` only after the job has ended."""
    percent = None
    if bill.savings is not None and bill.on_demand:
        percent = round(100 * bill.savings.micros / bill.on_demand.micros, 1)
    checkpoint = view.checkpoint
    return {
        "id": view.id,
        "name": view.job.name,
        "state": view.state,
        "user": view.user,
        "team": view.job.team,
        "project": view.job.project,
        "workload": view.job.workload,
        "submitted_at": view.submitted_at,
        "ended_at": view.ended_at,
        "closed": view.closed,
        "because": reasons.ended(view.ending),
        "end_reason": view.ending and view.ending.model_dump(mode="json"),
        "waiting_because": reasons.waits(view.waiting),
        "wait_reason": view.waiting and view.waiting.model_dump(mode="json"),
        "asked": _asked(view.asked) if view.asked else None,
        "cancel_requested": view.cancel_requested,
        "deadline": view.deadline,
        "deadline_missed": view.deadline_missed,
        "deadline_at_risk": view.deadline_at_risk,
        "max_cost": view.max_cost,
        "max_duration": view.max_duration,
        "billed_time": billed_time(view, now),
        "step": progress.step if progress and progress.step is not None else last_step(view),
        "total_steps": progress.total if progress else None,
        "phase": progress.phase if progress else None,
        "expected_finish": progress.finish if progress else None,
        "checkpoint": _checkpoint(checkpoint) if checkpoint else None,
        "interruptions": view.interruptions,
        "failures": view.failures,
        "steps_redone": steps_redone(view),
        "attempt_count": view.attempt_count,
        "attempts": [attempt_json(attempt, now) for attempt in view.attempts],
        "cost": _by_kind(bill.spent),
        "held": _by_kind(bill.held),
        "budget_shares": shares_json(bill.shares),
        "cost_so_far": bill.so_far,
        "on_demand_cost": bill.on_demand,
        "savings": bill.savings,
        "savings_percent": percent,
    }


def _asked(asked: Asked) -> dict[str, Any]:
    return {
        "at": asked.at,
        "expires_at": asked.expires_at,
        "approvers": asked.approvers,
        "because": "; ".join(question.because for question in asked.open),
        "total": asked.total,
        "covers": covered(asked),
        "max_cost": asked.max_cost,
        "max_duration": asked.max_duration,
    }


def _by_kind(amounts: Mapping[MoneyKind, Money]) -> dict[str, Money]:
    return {kind.value: amounts.get(kind, Money.ZERO) for kind in MoneyKind}


def _checkpoint(saved: SavedCheckpoint) -> dict[str, Any]:
    return {"id": saved.id, "step": saved.step, "size_bytes": saved.size, "at": saved.at}


def attempt_json(attempt: AttemptView, now: datetime) -> dict[str, Any]:
    """One attempt in JSON."""
    offer = attempt.placement.offer
    return {
        "number": attempt.number,
        "key": attempt.key,
        "state": attempt.state,
        "cause": attempt.cause,
        "evidence": attempt.evidence,
        "exit_status": attempt.exit_status,
        "engine": attempt.engine,
        "placement": {
            "provider": offer.provider,
            "region": offer.region,
            "zone": offer.zone,
            "instance_type": offer.instance_type,
            "accelerator": offer.accelerator,
            "count": offer.count,
            "nodes": attempt.placement.nodes,
            "capacity_type": offer.capacity_type,
            "money": offer.money,
            "rate_per_hour": attempt.placement.rate,
            "price_as_of": offer.as_of,
            "source": offer.source,
            "expected_cost": attempt.placement.expected_cost,
        },
        "requested_at": attempt.requested_at,
        "launched_at": attempt.launched_at,
        "up_since": attempt.up_since,
        "running_at": attempt.running_at,
        "notice_at": attempt.notice_at,
        "ended_at": attempt.ended_at,
        "gone_at": attempt.gone_at,
        "gone": attempt.gone,
        "machine_time": machine_time(attempt, now),
        "resumed_from": attempt.resumed_from,
        "resumed_from_step": attempt.resumed_step,
        "step": attempt.last_step,
        "passed_over": [{"checkpoint": p.checkpoint, "because": p.because} for p in attempt.passed_over],
        "checkpoints": [_checkpoint(saved) for saved in attempt.checkpoints],
    }
