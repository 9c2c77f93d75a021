"""Why a job waits, why an attempt is stopped and why a job ended, as text. Refusals by a rule carry the
words of that rule."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from broker.app.results.program_name import program
from broker.core.events import wait_reasons as why
from broker.core.events.outcomes import JobState
from broker.core.events.wait_reasons import EndReason, StopReason, WaitReason
from broker.core.job.reasons import Reason
from broker.core.values.figures import about

_MOST = 3
_ENDED = {JobState.FAILED: "failed", JobState.CANCELLED: "was cancelled"}
# The job itself excludes these offers; these reasons are omitted if there is any other.
EXCLUDED_BY_THE_JOB = frozenset(
    {
        Reason.WRONG_ACCELERATOR,
        Reason.WRONG_CAPACITY_TYPE,
        Reason.WRONG_INSTANCE_TYPE,
        Reason.WRONG_PROVIDER,
        Reason.WRONG_REGION,
        Reason.NOT_A_CPU_OFFER,
        Reason.SANDBOX_NOT_ASKED_FOR,
        Reason.NEEDS_COMMITMENT,
    }
)
_REFUSED_FOR_ITS_TIME = "money for its run was refused"
_ITS_TURN = "queued, too few owned machines are free"


def waits(reason: WaitReason | None) -> str:
    """Why a job waits or is paused; empty if it does neither."""
    match reason:
        case None:
            return ""
        case why.NothingFits():
            return counted(reason.counts)
        case why.PolicyDenies():
            return _denied(reason)
        case why.SecretsMissing() | why.OwnerMustStart():
            return _needs_owner(reason)
        case why.QueueTurn() | why.StrategyWaits() | why.WaitsForPaid() | why.AwaitsJobs():
            return f"waits{_what_for(reason)}"
        case why.AwaitsApproval():
            return reason.because
        case why.LaunchTrouble():
            trouble = f"{reason.where}: {reason.message}" if reason.where else reason.message
            return f"{trouble} ({reason.hint})" if reason.hint else trouble
        case why.ApprovalEnded() | why.AttemptStopped():
            return ended(reason)
        case _:
            return _paused(reason)


def _what_for(reason: why.QueueTurn | why.StrategyWaits | why.WaitsForPaid | why.AwaitsJobs) -> str:
    match reason:
        case why.QueueTurn():
            turn = f"its turn on {reason.pool}" if reason.pool else "its turn in the queue"
            return f" for {turn}: `{program()} jobs queue`"
        case why.StrategyWaits():
            return f": {reason.because}"
        case why.WaitsForPaid():
            unit = " an hour" if reason.an_hour else ""
            return (
                f" for {reason.instance_type} ({reason.capacity_type.value}), expected to be free at"
                f" {reason.until:%Y-%m-%d %H:%M} UTC: that saves {about(reason.saves)}{unit} on {reason.rents_from}"
            )
        case why.AwaitsJobs():
            more = f" and {len(reason.jobs) - _MOST:,} more" if len(reason.jobs) > _MOST else ""
            return f" for {', '.join(reason.jobs[:_MOST])}{more}"


def _needs_owner(reason: why.SecretsMissing | why.OwnerMustStart) -> str:
    match reason:
        case why.SecretsMissing(owner=""):
            names = ", ".join(reason.names)
            return f"waits for secrets {names}: export them, then run any {program()} command there"
        case why.SecretsMissing():
            lacks = f"the secrets of {reason.owner}'s job are not in the environment of {reason.process_user}"
            return f"{lacks} ({reason.owner} runs any {program()} command where they are exported)"
        case why.OwnerMustStart():
            runs = f"{reason.owner} runs any {program()} command, or a `{program()} serve` runs all jobs"
            return f"a job of {reason.owner} is not run here as {reason.process_user} ({runs})"


def ended(reason: EndReason | None) -> str:
    """Why a job ended; empty if no reason is recorded."""
    match reason:
        case None:
            return ""
        case why.Completed():
            return "completed"
        case why.Cancelled():
            return "cancelled"
        case why.ApprovalEnded():
            by = f"refused by {reason.by}" if reason.by else "the request for approval expired"
            return f"{by}: {reason.note}" if reason.note else by
        case why.AttemptStopped():
            return why.cause_text(reason.cause, reason.evidence)
        case why.TasksEnded():
            counts = {"failed": reason.failed, "cancelled": reason.cancelled}
            told = " and ".join(f"{count:,} {what}" for what, count in counts.items() if count)
            return f"{told} of {reason.count:,} tasks"
        case why.PredecessorFailed():
            return f"{reason.job}, which had to succeed first, {_ENDED.get(reason.state, reason.state.value)}"


def stops(reason: StopReason | None) -> str:
    """Why the broker stops an attempt; empty if no reason is recorded."""
    match reason:
        case None:
            return ""
        case why.Cancelled():
            return "cancelled"
        case why.MaxDurationUsed():
            return _paused(reason)
        case why.HoldEnded():
            return f"the money held for it ended at {reason.at:%Y-%m-%d %H:%M:%S} UTC"
        case why.MoreMoneyDenied():
            denied = "; ".join(str(one) for one in reason.objections)
            if reason.trigger is why.HoldTrigger.ENDS:
                ends = f"the money held for it ends at {reason.paid_until:%Y-%m-%d %H:%M} UTC"
                return f"{ends}, and more was refused: {denied}"
            return f"{judged_again(reason.trigger)}, and that was refused: {denied}"
        case why.RulesDeny():
            return "; ".join(str(one) for one in reason.objections)
        case why.MovesElsewhere():
            return _moves(reason)


def judged_again(trigger: why.HoldTrigger) -> str:
    """Why held money was judged again."""
    match trigger:
        case why.HoldTrigger.ENDS:
            return "the money held for it is nearly used up"
        case why.HoldTrigger.FASTER:
            return "it is spent faster than approved"
        case why.HoldTrigger.CLOCK_REWIND:
            return "the clock was set back after the approval"


def _moves(reason: why.MovesElsewhere) -> str:
    where = reason.pool or ("nowhere for now" if reason.to is None else reason.to.value.replace("_", "-"))
    match reason.advantage:
        case why.MoveAdvantage.STRATEGY:
            return f"moves to {where}: {reason.because}"
        case why.MoveAdvantage.QUEUE_TOO_LONG:
            return f"moves to {where}: waiting longer in the queue would miss the deadline"
        case why.MoveAdvantage.BETTER_VALUE:
            return f"moves to {where}: it saves more money and time than the move costs"
        case why.MoveAdvantage.CAPACITY_ENDS:
            return f"moves elsewhere: {reason.because}"


def beside_state(reason: EndReason | None) -> str:
    """As `ended`, to be shown after the state of the job; empty if the state says the same."""
    return "" if isinstance(reason, why.Cancelled) else ended(reason)


def _paused(
    reason: why.MaxDurationUsed
    | why.MoneyRefused
    | why.MoneyTooLittle
    | why.StoppedByPolicy
    | why.MoneyEnded
    | why.LaunchesFailed,
) -> str:
    match reason:
        case why.MaxDurationUsed():
            return f"max_duration of {timedelta(seconds=reason.limit_seconds)} is used up"
        case why.MoneyRefused():
            what = "more money is needed and was refused" if reason.more else _REFUSED_FOR_ITS_TIME
            return f"{what}: {'; '.join(one.message for one in reason.objections)}"
        case why.MoneyTooLittle():
            least = f"that takes {reason.least} at least"
            return f"the money left does not pay for a start on {reason.instance_type}: {least}"
        case why.StoppedByPolicy():
            said = stops(reason.stop) or reason.evidence
            return f"stopped by a policy: {said}" if said else "stopped by a policy"
        case why.MoneyEnded():
            return stops(reason.stop) or reason.evidence or "the money held for it is used up"
        case why.LaunchesFailed():
            return _launches(reason)


def _denied(reason: why.PolicyDenies) -> str:
    if not reason.everywhere:
        return "; ".join(one.message for one in reason.objections)
    if len(reason.objections) == 1 and reason.objections[0].message:
        return str(reason.objections[0])
    sources = dict.fromkeys(one.source for one in reason.objections)
    return f"the policy denies every remaining placement: {', '.join(sources)}"


def _launches(reason: why.LaunchesFailed) -> str:
    told = f"{reason.count} launches in a row failed before the job's agent reported"
    if reason.pools:
        told += f" (the newest: {', '.join(f'{count} × {pool}' for pool, count in reason.pools.items())})"
    if reason.attempt:
        told += f"; the last one, attempt {reason.attempt}: {why.cause_text(reason.cause, reason.evidence)}"
    return told


def counted(reasons: Mapping[str, int]) -> str:
    """Counted reasons as text; reasons that may pass with time come first."""
    known = {Reason(code): count for code, count in reasons.items() if code in set(Reason)}
    telling = {reason: count for reason, count in known.items() if reason not in EXCLUDED_BY_THE_JOB} or known
    by_weight = sorted(telling.items(), key=lambda item: (item[0] is not Reason.TOO_FEW_MACHINES, -item[1]))
    parts = [
        _ITS_TURN if reason is Reason.TOO_FEW_MACHINES else f"{count:,} × {reason.text}"
        for reason, count in by_weight[:_MOST]
    ]
    return "; ".join(parts) or "no offers are known"
