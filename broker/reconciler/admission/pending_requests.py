"""The part of a budget that pending approval requests hold; a refusal for lack of room names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from broker.core.events.views import JobView
from broker.core.policy.policy import Action, Answer, BudgetUse, Facts, OpenAsk
from broker.core.ports import BudgetSpec, PolicySet
from broker.core.values.money import Money
from broker.ledger.journal import OpenHold, Reading


def lacks_room(policy: PolicySet, action: Action, facts: Facts) -> bool:
    """Whether some budget objects to the action."""
    budgets = (rule for rule in policy.rules if rule.kind == "budget")
    return any(rule.judge(action, facts).answer is not Answer.ALLOW for rule in budgets)


def with_asks(
    look: Reading, budgets: Sequence[BudgetSpec], uses: Mapping[str, tuple[BudgetUse, ...]], now: datetime
) -> dict[str, tuple[BudgetUse, ...]]:
    """The states of these budgets, each with the pending requests that hold a part of it."""
    waiting = {view.id: view for view in look.undecided()}
    if not waiting:
        return dict(uses)
    found = {}
    for budget in budgets:
        holds = [hold for hold in look.open_holds(budget) if hold.job_id in waiting]
        found[budget.id] = tuple(replace(use, asks=_asks(use, holds, waiting, now)) for use in uses[budget.id])
    return found


def _asks(
    use: BudgetUse, holds: Sequence[OpenHold], waiting: Mapping[str, JobView], now: datetime
) -> tuple[OpenAsk, ...]:
    found: dict[str, OpenAsk] = {}
    for hold in holds:
        view = waiting[hold.job_id]
        asked = view.asked
        assert asked is not None, "only jobs that wait are looked at"
        # For a job that runs meanwhile, the rest of its hold was approved before.
        amount = min(hold.held, asked.held.get(hold.money, Money.ZERO))
        held = hold.burn.seen(now).last(amount).share((use.period_start, use.period_end))
        if held <= Money.ZERO:
            continue
        if (before := found.get(view.id)) is not None:
            held += before.held
        who = tuple(name for name in asked.approvers if asked.answerable_by(name, view.user)) or asked.approvers
        found[view.id] = OpenAsk(view.id, view.user, who, asked.expires_at, held)
    return tuple(found[job_id] for job_id in waiting if job_id in found)
