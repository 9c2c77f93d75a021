"""The current state of a job and its attempts, folded from events by `broker.core.events.lifecycle`. Pure."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from broker.core.events import events as ev
from broker.core.events.agent_events import PassedOver, ResourceUse
from broker.core.events.outcomes import OUTCOMES, AttemptState, Cause, JobState, Next
from broker.core.events.wait_reasons import EndReason, MoveAdvantage, MovesElsewhere, StopReason, WaitReason
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.capacity import MachineOutside
from broker.core.policy.approvals import RequestedApproval
from broker.core.policy.policy import Grant
from broker.core.values.money import Money

# Causes after which only the provider knows whether it took the machine back.
_UNCONFIRMED_CAUSES = (Cause.PREEMPTED, Cause.MACHINE_LOST, Cause.AGENT_DIED)


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A durable resume point: its id in the run folder, its step if known, its size in bytes, and its time (UTC)."""

    id: str
    step: int | None
    size: int
    at: datetime


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt, folded from its events. Times are UTC; None: has not happened."""

    number: int
    key: str
    engine: str
    placement: Placement
    state: AttemptState
    requested_at: datetime
    handle: str | None = None
    launched_at: datetime | None = None
    standby_until: datetime | None = None  # it stands by, and is dropped then; None: it carries, or carried, the job
    ready_at: datetime | None = None  # when its machine was prepared to take over
    handed_at: datetime | None = None  # when it took over
    queued_at: datetime | None = None  # when it was first seen waiting in its engine's queue
    up_since: datetime | None = None
    claimed_at: datetime | None = None
    knows_standbys: bool = False  # its agent goes on to work while another attempt stands by
    running_at: datetime | None = None
    notice_at: datetime | None = None
    stop_requested: Cause | None = None
    stop_requested_at: datetime | None = None
    stop_reason: StopReason | None = None
    ended_at: datetime | None = None
    cause: Cause | None = None
    evidence: str = ""
    exit_status: int | None = None
    gone: bool = False
    gone_at: datetime | None = None
    interrupted: bool | None = None  # whether the provider took it back, by the engine's report; None: not recorded
    own_end: bool = False  # its provider does not confirm that it took the machine back
    never_existed: bool = False  # its provider had no machine, contrary to earlier reports
    outside: tuple[MachineOutside, ...] = ()  # machines that came outside of the bought capacity meant for them
    resumed_from: str | None = None
    resumed_step: int | None = None
    last_step: int | None = None
    reported: bool = False  # its end, by its agent
    checkpoints: tuple[SavedCheckpoint, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    removal_delayed: bool = False  # the engine failed to end its machine; the broker retries
    use: ResourceUse = field(default_factory=dict)  # of its first machine so far
    agent_events: int = 0  # how many entries of the agent's journal are folded in

    @property
    def over(self) -> bool:
        """Ended and its machine known to be gone."""
        return self.state.final and self.gone

    @property
    def taken_back(self) -> bool:
        """Whether the provider took the machine back, which may make its time free. The engine's report decides;
        without one, the node's."""
        return self.state is AttemptState.INTERRUPTED if self.interrupted is None else self.interrupted

    @property
    def refused(self) -> bool:
        """The provider had no machine: none existed or is billed, even if one seemed to start."""
        return self.never_existed or self.cause is Cause.NO_CAPACITY

    @property
    def gave_way(self) -> MovesElsewhere | None:
        """Why it was asked to stop for a job of higher priority; None if it was not."""
        reason = self.stop_reason
        return reason if isinstance(reason, MovesElsewhere) and reason.advantage is MoveAdvantage.GIVES_WAY else None

    @property
    def waits_in_queue(self) -> bool:
        """Whether it waits in an engine's queue without a machine so far."""
        has_machine = self.up_since is not None or self.claimed_at is not None
        return self.queued_at is not None and not has_machine and not self.state.final

    @property
    def is_own_failure(self) -> bool:
        """Whether it ended as if its machine had been taken or lost, and the provider does not confirm that."""
        return self.own_end and self.cause in _UNCONFIRMED_CAUSES

    @property
    def next(self) -> Next | None:
        if self.is_own_failure:
            return Next.RETRY_FAILURE
        return OUTCOMES[self.cause].next if self.cause else None


@dataclass(frozen=True, slots=True)
class PoolRest:
    """A pool that the job avoids ``until`` a time (UTC): ``times`` launches in a row failed there, the last one at
    ``since`` (UTC) in ``attempt`` with this ``evidence``. ``banned``: the launch was refused for good; the job avoids
    the pool until a person extends the job."""

    pool: str
    times: int
    since: datetime
    until: datetime
    attempt: int
    evidence: str = ""
    banned: bool = False


@dataclass(frozen=True, slots=True)
class JobView:
    """A job, folded from its events. ``seq``: the last folded event.

    ``attempts``: those with a possible machine, and the newest others, in order; ``folded``: the number of further ones
    (`broker.core.events.lifecycle`). ``waiting``: why it waits or is paused, if it does; ``ending``: why it ended,
    if it has and the reason is recorded. ``failed_launches``: attempts in a row that ended before their agent reported,
    without those for which the provider had no machine and the first without a machine in each pool. ``rests``: pools
    the job avoids for a time.
    """

    id: str
    job: Job
    user: str
    state: JobState
    seq: int
    submitted_at: datetime
    deadline: datetime | None
    max_duration: timedelta
    max_cost: Money | None
    work: timedelta | None
    on_demand: ev.Baseline | None = None
    attempts: tuple[AttemptView, ...] = ()
    cancel_requested: bool = False
    deadline_missed: bool = False
    deadline_at_risk: bool = False
    waiting: WaitReason | None = None
    ended_at: datetime | None = None
    ending: EndReason | None = None
    closed: bool = False
    extended_after: int | None = None  # how many attempts there were when more money or time was last granted
    asked: RequestedApproval | None = None  # the pending request for it, or for more money
    grants: tuple[Grant, ...] = ()  # its approvals
    folded: int = 0
    failed_launches: int = 0
    may_begin: bool = False  # the jobs that it comes after have ended as it asks
    rests: tuple[PoolRest, ...] = ()

    @property
    def attempt_count(self) -> int:
        """Number of all attempts, the one that stands by included."""
        return self.folded + len(self.attempts)

    @property
    def latest(self) -> AttemptView | None:
        """The newest attempt that carries, or carried, the job."""
        return next((attempt for attempt in reversed(self.attempts) if attempt.standby_until is None), None)

    @property
    def standby(self) -> AttemptView | None:
        """The attempt that is prepared while the latest one works; None if there is none, or it has ended."""
        newest = self.attempts[-1] if self.attempts else None
        return newest if newest is not None and newest.standby_until and not newest.state.final else None

    @property
    def checkpoint(self) -> SavedCheckpoint | None:
        """The newest checkpoint that is known to be durable: the one that would be restored. Ids sort by age; reports
        of them may arrive in another order."""
        for attempt in reversed(self.attempts):
            if attempt.checkpoints:
                return max(attempt.checkpoints, key=lambda saved: saved.id)
        return None

    @property
    def interruptions(self) -> int:
        """Number of interruptions (a notice and the loss of the same machine count once)."""
        states = (AttemptState.INTERRUPTED, AttemptState.LOST)
        return sum(a.state in states and not a.is_own_failure and not a.standby_until for a in self.attempts)

    @property
    def failures(self) -> int:
        """Number of failures of the job itself, counted against ``retry.failures``."""
        return sum(a.next is Next.RETRY_FAILURE and not a.standby_until for a in self.attempts)

    @property
    def awaits_predecessors(self) -> bool:
        """Whether it waits for the jobs that it comes after. False for the tasks of an array: the array has waited."""
        return bool(self.job.after) and not self.may_begin and self.job.task is None

    def attempt(self, number: int) -> AttemptView | None:
        """The attempt with that number; None if there is none or it is not kept in full."""
        return next((attempt for attempt in self.attempts if attempt.number == number), None)
