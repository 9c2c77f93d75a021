"""Who holds the money of a budget that lacks room: pending approval requests, which a refusal names, and jobs that wait
behind the judged one, whose holds do not prevent its start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from broker.core.events.views import JobView
from broker.core.policy.policy import Action, ActionKind, Answer, BudgetUse, Facts, OpenAsk
from broker.core.ports import BudgetSpec, PolicySet
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.budgets import held_in, told_as_one_until
from broker.ledger.journal import OpenHold, Reading


def lacks_room(policy: PolicySet, action: Action, facts: Facts) -> bool:
    """Whether some budget objects to the action."""
    budgets = (rule for rule in policy.rules if rule.kind == "budget")
    return any(rule.judge(action, facts).answer is not Answer.ALLOW for rule in budgets)


def with_asks(
    look: Reading, budgets: Sequence[BudgetSpec], uses: Mapping[str, tuple[BudgetUse, ...]], now: datetime
) -> dict[str, tuple[BudgetUse, ...]]:
    """The states of these budgets, each with the pending requests that hold a part of it."""
    waiting = {view.id: view for view in look.undecided()} if budgets else {}
    if not waiting:
        return dict(uses)
    found = {}
    for budget in budgets:
        holds = [hold for hold in look.open_holds(budget) if hold.job_id in waiting]
        found[budget.id] = tuple(replace(use, asks=_asks(use, holds, waiting, now)) for use in uses[budget.id])
    return found


def waits_with_money(action: Action) -> bool:
    """Whether this is the start of an admitted job whose hold suffices, or the check right before its launch.

    Jobs that wait past the end of a budget period take their holds into the next period. There, their sum may exceed
    the amount, as it may after an owner lowered the amount. So such a start is judged without the holds of the jobs
    that wait behind it, in the order of submission; each of those is judged at its own start. The date of a hold gives
    no such order: each start gives the hold a new date, so a job would be behind all others once its launch failed.
    """
    return action.kind is ActionKind.RE_PLACE and action.submitted_at is not None and bool(action.own)


def held_behind(look: Reading, budget: BudgetSpec, action: Action, now: datetime) -> list[Burn]:
    """The holds under the budget, from ``now`` on, of jobs that wait behind the judged one."""
    assert action.submitted_at is not None, "only starts of jobs on record are in line"
    until = told_as_one_until(budget, now)
    return [burn.seen(now) for burn in look.held_behind(budget, action.job_id or "", action.submitted_at, until)]


def with_behind(
    uses: Mapping[str, tuple[BudgetUse, ...]], behind: Mapping[str, Sequence[Burn]]
) -> dict[str, tuple[BudgetUse, ...]]:
    """The states of budgets, each with the holds under it of jobs that wait behind the judged one."""
    return {
        name: tuple(replace(use, behind=held_in((use.period_start, use.period_end), behind[name])) for use in periods)
        for name, periods in uses.items()
    }


def _asks(
    use: BudgetUse, holds: Sequence[OpenHold], waiting: Mapping[str, JobView], now: datetime
) -> tuple[OpenAsk, ...]:
    found: dict[str, OpenAsk] = {}
    for hold in holds:
        view = waiting[hold.job_id]
        asked = view.asked
        assert asked is not None, "only jobs that wait are looked at"
        # If the job runs while it waits for the answer, the rest of its hold was approved earlier.
        amount = min(hold.held, asked.held.get(hold.money, Money.ZERO))
        held = hold.burn.seen(now).last(amount).share((use.period_start, use.period_end))
        if held <= Money.ZERO:
            continue
        if (before := found.get(view.id)) is not None:
            held += before.held
        who = tuple(name for name in asked.approvers if asked.answerable_by(name, view.user)) or asked.approvers
        found[view.id] = OpenAsk(view.id, view.user, who, asked.expires_at, held)
    return tuple(found[job_id] for job_id in waiting if job_id in found)
