"""More money for what runs, before what is held for it is used up.

A hold is for the dearest that a job may come to as far as was known at its start; spot prices rise, machines linger. So
what runs is looked after: when its money nears its end while its own limits leave it time and money, more is held, in
steps, so that no budget lies idle. The same gate judges that as everything else that costs money, and the decision is
kept. Where it is refused to the last, the attempt is told to stop a little before its money ends, checkpoint first,
with the rule's words; the job waits for a person then (`jobs extend`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.core import events as ev
from broker.core.errors import BrokerError
from broker.core.events import EventBody
from broker.core.money import Money
from broker.core.offers import MoneyKind
from broker.core.outcomes import AttemptState, Cause
from broker.core.placements import Plan
from broker.core.policy import Answer
from broker.core.ports import PolicySet
from broker.core.views import AttemptView, JobView
from broker.launch.admission import Admission, facts_of, keep_going
from broker.launch.approvals import ask, of_ask, through_standing
from broker.launch.journal import Journal, Reading, Writing
from broker.launch.placing import decision_of, hold_entries
from broker.launch.progress import billed_time
from broker.launch.settlement import Funds, funds_of, tags_of
from broker.ledger.entries import Movement

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How money is looked after, in the broker's time. ``near``: so long before its end more is asked for; ``step``:
    for so much longer; ``every``: so often it is looked at; ``again``: so long after a refusal it is asked for again;
    ``last``: what is refused so shortly before the end is refused for good."""

    near: timedelta = timedelta(minutes=15)
    step: timedelta = timedelta(hours=1)
    every: timedelta = timedelta(minutes=1)
    again: timedelta = timedelta(minutes=5)
    last: timedelta = timedelta(minutes=1)

    def scaled(self, factor: float) -> Pace:
        """For a sandbox that runs faster: looks are made in wall-clock time, and must not come too late."""
        return Pace(
            near=max(self.near, timedelta(seconds=15) * factor),
            step=max(self.step, timedelta(seconds=60) * factor),
            every=max(self.every, timedelta(seconds=3) * factor),
            again=max(self.again, timedelta(seconds=10) * factor),
            last=max(self.last, timedelta(seconds=5) * factor),
        )


@dataclass(frozen=True, slots=True)
class Need:
    """What should be held beside (USD), and the time that it is for (UTC)."""

    amount: Money
    window: tuple[datetime, datetime]


def need_of(view: JobView, funds: Funds, committed: Money, billed: timedelta, now: datetime, pace: Pace) -> Need | None:
    """What an attempt needs now to go on for another step; None where its money is not near its end, or the job's own
    limits are. ``committed``: what the job has spent and holds (USD). Pure."""
    paid, ends_at = funds.paid_until, now + max(view.max_duration - billed, timedelta(0))
    if paid is None or paid >= ends_at or paid - now > pace.near:
        return None
    since = max(paid, now)
    amount = funds.lacking(min(since + pace.step, ends_at))
    if view.max_cost is not None:
        amount = min(amount, max(view.max_cost - committed, Money.ZERO))
    until = replace(funds, left=funds.left + amount).paid_until
    return Need(amount, (since, max(since, min(until or ends_at, ends_at)))) if amount else None


class TopUp:
    """The reconciler's judge of money that nears its end, beside `enforcement.Enforcement`."""

    def __init__(
        self, journal: Journal, policy: Callable[[], PolicySet], now: Callable[[], datetime], pace: Pace | None = None
    ) -> None:
        self._journal = journal
        self._policy = policy
        self._now = now
        self._pace = pace or Pace()
        self._next: dict[str, datetime] = {}

    def __call__(self, view: JobView) -> bool:
        """Look after the money of what runs, if it is time; whether the job's stream changed."""
        attempt, now = view.latest, self._now()
        if attempt is None or not _lives_on_money(view, attempt):
            self._next.pop(view.id, None)
            return False
        if now < self._next.get(view.id, now):
            return False
        with self._journal.reading() as look:
            funds = funds_of(view, attempt, look.entries(view.id), look.price_series, now)
            need = self._need(look, view, funds, now)
        paid, pace = funds.paid_until or now, self._pace
        if need is None:
            self._next[view.id] = now + pace.every
            return False
        self._next[view.id] = min(now + pace.again, paid - pace.last) if paid - pace.last > now else now + pace.every
        try:
            return self._judge(view, attempt, now)
        except BrokerError as error:
            log.warning("job %s: its money nears its end, and more cannot be had for now: %s", view.id, error)
            return False

    def _need(self, look: Reading, view: JobView, funds: Funds, now: datetime) -> Need | None:
        mine = [b for kind, b in look.balance(view.id).items() if kind is not MoneyKind.AMORTISED]
        committed = sum((b.spent + b.held for b in mine), Money.ZERO)
        return need_of(view, funds, committed, billed_time(view, now), now, self._pace)

    def _judge(self, view: JobView, attempt: AttemptView, now: datetime) -> bool:
        policy = self._policy()
        with self._journal.writing() as tx:
            current = tx.job(view.id)
            if current is None or current.seq != view.seq or self._policy().version != policy.version:
                self._next.pop(view.id, None)
                return True  # look again
            funds = funds_of(view, attempt, tx.entries(view.id), tx.price_series, now)
            need = self._need(tx, view, funds, now)
            if need is None:
                return False
            facts_for, balance = facts_of(tx, policy, now), tx.balance(view.id)
            found = keep_going(
                view, attempt, need.amount, need.window, policy, facts_for, balance,
                rate=funds.rate, billed=billed_time(view, now), now=now,
            )  # fmt: skip
            here = Plan(now, (found.placement,), (), 1, None, view.deadline)
            record = decision_of(found, here, policy, facts_for(found.action))
            items = self._follows(tx, view, attempt, found, funds, now)
            if any(isinstance(body, ev.ApprovalAsked) for _, body in items):
                record = of_ask(record, now)
            tx.record(replace(record, job_id=view.id, attempt=attempt.number))
            if items:
                tx.append(view.id, items, now)
        return bool(items)

    def _follows(
        self, tx: Writing, view: JobView, attempt: AttemptView, found: Admission, funds: Funds, now: datetime
    ) -> list[tuple[int | None, EventBody]]:
        """What the answer means; the money is held here."""
        number, paid = attempt.number, funds.paid_until or now
        if found.answer is Answer.ALLOW:
            tx.post(hold_entries(tags_of(view), found.money, Movement.TOP_UP, view.seq + 1, found.window))
            given = [(None, one) for one in through_standing(tx, found, view.id)]
            amount = sum(found.money.values(), Money.ZERO)
            return [*given, (number, ev.ToppedUp(amount=amount, until=found.window[1]))]
        if found.answer is Answer.ASK and not _was_refused(tx, view, attempt):
            tx.post(hold_entries(tags_of(view), found.money, Movement.TOP_UP, view.seq + 1, found.window))
            return [(None, ask(found, now, extension=True))]
        if paid - now > self._pace.last:
            return []  # there is time to ask again
        said = "; ".join(f"{verdict.message} ({verdict.source})" for verdict in found.objections)
        why = f"the money held for it ends at {paid:%Y-%m-%d %H:%M} UTC, and more was refused: {said}"
        return [(number, ev.StopRequested(cause=Cause.PAID_UNTIL, by="the policy", why=why))]


def _lives_on_money(view: JobView, attempt: AttemptView) -> bool:
    """Whether it runs on money that may end, and nobody is asked about it or told it to stop already."""
    runs = not attempt.state.final and attempt.state is not AttemptState.REQUESTED
    told = attempt.stop_requested is not None or view.cancel_requested
    return runs and not told and view.asked is None and attempt.placement.money is not MoneyKind.AMORTISED


def _was_refused(look: Reading, view: JobView, attempt: AttemptView) -> bool:
    """Whether people said no, or nothing, to more for this attempt: they are not asked again."""
    refused = (one.at for one in look.events(view.id) if isinstance(one.body, ev.ApprovalRefused))
    return any(at >= attempt.requested_at for at in refused)
