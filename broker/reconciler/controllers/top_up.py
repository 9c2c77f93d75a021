"""Holds more money for running attempts before their hold is used up.

A hold covers the highest cost known at the start, but spot prices rise, and machines may take long to end. When a hold
nears its end and the job's limits leave it time and money, more is held, in steps, so that no budget is blocked
needlessly. The gate judges each increase like any other expense, and the decision is recorded. If it is still refused
shortly before the money ends, the attempt saves a checkpoint and is stopped, with the rule's objection; the job then
waits for a person (`jobs extend`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.core.errors import BrokerError
from broker.core.events import events as ev
from broker.core.events.events import EventBody
from broker.core.events.outcomes import AttemptState, Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.events.wait_reasons import HoldTrigger, MoreMoneyDenied
from broker.core.job.placements import Plan
from broker.core.market.offers import MoneyKind, Offer
from broker.core.policy.policy import Answer
from broker.core.ports import PolicySet
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.budgets import future_period_edges
from broker.ledger.entries import Balance, Movement, cash_sums
from broker.ledger.holds import STOP_GRACE, burn_of, longest_billing_step
from broker.reconciler.admission.admission import Admission, MoreMoney, judge_continuation
from broker.reconciler.admission.approvals import approve_by_standing_grants, ask, mark_as_request, usable_balances
from broker.reconciler.admission.facts import facts_of
from broker.reconciler.admission.records import decision_of, held_of, hold_entries, movements_of
from broker.reconciler.controller import AtRest, Controller, ControllerResult, DecideAnew, JobContext, KnownMoney
from broker.reconciler.progress import billed_time
from broker.reconciler.settlement.funds import Funds, funds_of
from broker.reconciler.settlement.settlement import SeriesOf, tags_of
from broker.store.jobs.journal import StoreWriter
from broker.store.jobs.reader import StoreReader
from broker.store.store import Store, writing_if

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopUpPace:
    """Intervals of top-ups, in broker time. ``near``: the time before the end of a hold at which more is requested;
    ``step``: for how much longer; ``every``: the interval between checks; ``again``: the time between a refusal and the
    next request; ``last``: a refusal this shortly before the end is final."""

    near: timedelta = timedelta(minutes=15)
    step: timedelta = timedelta(hours=1)
    every: timedelta = timedelta(minutes=1)
    again: timedelta = timedelta(minutes=5)
    last: timedelta = timedelta(minutes=1)

    def scaled(self, factor: float) -> TopUpPace:
        """For a sandbox that runs faster: checks happen in wall-clock time, which the broker time between them must
        allow for.
        """
        return TopUpPace(
            near=max(self.near, timedelta(seconds=15) * factor),
            step=max(self.step, timedelta(seconds=60) * factor),
            every=max(self.every, timedelta(seconds=3) * factor),
            again=max(self.again, timedelta(seconds=10) * factor),
            last=max(self.last, timedelta(seconds=5) * factor),
        )


@dataclass(frozen=True, slots=True)
class Need:
    """A required change of a hold.

    ``amount``: additional money (USD; zero if only the dates change). ``burn``: the whole hold after the change, with
    its dates. ``until``: when the attempt would then have to stop (UTC). ``trigger``: the reason.
    """

    amount: Money
    burn: Burn
    until: datetime
    trigger: HoldTrigger


def need_of(
    view: JobView, funds: Funds, held: Money, committed: Money, billed: timedelta, now: datetime, pace: TopUpPace
) -> Need | None:
    """The change of the hold that an attempt needs now. Pure.

    None if its money lasts long enough, or if its job's limits end first and the hold is not used faster than was
    judged. ``held``: the usable hold of the kind of money that the attempt runs on (USD). ``committed``: the job's
    total spend and holds (USD).
    """
    paid, ends_at = funds.paid_until, now + max(view.max_duration - billed, timedelta(0))
    if paid is None:
        return None
    trigger = _trigger(funds, paid, ends_at, now, pace)
    if trigger is None:
        return None
    since = max(paid, now)
    target = min(since + pace.step, ends_at) if trigger is HoldTrigger.ENDS else min(since, ends_at)
    amount = funds.lacking(target)
    if view.max_cost is not None:
        amount = min(amount, max(view.max_cost - committed, Money.ZERO))
    # Money that the attempt cannot use in its remaining time is released; it gets no new dates.
    funded = replace(funds, left=funds.left + amount)
    total = held + amount - min(funded.to_spare(ends_at), held)
    longest = ends_at - now + longest_billing_step(funds.billing) + STOP_GRACE
    burn = burn_of(total, funds.rate, funds.egress, now, longest)
    until = replace(funded, judged_until=burn.end).paid_until or now
    until = max(since, min(until, ends_at)) if amount else min(until, ends_at)
    if (
        trigger is HoldTrigger.ENDS
        and not amount
        and until - paid <= min(pace.last, max(paid - now, timedelta(0)) / 10)
    ):
        return None
    return Need(amount, burn, until, trigger)


def _trigger(funds: Funds, paid: datetime, ends_at: datetime, now: datetime, pace: TopUpPace) -> HoldTrigger | None:
    judged = funds.judged
    if judged is not None and judged.start - now > pace.last:
        return HoldTrigger.CLOCK_REWIND
    if funds.faster:
        return HoldTrigger.FASTER
    return HoldTrigger.ENDS if paid < ends_at and paid - now <= pace.near else None


class TopUp(Controller):
    """Keeps running attempts funded."""

    def __init__(self, journal: Store, policy: Callable[[], PolicySet], pace: TopUpPace | None = None) -> None:
        self._journal = journal
        self._policy = policy
        self._pace = pace or TopUpPace()

    def goes_by(self, about: JobContext) -> bool | None:
        """Whether the machine is up; None if the attempt does not run on money that may end."""
        attempt = about.view.latest
        if attempt is None or not _needs_funding(about.view, attempt):
            return None
        return attempt.up_since is not None

    def reconcile(self, about: JobContext) -> ControllerResult:
        view, attempt, now = about.view, about.view.latest, about.now
        assert attempt is not None, "a job without an attempt gets no such step"
        money = about.known  # perhaps outdated: `_judge` reads it again in its transaction
        if money is None:
            with self._journal.reading() as snapshot:
                money = _read_money(snapshot, view)
        funds = self._funds(money, self._price_series, view, attempt, now)
        need = self._need(money, view, attempt, funds, now)
        last = (funds.within_judgement or now) - self._pace.last
        wait = self._pace.every if need is None else self._pace.again
        again_at = min(now + wait, last) if last > now else now + self._pace.every
        if need is None:
            return AtRest(again_at)
        try:
            return self._judge(view, attempt, now, again_at)
        except BrokerError as error:
            log.warning("job %s: the money held for it ends soon, and more is refused for now: %s", view.id, error)
            return AtRest(again_at)

    def _need(self, money: KnownMoney, view: JobView, attempt: AttemptView, funds: Funds, now: datetime) -> Need | None:
        committed = sum(cash_sums(money.balances), Money.ZERO)
        held = usable_balances(view, money.balances).get(attempt.placement.money, Balance()).held
        return need_of(view, funds, held, committed, billed_time(view, now), now, self._pace)

    def _funds(
        self, money: KnownMoney, series_of: SeriesOf, view: JobView, attempt: AttemptView, now: datetime
    ) -> Funds:
        """The attempt's funds by these records."""
        kind = attempt.placement.money
        judged = money.balances.get(kind, Balance()).burn

        def edges() -> tuple[datetime, ...]:
            try:
                return future_period_edges(self._policy().budgets(view.job, view.user), kind, now)
            except BrokerError:
                return ()  # nothing can be judged for now

        return funds_of(view, attempt, money.sums, series_of, now, money.meters, judged, edges)

    def _price_series(self, offer: Offer, start: datetime, end: datetime) -> Sequence[tuple[datetime, Money]]:
        with self._journal.reading() as snapshot:
            return snapshot.price_series(offer, start, end)

    def _judge(self, view: JobView, attempt: AttemptView, now: datetime, again_at: datetime) -> ControllerResult:
        policy = self._policy()
        with writing_if(self._journal, view) as tx:
            if self._policy().version != policy.version:
                return DecideAnew()
            money = _read_money(tx, view)
            funds = self._funds(money, tx.price_series, view, attempt, now)
            need = self._need(money, view, attempt, funds, now)
            if need is None:
                return AtRest(again_at)
            facts_for, usable_balance = facts_of(tx, policy, now), usable_balances(view, money.balances)
            admission = judge_continuation(
                view, attempt, MoreMoney(need.amount, need.burn, funds.rate), policy, facts_for, usable_balance,
                billed=billed_time(view, now), now=now,
            )  # fmt: skip
            plan = Plan(now, (admission.placement,), (), 1, None, view.deadline)
            record = decision_of(admission, plan, policy, facts_for(admission.action))
            items = self._apply_verdict(tx, view, attempt, admission, need, funds, now)
            if any(isinstance(body, ev.ApprovalAsked) for _, body in items):
                record = mark_as_request(record, now)
            tx.record(replace(record, job_id=view.id, attempt=attempt.number))
            if items:
                tx.append(view.id, items, now)
        return DecideAnew(again_at) if items else AtRest(again_at)

    def _apply_verdict(
        self,
        tx: StoreWriter,
        view: JobView,
        attempt: AttemptView,
        admission: Admission,
        need: Need,
        funds: Funds,
        now: datetime,
    ) -> list[tuple[int | None, EventBody]]:
        """Post the entries of the hold, and return the events that follow from the verdict."""
        number, held = attempt.number, held_of(usable_balances(view, tx.balance(view.id)))
        hold = hold_entries(tags_of(view), held, admission.burns, Movement.TOP_UP, movements_of(tx, view.id))
        if admission.answer is Answer.ALLOW:
            tx.post(hold)
            approvals = [(None, approval) for approval in approve_by_standing_grants(tx, admission, view.id)]
            if need.amount:
                return [*approvals, (number, ev.ToppedUp(amount=need.amount, until=need.until))]
            if need.trigger is not HoldTrigger.ENDS:
                log.warning(
                    "job %s: %s; %s is held for it until %s now", view.id, need.trigger, need.burn.amount, need.burn.end
                )
            date_event = ev.HoldDated(
                amount=need.burn.amount, rate=need.burn.rate, until=need.until, trigger=need.trigger
            )
            return [*approvals, (number, date_event)]
        if admission.answer is Answer.ASK and not _was_refused(tx, view, attempt):
            if need.amount:
                tx.post(hold)
            return [(None, ask(admission, now, extension=True))]
        if (funds.within_judgement or now) - now > self._pace.last:
            return []  # there is time to ask again
        denied = MoreMoneyDenied(
            trigger=need.trigger,
            paid_until=funds.paid_until or now,
            objections=tuple(verdict.objection for verdict in admission.objections),
        )
        return [(number, ev.StopRequested(cause=Cause.MONEY_REFUSED, by="the policy", reason=denied))]


def _read_money(snapshot: StoreReader, view: JobView) -> KnownMoney:
    ids = [view.id]
    return KnownMoney(
        snapshot.sums(ids).get(view.id, ()), snapshot.meters(ids).get(view.id, {}), snapshot.balance(view.id)
    )


def _needs_funding(view: JobView, attempt: AttemptView) -> bool:
    """Whether it runs on money that may end, and neither an approval request nor a stop is pending. Not while another
    attempt stands by: the money for both was judged for that time."""
    is_launched = not attempt.state.final and attempt.state is not AttemptState.REQUESTED
    is_stopping = attempt.stop_requested is not None or view.cancel_requested or view.standby is not None
    return is_launched and not is_stopping and view.asked is None and attempt.placement.money is not MoneyKind.AMORTISED


def _was_refused(snapshot: StoreReader, view: JobView, attempt: AttemptView) -> bool:
    """Whether a request for more money for this attempt was rejected or expired; it is not repeated."""
    approvals = snapshot.approval_events([view.id]).get(view.id, ())
    refused = (event.at for event in approvals if isinstance(event.body, ev.ApprovalRefused))
    return any(at >= attempt.requested_at for at in refused)
