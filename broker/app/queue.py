"""The queue as it stands: who waits for a machine, what each would get, when, and for how much. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.app.market import market_for, query_for
from broker.app.pace import paces_for
from broker.app.wiring import Broker
from broker.core.offers import OfferQuery
from broker.core.policy import Action, ActionKind
from broker.core.views import JobView
from broker.launch.admission import denials, facts_of
from broker.launch.placing import Market
from broker.launch.progress import billed_time, remaining_work
from broker.launch.turns import running_by_team, waits
from broker.placement.board import Board
from broker.placement.lineup import entry_of
from broker.placement.queue import Free, Rules, Turn, place

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in the queue and its turn; times UTC, None where nothing can serve it."""

    view: JobView
    turn: Turn
    start: datetime | None
    finish: datetime | None


@dataclass(frozen=True, slots=True)
class Queue:
    """Who waits, in turn. ``running``: how many jobs have a machine now."""

    now: datetime
    waiting: tuple[Waiting, ...]
    running: int


def queue(broker: Broker) -> Queue:
    """The queue placed together: priorities, deadlines, fairness between teams and gangs kept.

    What runs is taken to give its machines back when its plan says, or when its time is up.
    """
    now, policy = broker.clock.now(), broker.policy()
    with broker.store.reading() as look:
        views = look.unclosed()
        facts_for = facts_of(look, policy, now)
        mine = {view.id: view for view in views if waits(view)}
        facts = {view.id: facts_for(_action(view, now)) for view in mine.values()}
    returns = _returns(views, now)
    boards: dict[OfferQuery, tuple[Market, Board]] = {}
    free: dict[str, Free] = {}
    entries = []
    for view in mine.values():
        query = query_for(view.job)
        if query not in boards:
            market = market_for(broker, view.job)
            boards[query] = market, Board.of(market.offers, market.conditions.hazard)
            for offer in market.offers:
                if offer.slots is not None:
                    busy = returns.get(offer.pool, [])
                    ours = sum(nodes for _, nodes in busy)
                    free[offer.pool] = Free.of(max(offer.slots - ours, 0), busy)
        market, board = boards[query]
        entries.append(
            entry_of(
                view.id,
                view.job,
                board,
                now=now,
                submitted_at=view.submitted_at,
                conditions=replace(market.conditions, paces=paces_for(broker, view.job)),
                remaining=remaining_work(view),
                deny=denials(policy, _action(view, now), facts[view.id]),
            )
        )
    running = running_by_team(views)
    turns = place(entries, free, Rules(running=running))
    return Queue(now, tuple(_waiting(mine[turn.entry.id], turn, now) for turn in turns), running.total())


def _waiting(view: JobView, turn: Turn, now: datetime) -> Waiting:
    if turn.option is None:
        return Waiting(view, turn, None, None)
    start = now + timedelta(hours=turn.start)
    return Waiting(view, turn, start, start + timedelta(hours=min(turn.option.hours, 1e6)))


def _action(view: JobView, now: datetime) -> Action:
    return Action(
        ActionKind.RE_PLACE,
        view.job,
        view.user,
        job_id=view.id,
        elapsed=billed_time(view, now),
        submitted_at=view.submitted_at,
        attempts=len(view.attempts),
    )


def _returns(views: Sequence[JobView], now: datetime) -> dict[str, list[tuple[float, int]]]:
    """By pool: when our own machines come back, in hours from now, and how many."""
    found: dict[str, list[tuple[float, int]]] = {}
    for view in views:
        for attempt in view.attempts:
            if attempt.over:
                continue
            expected = attempt.placement.finish or now + view.max_duration - billed_time(view, now)
            hours = max((expected - now) / _HOUR, 0.1)  # what is overdue may end at any moment
            found.setdefault(attempt.placement.offer.pool, []).append((hours, attempt.placement.nodes))
    return found
