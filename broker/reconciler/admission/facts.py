"""The facts for the rules, from one snapshot of the store, each read only if a rule needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from broker.core.market.offers import Offer
from broker.core.policy.approvals import StandingGrant
from broker.core.policy.policy import Action, BudgetUse, CapacityInHand, Facts, Grant, LiveAttempt
from broker.core.ports import PolicySet
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.budgets import Window, budget_uses, periods_span, told_as_one_until
from broker.ledger.journal import Reading
from broker.placement.wait_for_reserved import PAID
from broker.reconciler.admission.full_budgets import (
    held_behind,
    lacks_room,
    waits_with_money,
    with_asks,
    with_behind,
)

FactsFor = Callable[[Action], Facts]


def facts_of(
    look: Reading, policy: PolicySet, now: datetime, occupied: Sequence[LiveAttempt] | None = None
) -> FactsFor:
    """The facts for rules, from this snapshot of the store: running attempts, each budget in the periods of an action's
    money, approvals, and capacity in hand. Each is read at most once, however many placements, or windows in the same
    periods, are judged; budgets only if an amount is requested, pending approval requests only if a budget lacks room
    for it, capacity in hand only if a rule needs it. ``occupied``: the running attempts, if read already."""
    grants_for = grants_of(look, policy, now)
    live = [] if occupied is None else [tuple(occupied)]
    uses: dict[tuple[str, Window], tuple[BudgetUse, ...]] = {}
    in_hand: list[Mapping[str, CapacityInHand]] = []
    asks_known: set[tuple[str, Window]] = set()
    in_line: dict[tuple[str, str | None], Sequence[Burn]] = {}  # by budget and job
    last: list[tuple[Action, Facts]] = []  # asked again when the decision is recorded

    def facts_for(action: Action) -> Facts:
        if not last or last[0][0] is not action:
            last[:] = [(action, facts_of_action(action))]
        return last[0][1]

    def facts_of_action(action: Action) -> Facts:
        window = action.covers or (now, now)
        if not live:
            live.append(tuple(look.live_attempts()))
        budgets = policy.budgets(action.job, action.user) if action.hold is not None else ()
        reads = {budget.id: (budget.id, periods_span(budget, window)) for budget in budgets}
        for budget in budgets:
            if reads[budget.id] not in uses:
                held = look.held(budget, told_as_one_until(budget, now))
                spent, until = partial(look.spent, budget), partial(look.spent_until, budget)
                uses[reads[budget.id]] = budget_uses(budget, window, now, spent, held, until)
        if policy.needs_holdings and not in_hand:
            in_hand.append(look.in_hand(now))
        budgets_of = {b.id: uses[reads[b.id]] for b in budgets}
        facts = Facts(now, live[0], budgets_of, grants_for(action), in_hand=in_hand[0] if in_hand else {})
        unread = [b for b in budgets if reads[b.id] not in asks_known]
        waits = waits_with_money(action)
        if not (unread or waits) or not lacks_room(policy, action, facts):
            return facts
        fuller = with_asks(look, unread, facts.budgets, now)
        asks_known.update(reads[b.id] for b in unread)
        uses.update((reads[b.id], fuller[b.id]) for b in unread)
        known = {**facts.budgets, **fuller}
        if not waits:
            return replace(facts, budgets=known)
        for budget in budgets:
            if (budget.id, action.job_id) not in in_line:
                in_line[budget.id, action.job_id] = held_behind(look, budget, action, now)
        return replace(facts, budgets=with_behind(known, {b.id: in_line[b.id, action.job_id] for b in budgets}))

    return facts_for


def occupied_in(look: Reading, policy: PolicySet, offers: Iterable[Offer]) -> Sequence[LiveAttempt]:
    """The running attempts, for a plan over these offers. Read only if a rule or an offer depends on them."""
    matters = policy.counts_live or any(one.slots is not None or one.capacity_type in PAID for one in offers)
    return look.live_attempts() if matters else ()


def grants_of(look: Reading, policy: PolicySet, now: datetime) -> Callable[[Action], tuple[Grant, ...]]:
    """Returns the approvals that may apply to an action: its job's and standing ones. They are read once, and only if
    some rule requires approvals."""
    standing: list[Sequence[StandingGrant]] = []
    known: dict[str | None, tuple[Grant, ...]] = {}

    def grants_for(action: Action) -> tuple[Grant, ...]:
        if not policy.asks:
            return ()
        if action.job_id not in known:
            if not standing:
                standing.append(list(look.standing_grants(now)))
            view = look.job(action.job_id) if action.job_id else None
            ahead = [
                one.grant(look.standing_share(one.number, action.job_id) if action.job_id else Money.ZERO)
                for one in standing[0]
                if one.is_for(action)
            ]
            known[action.job_id] = (*(view.grants if view else ()), *ahead)
        return known[action.job_id]

    return grants_for
