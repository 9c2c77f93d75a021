"""Why a job waits, why an attempt is stopped and why a job ended, as text. Refusals by a rule carry the
words of that rule."""

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from broker.core.events import wait_reasons as why
from broker.core.events.outcomes import JobState
from broker.core.events.wait_reasons import EndReason, StopReason, WaitReason
from broker.core.job.reasons import Reason
from broker.core.values.figures import estimate, join_names, plural

_MAX_SHOWN = 3
_END_TEXTS = {JobState.FAILED: "failed", JobState.CANCELLED: "was cancelled"}
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
_MONEY_REFUSED_TEXT = "money for its run was refused"
_QUEUED_TEXT = "queued, too few owned machines are free"


def wait_text(reason: WaitReason | None) -> str:
    """Why a job waits or is paused; empty if it does neither."""
    match reason:
        case None:
            return ""
        case why.NothingFits():
            return rejection_counts_text(reason.counts)
        case why.PolicyDenies():
            return _denial_text(reason)
        case why.SecretsMissing() | why.OwnerMustStart():
            return _owner_needed_text(reason)
        case why.QueueTurn() | why.StrategyWaits() | why.WaitsForPaid() | why.AwaitsJobs():
            return f"waits{_wait_target_text(reason)}"
        case why.AwaitsApproval():
            return reason.because
        case why.LaunchTrouble():
            trouble = f"{reason.where}: {reason.message}" if reason.where else reason.message
            return f"{trouble} ({reason.hint})" if reason.hint else trouble
        case why.ApprovalEnded() | why.AttemptStopped():
            return end_text(reason)
        case _:
            return _pause_text(reason)


def _wait_target_text(reason: why.QueueTurn | why.StrategyWaits | why.WaitsForPaid | why.AwaitsJobs) -> str:
    match reason:
        case why.QueueTurn():
            turn = f"its turn on {reason.pool}" if reason.pool else "its turn in the queue"
            jobs = jobs_text(reason.leaving, reason.others)
            return f" for {turn}{f' (asked to make room: {jobs})' if jobs else ''}: `{program_name()} jobs queue`"
        case why.StrategyWaits():
            return f": {reason.because}"
        case why.WaitsForPaid():
            unit = " an hour" if reason.an_hour else ""
            return (
                f" for {reason.instance_type} ({reason.capacity_type.value}), expected to be free at"
                f" {reason.until:%Y-%m-%d %H:%M} UTC: that saves {estimate(reason.saves)}{unit} on {reason.rents_from}"
            )
        case why.AwaitsJobs():
            return f" for {join_names(reason.jobs, _MAX_SHOWN)}"


def jobs_text(names: Sequence[str], others: int) -> str:
    """``a, b and 2 jobs of other teams``."""
    others_text = plural(others, "job of another team", "jobs of other teams") if others else ""
    return " and ".join(filter(None, (join_names(names, _MAX_SHOWN), others_text)))


def _owner_needed_text(reason: why.SecretsMissing | why.OwnerMustStart) -> str:
    match reason:
        case why.SecretsMissing(owner=""):
            names = ", ".join(reason.names)
            return f"waits for secrets {names}: export them, then run any {program_name()} command there"
        case why.SecretsMissing():
            missing_text = f"the secrets of {reason.owner}'s job are not in the environment of {reason.process_user}"
            return f"{missing_text} ({reason.owner} runs any {program_name()} command where they are exported)"
        case why.OwnerMustStart():
            remedy = f"{reason.owner} runs any {program_name()} command, or a `{program_name()} serve` runs all jobs"
            return f"a job of {reason.owner} is not run here as {reason.process_user} ({remedy})"


def end_text(reason: EndReason | None) -> str:
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
            counts_text = " and ".join(f"{count:,} {outcome}" for outcome, count in counts.items() if count)
            return f"{counts_text} of {reason.count:,} tasks"
        case why.PredecessorFailed():
            return f"{reason.job}, which had to succeed first, {_END_TEXTS.get(reason.state, reason.state.value)}"


def stop_text(reason: StopReason | None) -> str:
    """Why the broker stops an attempt; empty if no reason is recorded."""
    match reason:
        case None:
            return ""
        case why.Cancelled():
            return "cancelled"
        case why.MaxDurationUsed():
            return _pause_text(reason)
        case why.HoldEnded():
            return f"the money held for it ended at {reason.at:%Y-%m-%d %H:%M:%S} UTC"
        case why.MoreMoneyDenied():
            denial_text = "; ".join(str(objection) for objection in reason.objections)
            if reason.trigger is why.HoldTrigger.ENDS:
                hold_end_text = f"the money held for it ends at {reason.paid_until:%Y-%m-%d %H:%M} UTC"
                return f"{hold_end_text}, and more was refused: {denial_text}"
            return f"{hold_trigger_text(reason.trigger)}, and that was refused: {denial_text}"
        case why.RulesDeny():
            return "; ".join(str(objection) for objection in reason.objections)
        case why.MovesElsewhere():
            return _move_text(reason)


def hold_trigger_text(trigger: why.HoldTrigger) -> str:
    """Why held money was judged again."""
    match trigger:
        case why.HoldTrigger.ENDS:
            return "the money held for it ends soon"
        case why.HoldTrigger.FASTER:
            return "it is spent faster than approved"
        case why.HoldTrigger.CLOCK_REWIND:
            return "the clock was set back after the approval"


def _move_text(reason: why.MovesElsewhere) -> str:
    target = reason.pool or ("nowhere for now" if reason.to is None else reason.to.value.replace("_", "-"))
    match reason.advantage:
        case why.MoveAdvantage.STRATEGY if reason.beside:
            return f"moves to {target}, where a machine is ready"
        case why.MoveAdvantage.STRATEGY:
            return f"moves to {target}: {reason.because}"
        case why.MoveAdvantage.QUEUE_TOO_LONG:
            return f"moves to {target}: waiting longer in the queue would miss the deadline"
        case why.MoveAdvantage.BETTER_VALUE:
            return f"moves to {target}: it saves more money and time than the move costs"
        case why.MoveAdvantage.CAPACITY_ENDS:
            return f"moves elsewhere: {reason.because}"
        case why.MoveAdvantage.GIVES_WAY:
            return f"gives way to {reason.asker}: {reason.because}"


def end_text_after_state(reason: EndReason | None) -> str:
    """As `end_text`, to be shown after the state of the job; empty if the state says the same."""
    return "" if isinstance(reason, why.Cancelled) else end_text(reason)


def _pause_text(
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
            refusal_text = "more money is needed and was refused" if reason.more else _MONEY_REFUSED_TEXT
            return f"{refusal_text}: {'; '.join(objection.message for objection in reason.objections)}"
        case why.MoneyTooLittle():
            minimum_text = f"that takes {reason.least} at least"
            return f"the money left does not pay for a start on {reason.instance_type}: {minimum_text}"
        case why.StoppedByPolicy():
            cause_text = stop_text(reason.stop) or reason.evidence
            return f"stopped by a policy: {cause_text}" if cause_text else "stopped by a policy"
        case why.MoneyEnded():
            return stop_text(reason.stop) or reason.evidence or "the money held for it is used up"
        case why.LaunchesFailed():
            return _launch_failures_text(reason)


def _denial_text(reason: why.PolicyDenies) -> str:
    if not reason.everywhere:
        return "; ".join(objection.message for objection in reason.objections)
    if len(reason.objections) == 1 and reason.objections[0].message:
        return str(reason.objections[0])
    sources = dict.fromkeys(objection.source for objection in reason.objections)
    return f"the policy denies every remaining placement: {', '.join(sources)}"


def _launch_failures_text(reason: why.LaunchesFailed) -> str:
    text = f"{reason.count} launches in a row failed before the job's agent reported"
    if reason.pools:
        text += f" (the newest: {', '.join(f'{count} × {pool}' for pool, count in reason.pools.items())})"
    if reason.attempt:
        text += f"; the last one, attempt {reason.attempt}: {why.cause_text(reason.cause, reason.evidence)}"
    return text


def rejection_counts_text(reasons: Mapping[str, int]) -> str:
    """Counted reasons as text; reasons that may pass with time come first."""
    counts_by_reason = {Reason(code): count for code, count in reasons.items() if code in set(Reason)}
    relevant_counts = {
        reason: count for reason, count in counts_by_reason.items() if reason not in EXCLUDED_BY_THE_JOB
    } or counts_by_reason
    sorted_counts = sorted(relevant_counts.items(), key=lambda item: (item[0] is not Reason.TOO_FEW_MACHINES, -item[1]))
    texts = [
        _QUEUED_TEXT if reason is Reason.TOO_FEW_MACHINES else f"{count:,} × {reason.text}"
        for reason, count in sorted_counts[:_MAX_SHOWN]
    ]
    return "; ".join(texts) or "no offers are known"


def program_name() -> str:
    """The program's name in printed commands: ``gpubroker`` if the shell finds it under that name, else its path."""
    start_path = sys.argv[0]
    if Path(start_path).name != "gpubroker" or "/" not in start_path:
        return "gpubroker"
    shell_path = shutil.which("gpubroker")
    is_on_path = shell_path is not None and Path(shell_path).resolve() == Path(start_path).resolve()
    return "gpubroker" if is_on_path else shlex.quote(start_path)
