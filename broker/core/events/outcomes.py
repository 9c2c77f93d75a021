"""States of attempts and jobs, causes of an attempt's end, and the consequence of each for the job: one table."""

from dataclasses import dataclass
from enum import StrEnum


class Next(StrEnum):
    """The consequence of an attempt's end for its job."""

    SUCCEED = "succeed"
    RETRY_FAILURE = "retry_failure"
    RE_PLACE = "re_place"
    OTHER_OFFER = "other_offer"
    PAUSE = "pause"
    CANCEL = "cancel"
    GIVE_UP = "give_up"


class AttemptState(StrEnum):
    """The state of an attempt. The last five are final."""

    REQUESTED = "requested"
    LAUNCHED = "launched"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    LOST = "lost"

    @property
    def final(self) -> bool:
        return self in _FINAL


_FINAL = frozenset(
    {AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.INTERRUPTED, AttemptState.CANCELLED, AttemptState.LOST}
)


class Cause(StrEnum):
    """Why an attempt ended. `OUTCOMES` maps it to a state and the job's next step."""

    COMPLETED = "completed"
    EXIT_STATUS = "exit_status"
    KILLED_BY_SIGNAL = "killed_by_signal"
    CANNOT_START = "cannot_start"
    PREEMPTED = "preempted"
    MACHINE_LOST = "machine_lost"
    AGENT_DIED = "agent_died"
    FENCED = "fenced"
    NO_CAPACITY = "no_capacity"
    LAUNCH_FAILED = "launch_failed"
    LAUNCH_REFUSED = "launch_refused"
    REQUEST_EXPIRED = "request_expired"
    DENIED_BEFORE_LAUNCH = "denied_before_launch"
    CANCELLED_BY_USER = "cancelled_by_user"
    MAX_COST = "max_cost"
    MAX_DURATION = "max_duration"
    PAID_UNTIL = "paid_until"
    MONEY_REFUSED = "money_refused"
    STOPPED_BY_POLICY = "stopped_by_policy"
    IDLE = "idle"
    MOVED = "moved"
    UNATTENDED = "unattended"
    NOT_NEEDED = "not_needed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The final state and the consequence that belong to a cause."""

    state: AttemptState
    next: Next


OUTCOMES: dict[Cause, Outcome] = {
    Cause.COMPLETED: Outcome(AttemptState.SUCCEEDED, Next.SUCCEED),
    Cause.EXIT_STATUS: Outcome(AttemptState.FAILED, Next.RETRY_FAILURE),
    Cause.KILLED_BY_SIGNAL: Outcome(AttemptState.FAILED, Next.RETRY_FAILURE),
    Cause.CANNOT_START: Outcome(AttemptState.FAILED, Next.GIVE_UP),
    Cause.PREEMPTED: Outcome(AttemptState.INTERRUPTED, Next.RE_PLACE),
    Cause.MACHINE_LOST: Outcome(AttemptState.LOST, Next.RE_PLACE),
    Cause.AGENT_DIED: Outcome(AttemptState.LOST, Next.RE_PLACE),
    Cause.FENCED: Outcome(AttemptState.LOST, Next.RE_PLACE),
    Cause.NO_CAPACITY: Outcome(AttemptState.FAILED, Next.OTHER_OFFER),
    Cause.LAUNCH_FAILED: Outcome(AttemptState.FAILED, Next.OTHER_OFFER),
    # The launch was refused permanently in that pool; other pools may accept the job.
    Cause.LAUNCH_REFUSED: Outcome(AttemptState.FAILED, Next.OTHER_OFFER),
    # No machine was requested: the job is placed again, through the gate.
    Cause.REQUEST_EXPIRED: Outcome(AttemptState.CANCELLED, Next.RE_PLACE),
    Cause.DENIED_BEFORE_LAUNCH: Outcome(AttemptState.CANCELLED, Next.RE_PLACE),
    Cause.CANCELLED_BY_USER: Outcome(AttemptState.CANCELLED, Next.CANCEL),
    Cause.MAX_COST: Outcome(AttemptState.CANCELLED, Next.PAUSE),
    Cause.MAX_DURATION: Outcome(AttemptState.CANCELLED, Next.PAUSE),
    # The judged money is used up: the gate judges the next attempt, perhaps for a new budget period.
    Cause.PAID_UNTIL: Outcome(AttemptState.CANCELLED, Next.RE_PLACE),
    Cause.MONEY_REFUSED: Outcome(AttemptState.CANCELLED, Next.PAUSE),
    Cause.STOPPED_BY_POLICY: Outcome(AttemptState.CANCELLED, Next.PAUSE),
    # An idle session ends; its home folder is saved.
    Cause.IDLE: Outcome(AttemptState.SUCCEEDED, Next.SUCCEED),
    Cause.MOVED: Outcome(AttemptState.CANCELLED, Next.RE_PLACE),
    Cause.UNATTENDED: Outcome(AttemptState.CANCELLED, Next.RE_PLACE),
    # It stood by, and the job did not move to it.
    Cause.NOT_NEEDED: Outcome(AttemptState.CANCELLED, Next.RE_PLACE),
}


class JobState(StrEnum):
    """The state of a job."""

    QUEUED = "queued"
    PLANNED = "planned"
    AWAITING_APPROVAL = "awaiting_approval"
    LAUNCHING = "launching"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    PAUSED_BUDGET = "paused_budget"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
