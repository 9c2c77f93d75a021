"""Requests a job's next attempt: current offers, a plan, the gate, then money and intent in one transaction."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from broker.core.events import events as ev
from broker.core.events import wait_reasons as why
from broker.core.events.events import Event, EventBody
from broker.core.events.lifecycle import advance
from broker.core.events.outcomes import AttemptState, Cause, JobState
from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement, Plan
from broker.core.job.reasons import Reason
from broker.core.market.offers import Offer
from broker.core.policy.policy import Action, ActionKind, Answer, Facts
from broker.core.ports import PolicySet
from broker.core.values.figures import estimate
from broker.placement.planner import MarketFor, PlanInputs, make_plan
from broker.placement.queue.preemption import Preemption
from broker.placement.wait_for_reserved import WaitForReserved
from broker.reconciler.admission.admission import action_for, denials, is_still_free, subtract_occupied
from broker.reconciler.admission.approvals import approve_by_standing_grants, ask, mark_as_request
from broker.reconciler.admission.facts import facts_of, wait_for_paid
from broker.reconciler.admission.records import judge_start, launch_request, nothing_fits, refusal_of, waits_for_paid
from broker.reconciler.controller import (
    Controller,
    ControllerResult,
    DecideAnew,
    JobContext,
    NextLook,
    RetryReason,
    TryLater,
    note_wait,
)
from broker.reconciler.pools import avoided_pools, may_stand_by, permanent_refusal, untried_first
from broker.reconciler.progress import billed_time, remaining_work
from broker.store.store import Store, append_if, writing_if

_STARTS_ALLOWED = 2
"""A standby that is not ready after this multiple of the expected start, or of the job's last one, is dropped."""


@dataclass(frozen=True, slots=True)
class QueueDecision:
    """The queue's result for a job.

    ``first``: the offer reserved for it now. ``taken``: limited pools whose free machines are reserved for others.
    ``wait``: why it should wait for its turn; None if it should be placed now. ``preemption``: the places of running
    jobs that it could take instead.
    """

    first: str | None = None
    taken: frozenset[str] = frozenset()
    wait: why.QueueTurn | None = None
    preemption: Preemption | None = None


@dataclass(frozen=True, slots=True)
class PlacementAdvice:
    """The strategy's advice: placements in the order to try, and the reason.

    Without placements, the job waits for ``pool`` (empty: for no particular one).
    """

    placements: tuple[Placement, ...]
    why: str
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Plans:
    """The plans possible now: ``in_time`` meets the deadline, ``anyhow`` ignores it; both are the same without a
    deadline. ``facts``: the inputs of the policies. ``over`` makes a plan over other offers. ``overlap``: whether the
    job may have two machines now while it moves.
    """

    market: PlanInputs
    in_time: Plan
    anyhow: Plan
    facts: Facts
    over: Callable[[Sequence[Offer]], Plan]
    overlap: bool = False


Advise = Callable[[JobView, Plans, datetime], PlacementAdvice | None]
"""Returns the strategy's advice; None to keep the plan's ranking."""


@dataclass(eq=False)
class PlacementController(Controller):
    """Places jobs. ``missing_secrets``: returns a job's secrets that this process lacks. ``queue_decision``: returns
    the queue's result for a job. ``refused``: called with each job that the gate refused."""

    journal: Store
    market: MarketFor
    policy: Callable[[], PolicySet]
    missing_secrets: Callable[[Job], Sequence[str]] = lambda job: ()
    advise: Advise = lambda view, plans, now: None
    queue_decision: Callable[[JobView, datetime], QueueDecision] = lambda view, now: QueueDecision()
    refused: Callable[[JobView], None] = lambda view: None

    def goes_by(self, about: JobContext) -> bool:
        """Constant: each search for a place computes a plan, so new events of the job alone do not trigger one."""
        return True

    def reconcile(self, about: JobContext) -> ControllerResult:
        """Request the job's next attempt, pause it, or note why it must wait.

        Raises `RetryLater` if offers are unavailable for now, `InvalidInput` if no policy can be read,
        `NoLongerCurrent`.
        """
        view, now = about.view, about.now
        if missing := self.missing_secrets(view.job):
            note_wait(self.journal, view, why.SecretsMissing(names=tuple(missing)), now)
            return TryLater(RetryReason.NO_PLACE)
        policy, queued = self.policy(), self.queue_decision(view, now)
        if queued.wait is not None:
            places = queued.preemption
            if places is None or not places.pays or not self._make_room(view, policy, places, now):
                note_wait(self.journal, view, queued.wait, now)
            return TryLater(RetryReason.NO_PLACE) if queued.wait.pool else NextLook()  # its turn comes within a tick
        return DecideAnew() if self._place(view, policy, queued, now) else TryLater(RetryReason.NO_PLACE)

    def _place(self, view: JobView, policy: PolicySet, queued: QueueDecision, now: datetime) -> bool:
        """Place the job.

        Returns whether to decide its next step again at once; recording a reason alone does not require it.
        """
        plans = self.plans(view, policy, now, queued.taken)
        market = plans.market
        advice = _reserved_first(queued, plans) or self.advise(view, plans, now)
        if advice is not None and not advice.placements:
            return note_wait(self.journal, view, why.StrategyWaits(pool=advice.pool, because=advice.why), now)
        plan, at_risk = _plan_ignoring_deadline(view, plans)
        ordered = advice.placements if advice is not None else untried_first(plan.placements, view)
        plan = replace(plan, placements=ordered)
        if not plan.placements and (refused := permanent_refusal(view, plan.rejections)) is not None:
            append_if(self.journal, view, [(None, ev.JobEnded(state=JobState.FAILED, reason=refused))], now)
            return True
        if not plan.placements:
            return note_wait(self.journal, view, nothing_fits(plan.rejections), now)
        if (paid_wait := self._waits(view, plans, plan, policy, now)) is not None:
            return note_wait(self.journal, view, waits_for_paid(paid_wait), now)
        with writing_if(self.journal, view) as tx:
            # The plan was made outside the transaction, so that other writers need not wait; its inputs may have
            # changed.
            if self.policy().version != policy.version:
                return True
            judged = judge_start(tx, view, plan, policy, now)
            admission, record = judged.admission, judged.record
            if not is_still_free(admission.placement, market.offers, judged.live):
                return True
            if admission.answer is Answer.ASK and admission.short_of is None and view.asked is None:
                tx.record(mark_as_request(record, now))
                tx.post(judged.hold)
                tx.append(view.id, [(None, ask(admission, now))], now)
                return True
            if not admission.may_launch:
                body = refusal_of(admission)
                paused = isinstance(body, ev.Paused)
                if paused or not why.same_reason(body.reason, view.waiting):
                    tx.record(record)
                    tx.append(view.id, [(None, body)], now)
                if not paused:
                    self.refused(view)
                return paused
            number = view.attempt_count + 1
            tx.record(replace(record, attempt=number))
            tx.post(judged.hold)
            items: list[tuple[int | None, EventBody]] = [(None, body) for body in at_risk]
            advice_text = advice.why if advice is not None else ""
            items += [(None, approval) for approval in approve_by_standing_grants(tx, admission, view.id)]
            items.append((number, launch_request(view.id, number, admission.placement, view, advice_text)))
            tx.append(view.id, items, now)
        return True

    def _make_room(self, view: JobView, policy: PolicySet, preemption: Preemption, now: datetime) -> bool:
        """Hold the money for the job's start, and ask the running jobs whose places it takes to stop. Asks nobody, and
        returns False, if the gate refuses the start, or if the policy or one of them has changed. The reasons name only
        jobs of the reader's team."""
        option, ids = preemption.option, tuple(job.id for job in preemption.jobs)
        if preemption.right not in policy.defaults.preempts:
            return False
        plans = self.plans(view, policy, now, leaving=ids)
        placements = plans.in_time.placements or plans.anyhow.placements
        there = tuple(placement for placement in placements if placement.offer.id == option.name)
        with writing_if(self.journal, view) as tx:
            still_run = all(_still_runs(tx.job(job.id), job.attempt) for job in preemption.jobs)
            if not there or self.policy().version != policy.version or not still_run:
                return False
            judged = judge_start(tx, view, replace(plans.anyhow, placements=there), policy, now, leaving=ids)
            if not judged.admission.may_launch or not is_still_free(there[0], plans.market.offers, judged.live):
                return False
            tx.record(judged.record)
            tx.post(judged.hold)
            visible = preemption.visible_to((view.job.team,))
            leaving = tuple(job.id for job in visible.jobs)
            wait = ev.NothingFeasible(reason=why.QueueTurn(pool=option.pool, leaving=leaving, others=visible.others))
            approvals = approve_by_standing_grants(tx, judged.admission, view.id)
            tx.append(view.id, [*((None, approval) for approval in approvals), (None, wait)], now)
            for job in preemption.jobs:
                because = f"its wait costs about {estimate(preemption.worth)}, the work to repeat {estimate(job.lost)}"
                asker, gives_way = view.id if job in visible.jobs else "", why.MoveAdvantage.GIVES_WAY
                reason = why.MovesElsewhere(advantage=gives_way, to=None, because=because, job=asker)
                stop = ev.StopRequested(cause=Cause.MOVED, by="the queue", reason=reason)
                tx.append(job.id, [(job.attempt, stop)], now)
        return True

    def stand_by(self, view: JobView, plans: Plans, move: why.MovesElsewhere, now: datetime) -> bool:
        """Request an attempt that stands by while the present one works, in the pool of the move.

        Returns False, and changes nothing, if the job does not work now, the policies forbid two machines at once or do
        not allow this one at once, or the money does not cover both. Raises `NoLongerCurrent`.
        """
        policy, number = self.policy(), view.attempt_count + 1
        placements = tuple(p for p in plans.anyhow.placements if p.offer.pool == move.pool)
        latest = view.latest
        if latest is None or latest.running_at is None or latest.state is not AttemptState.RUNNING:
            return False
        if not placements or not plans.overlap or not policy.defaults.overlap:
            return False
        began = latest.up_since if latest.queued_at is not None else None
        last_start = (latest.ready_at or latest.running_at) - (began or latest.requested_at)
        until = now + _STARTS_ALLOWED * max(plans.market.conditions.start_up, last_start)
        plan = replace(plans.anyhow, placements=placements)

        def request(placement: Placement) -> ev.LaunchRequested:
            return launch_request(view.id, number, placement, view, move.because, until)

        with writing_if(self.journal, view) as tx:
            if self.policy().version != policy.version:
                return False
            with_standby = advance(view, Event(view.id, view.seq + 1, now, number, request(placements[0])))
            judged = judge_start(tx, with_standby, plan, policy, now)
            place = judged.admission.placement
            if not judged.admission.may_launch or not is_still_free(place, plans.market.offers, judged.live):
                return False
            tx.record(replace(judged.record, attempt=number))
            tx.post(judged.hold)
            approvals = approve_by_standing_grants(tx, judged.admission, view.id)
            items: list[tuple[int | None, EventBody]] = [(None, approval) for approval in approvals]
            tx.append(view.id, [*items, (number, request(place))], now)
        return True

    def _waits(
        self, view: JobView, plans: Plans, plan: Plan, policy: PolicySet, now: datetime
    ) -> WaitForReserved | None:
        """The prepaid capacity for which the job should wait instead of renting; None without."""
        since = view.latest.ended_at if view.latest is not None and view.latest.ended_at else view.submitted_at
        with self.journal.reading() as snapshot:
            return wait_for_paid(
                snapshot,
                plans.market,
                plans.facts.live,
                plan,
                lambda extra: plans.over([*plans.market.offers, *extra]),
                now=now,
                since=since,
                longest=policy.defaults.wait_for_paid,
            )

    def plans(
        self, view: JobView, policy: PolicySet, now: datetime, taken: Collection[str] = (), leaving: Sequence[str] = ()
    ) -> Plans:
        """The plans for the job's remaining work. ``taken``: limited pools whose free machines are reserved for
        others. ``leaving``: jobs that count as gone."""
        market = self.market(view.job)
        with self.journal.reading() as snapshot:
            action = placement_action(view, now)
            facts = facts_of(snapshot, policy, now, leaving=leaving)(action)
        deny = denials(policy, action, facts)

        free = [
            replace(offer, slots=0) if offer.capacity in taken else offer
            for offer in subtract_occupied(market.offers, facts.live)
        ]

        def plan(job: Job, offers: Sequence[Offer] = free) -> Plan:
            return make_plan(
                job,
                offers,
                now=now,
                submitted_at=view.submitted_at,
                conditions=market.conditions,
                remaining=remaining_work(view),
                excluded=avoided_pools(view, now),
                deny=deny,
            )

        in_time = plan(view.job)
        anyhow = in_time
        if Reason.MISSES_DEADLINE in in_time.reasons():
            anyhow = plan(view.job.model_copy(update={"deadline": None}))
        overlap = policy.defaults.overlap and may_stand_by(view, now)
        return Plans(market, in_time, anyhow, facts, lambda offers: plan(view.job, offers), overlap)


def _still_runs(view: JobView | None, number: int) -> bool:
    """Whether this attempt of the job runs, and nothing has asked it to stop."""
    attempt = view.latest if view is not None else None
    return attempt is not None and attempt.number == number and attempt.state is AttemptState.RUNNING


def _reserved_first(queued: QueueDecision, plans: Plans) -> PlacementAdvice | None:
    """The placements with the machines reserved for the job first; None if those are no longer suitable."""
    placements = plans.in_time.placements or plans.anyhow.placements
    if queued.first is None or all(p.offer.id != queued.first for p in placements):
        return None
    return PlacementAdvice(tuple(sorted(placements, key=lambda p: p.offer.id != queued.first)), "its turn in the queue")


def _plan_ignoring_deadline(view: JobView, plans: Plans) -> tuple[Plan, list[ev.DeadlineAtRisk]]:
    """The plan; if only the deadline prevents one, the plan without it, and a warning event, once."""
    late = plans.anyhow
    if plans.in_time.placements:
        return plans.in_time, []
    if not late.placements or view.deadline_at_risk:
        return late, []
    return late, [ev.DeadlineAtRisk(expected_finish=late.placements[0].finish, because="no placement meets it now")]


def placement_action(view: JobView, now: datetime) -> Action:
    """The action that rules judge when a job is placed again, before its placement is known."""
    return action_for(ActionKind.RE_PLACE, view, None, billed_time(view, now))
