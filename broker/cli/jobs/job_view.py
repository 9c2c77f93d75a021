"""A job as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from textwrap import shorten
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from broker.app.jobs import reasons
from broker.app.jobs.documents import AttemptDetails, AttemptList, JobDetails, JobList, PauseKind, TaskStates
from broker.app.jobs.history_documents import JobHistory
from broker.app.jobs.reasons import program_name
from broker.app.jobs.story import MachineContext, StoryLine, Tone, cause_text, story_line, story_lines, use_text
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, indent_text, table_parts
from broker.core.events.events import Event
from broker.core.events.outcomes import AttemptState, JobState
from broker.core.values.money import Money

if TYPE_CHECKING:
    from broker.app.billing.budget_documents import BudgetShareResult, MoneyByKind

_STATES = {
    JobState.SUCCEEDED: "green",
    JobState.RUNNING: "green",
    JobState.FAILED: "red",
    JobState.CANCELLED: "yellow",
    JobState.PAUSED_BUDGET: "yellow",
    JobState.AWAITING_APPROVAL: "yellow",
    JobState.INTERRUPTED: "yellow",
}


def state_text(job: JobDetails) -> Text:
    """The state in its color."""
    return Text(job.state_in_words, style=_STATES.get(job.state, ""))


def return_commands(job_id: str) -> str:
    """The commands to show, follow and stop a job that continues in the background."""
    return (
        f"The job continues in the background. To follow or stop it:\n  {program_name()} status {job_id}\n"
        f"  {program_name()} logs {job_id} -f\n  {program_name()} cancel {job_id}"
    )


def amounts_text(amounts: MoneyByKind) -> str:
    """``$1.20 cash, $0.10 amortised``; without kinds of which there is nothing."""
    return ", ".join(f"{formats.money(amount)} {kind}" for kind, amount in amounts if amount)


def step_text(step: int | None, total: int | None) -> str:
    """``step 120 of 400``; empty if the step is not known."""
    return "" if step is None else f"step {step:,}{f' of {total:,}' if total else ''}"


def running_cost_text(cost: Money) -> str:
    """``$0.1200 so far``; always with four decimals, so that a line that is updated has one precision."""
    return f"{cost.rounded(4)} so far"


def time_scale_note(scale: float) -> list[Text]:
    """A note that times are simulated; empty for a store in real time."""
    return [] if scale == 1 else [Text(f"times are simulated: {scale:g} times as fast as real time", style="dim")]


# --- list -----------------------------------------------------------------------------------------------------------

_MAX_REASON_IN_FILE = 60  # characters of a reason in a file or pipe
_MIN_WIDE_COLUMNS = 110  # columns of a terminal that has room for reason and progress side by side
_MAX_METRICS = 3  # of a task


def job_table(console: Console, job_list: JobList, *, has_more: bool) -> list[RenderableType]:
    """One row per job; ``has_more``: whether more jobs match."""

    def deadline_text(job: JobDetails) -> str:
        if job.deadline is None or job.state.final:
            return ""
        return "missed" if job.deadline_missed else f"in {formats.length(job.deadline - job_list.as_of)}"

    def machine(job: JobDetails) -> str:
        placement = job.latest.placement if job.latest else None
        return f"{placement.provider} {placement.machine}" if placement else " or ".join(job.machines * bool(job.tasks))

    def why(job: JobDetails) -> str:
        # Where it is no terminal, one line per job, for grep and less; `status` prints the whole reason.
        reason = _reason(job)
        return reason if console.is_terminal else shorten(reason, _MAX_REASON_IN_FILE, placeholder=" …")

    def progress(job: JobDetails) -> str:
        return tasks_text(job.tasks) if job.tasks else _progress_text(job, job_list.as_of)

    def ran(job: JobDetails) -> str:
        whole = (job.ended_at or job_list.as_of) - job.submitted_at if job.tasks else job.billed_time
        return formats.length(whole) if whole else ""

    def figures(job: JobDetails) -> str:
        return " ".join(f"{name}={value:.4g}" for name, value in list(job.metrics.items())[:_MAX_METRICS])

    reasons_and_progress: tuple[ValueColumn[JobDetails], ...] = (
        ValueColumn("why", why, 1, folds=True),
        ValueColumn("progress", progress, 1, folds=True),
    )
    if console.width < _MIN_WIDE_COLUMNS:
        both = ValueColumn[JobDetails](
            "why, progress", lambda job: "; ".join(filter(None, [why(job), progress(job)])), 1, folds=True
        )
        reasons_and_progress = (both,)
    columns: tuple[ValueColumn[JobDetails], ...] = (
        ValueColumn("", lambda row: Text("!" if row.needs_attention else "", "bold yellow"), 1),
        ValueColumn("job", lambda row: row.id, folds=True),
        ValueColumn("state", state_text),
        *reasons_and_progress,
        ValueColumn("parameters", lambda row: _parameters_text(row.parameters), 1, folds=True),
        ValueColumn("metrics", figures, 2, folds=True),
        ValueColumn("ran", ran, 2, "right"),
        ValueColumn("cost", lambda row: formats.money(row.cost_so_far), align="right"),
        ValueColumn("deadline", deadline_text, 3),
        ValueColumn("machine", machine, 4),
        ValueColumn("submitted", lambda row: f"{formats.age(job_list.as_of - row.submitted_at)} ago", 5, "right"),
        ValueColumn("attempts", lambda row: "" if row.tasks else str(row.attempt_count), 6, "right"),
        ValueColumn("team", lambda row: row.team or "", 7),
        ValueColumn("user", lambda row: row.user, 8),
    )
    attention = any(job.needs_attention for job in job_list.jobs)
    needs = [f"! a person must act: `{program_name()} status JOB` says how"] if attention else []
    count = len(job_list.jobs)
    more = f"more are not shown: `{program_name()} jobs list --limit {10 * count}`" if has_more else ""
    table = table_parts(console, columns, job_list.jobs, formats.plural(count, "job"), more, *needs)
    return [*table, *time_scale_note(job_list.time_scale)]


def _reason(job: JobDetails) -> str:
    """Why the job waits, or ended without success; empty if it does neither, or its tasks have the reasons."""
    if job.state.final:
        return "" if job.state is JobState.SUCCEEDED or job.tasks else reasons.end_text_after_state(job.end_reason)
    return job.waiting_because or ("an extension awaits approval" if job.asked is not None else "")


def _progress_text(job: JobDetails, now: datetime) -> str:
    """``step 120 of 400, 3h left, checkpoint 4m ago``; the step alone once the job has ended."""
    parts = [step_text(job.step, job.total_steps) or (job.phase or "")]
    if not job.state.final and job.expected_finish is not None:
        parts.append(f"{formats.length(max(job.expected_finish - now, timedelta(0)))} left")
    if not job.state.final and job.checkpoint is not None:
        parts.append(f"checkpoint {formats.age(now - job.checkpoint.at)} ago")
    return ", ".join(filter(None, parts))


def tasks_text(tasks: TaskStates) -> str:
    """``running 2, to come 52, done 5, failed 1 of 60``."""
    counts = {
        "running": tasks.running,
        "waiting": tasks.waiting,
        "paused": tasks.paused,
        "to come": tasks.not_started,
        "done": tasks.succeeded,
        "failed": tasks.failed,
        "cancelled": tasks.cancelled,
    }
    return f"{', '.join(f'{state_name} {count:,}' for state_name, count in counts.items() if count)} of {tasks.count:,}"


def _parameters_text(parameters: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in parameters.items())


# --- show -----------------------------------------------------------------------------------------------------------


def job_story(job: JobHistory) -> Iterator[RenderableType]:
    """The job's state, cost and events."""
    yield Text.assemble((job.id, "bold"), "  ", state_text(job))
    if latest := job.latest:
        yield Text(f"  {'ran' if latest.state.final else 'runs'} on {latest.placement.in_words}")
        newest = job.attempts[-1]
        if newest.standby_until is not None and not newest.state.final:
            paid = f"both paid for {formats.length(newest.machine_time)}" if newest.up_since else "which starts"
            yield Text(f"  moving to {newest.placement.in_words}, {paid}")
    yield from _relation_lines(job)
    yield from _progress_lines(job)
    yield from _obstacle_lines(job)
    yield Text("\nMoney", style="bold")
    yield from _money_lines(job)
    yield Text(f"\nEvents (time since {formats.moment(job.submitted_at)})", style="bold")
    yield from event_lines(job.events, job.submitted_at)
    if job.max_cost is None and not job.state.final:
        yield Text(f"\nstops after {formats.length(job.max_duration)} of machine time", style="dim")
    yield from _failed_task_lines(job)
    yield from _retention_lines(job)
    yield from time_scale_note(job.time_scale)


def _relation_lines(job: JobHistory) -> Iterator[RenderableType]:
    """Lines on the job's tasks, its array, and the jobs that it comes after."""
    if job.tasks is not None:
        yield Text(f"  tasks: {tasks_text(job.tasks)}")
    if job.task is not None:
        yield Text(f"  task {job.task.index:,} of {job.task.count:,} of the array {job.task.array}")
    if job.after:
        yield Text(f"  comes after {', '.join(predecessor.job for predecessor in job.after)}")


def _progress_lines(job: JobHistory) -> Iterator[RenderableType]:
    """Steps, last checkpoint, deadline."""
    if steps := step_text(job.step, job.total_steps):
        eta, finish = "", job.expected_finish
        if finish is not None and not job.state.final:
            eta = f", finish expected {formats.moment(finish)} (in {formats.length(finish - job.as_of)})"
        yield Text(f"  {steps}{eta}")
    if job.checkpoint is not None:
        checkpoint = job.checkpoint
        position = f"at step {checkpoint.step:,}" if checkpoint.step is not None else checkpoint.id
        yield Text(f"  last checkpoint {position}, {formats.age(job.as_of - checkpoint.at)} ago")
    if job.deadline is not None:
        risk = " (missed)" if job.deadline_missed else " (at risk)" if job.deadline_at_risk else ""
        yield Text(f"  deadline {formats.moment(job.deadline)}{risk}")


def _obstacle_lines(job: JobHistory) -> Iterator[RenderableType]:
    """Why the job does not run, and what to do."""
    if job.wait_reason is not None:
        yield Text.assemble(("  waiting: ", "yellow"), job.waiting_because)
    elif job.asked is not None:
        yield Text("  an extension awaits approval; the job continues within its current limits", style="yellow")
    if job.wait_reason is not None or job.asked is not None:
        yield from (Text(f"  {hint}") for hint in _remedies(job))
    for trouble in job.troubles:
        yield indent_text(Text(trouble, style="yellow"), 2)
    if not (job.closed or job.reconciled or job.waits_for_people):
        yield Text("  no background process is running: the job is not re-placed until one runs", style="yellow")


def _failed_task_lines(job: JobHistory) -> Iterator[RenderableType]:
    """A line for each of the first tasks that failed: its id, its parameters, and why it failed."""
    if job.failed_tasks:
        yield Text("\nTasks that failed (the first ones)", style="bold")
    for task in job.failed_tasks:
        yield indent_text(Text("  ".join(filter(None, [task.id, _parameters_text(task.parameters), task.because]))), 2)


def _remedies(job: JobDetails) -> list[str]:
    if job.asked is not None:
        deadline_text = f" before {formats.moment(job.asked.expires_at)}" if job.asked.expires_at else ""
        return [
            f"{job.asked.whom} can decide{deadline_text}:\n    {program_name()} approvals grant {job.id}    (or "
            "refuse)",
            f"an approval covers: {job.asked.covers}",
        ]
    end = f"to end it: {program_name()} cancel {job.id}"
    match job.pause:
        case PauseKind.LAUNCHES_FAILED:
            return [
                f"to see why they failed: {program_name()} status --attempts {job.id}",
                f"to resume once that is corrected:\n    {program_name()} jobs extend {job.id}",
                end,
            ]
        case PauseKind.STOPPED_BY_POLICY:
            resume = (
                f"to resume once the rule allows it or asks for approval:\n    {program_name()} jobs extend {job.id}"
            )
            return [resume, end]
        case PauseKind.LIMIT:
            command = f"{program_name()} jobs extend {job.id} --max-cost USD (or --max-duration TIME)"
            return [f"to raise its limit:\n    {command}", end]
        case None:
            return []


def _money_lines(job: JobDetails) -> Iterator[RenderableType]:
    settled_note = "" if job.closed else " settled so far"
    so_far = job.cost_so_far
    estimate = f" (estimated {formats.money(so_far)} until now)" if not job.closed and so_far else ""
    yield Text(f"  spent     {amounts_text(job.cost) or '$0.00'}{settled_note}{estimate}")
    if held_text := amounts_text(job.held):
        yield Text(f"  held      {held_text}")
        if job.hold_quantile is not None:
            yield indent_text(Text(hold_coverage_text(job.hold_quantile)), 12)
    yield from (indent_text(Text(line), 12) for line in budget_share_lines(job.budget_shares))
    limit = f"max_cost {formats.money(job.max_cost)}, " if job.max_cost is not None else ""
    used_text = "for each task" if job.tasks else f"(used {formats.length(job.billed_time)})"
    yield Text(f"  limits    {limit}max_duration {formats.length(job.max_duration)} {used_text}")
    if job.on_demand_cost and job.savings is not None:
        savings_text = _savings_text(job.on_demand_cost, job.savings)
        yield Text(f"  on-demand {formats.money(job.on_demand_cost)} for the same work; {savings_text}")


def _savings_text(on_demand: Money, savings: Money) -> str:
    """``saved $3.40 (20%)``, ``this job cost 12% more``, or ``the same`` where less than half a percent differs."""
    share = round(savings.micros / on_demand.micros, 2)
    if not share:
        return "this job cost the same"
    return f"saved {formats.money(savings)} ({share:.0%})" if share > 0 else f"this job cost {-share:.0%} more"


def _retention_lines(job: JobHistory) -> Iterator[RenderableType]:
    """How long the files of an ended job are kept."""
    ends_by_kind = job.kept_until
    if not ends_by_kind:
        return
    if not any(ends_by_kind.values()):
        yield Text(f"files stay until `{program_name()} jobs prune` or a policy deletes them", style="dim")
        return

    def fate(expires_at: datetime | None) -> str:
        return (
            "stay"
            if expires_at is None
            else "are deleted"
            if expires_at < job.as_of
            else f"until {formats.moment(expires_at)}"
        )

    text = ", ".join(f"{kind} {fate(expires_at)}" for kind, expires_at in ends_by_kind.items())
    newest = "; the newest checkpoint stays" if ends_by_kind["checkpoints"] else ""
    yield Text(f"by the policy: {text}{newest}", style="dim")


def end_summary(job: JobDetails) -> Iterator[RenderableType]:
    """The summary of a job that was followed to its end."""
    course = f" after {formats.plural(job.attempt_count, 'attempt')}"
    course += f", {formats.plural(job.interruptions, 'interruption')}" if job.interruptions else ""
    heading = Text.assemble(("\n" + job.id, "bold"), "  ", state_text(job), "" if job.tasks else course)
    if (
        reason := (tasks_text(job.tasks) if job.tasks else reasons.end_text_after_state(job.end_reason))
        or job.waiting_because
    ):
        heading.append(f": {reason}")
    yield heading
    yield Text(f"cost {amounts_text(job.cost) or '$0.00'}{'' if job.closed else ' (the bill is not final yet)'}")
    if job.on_demand_cost and job.savings is not None:
        comparison = _savings_text(job.on_demand_cost, job.savings)
        yield Text(f"on-demand would have cost {formats.money(job.on_demand_cost)}; {comparison}")
    if isinstance(job, JobHistory):
        yield from _failed_task_lines(job)
    yield from map(Text, _remedies(job))
    if job.outputs:
        yield Text(f"results: {program_name()} jobs files {job.id}")
    if job.state is JobState.FAILED:
        yield Text(f"output: {program_name()} logs {job.id}{' --failed' if job.tasks else ''}")
        if job.checkpoint is not None:
            yield Text(f"to resume from its last checkpoint: {program_name()} jobs resume {job.id}")


# --- attempts -------------------------------------------------------------------------------------------------------

_ATTEMPT_STYLES = {AttemptState.SUCCEEDED: "green", AttemptState.FAILED: "red", AttemptState.RUNNING: "green"}


def attempt_table(console: Console, attempt_list: AttemptList) -> list[RenderableType]:
    """One row per attempt."""

    def state(attempt: AttemptDetails) -> Text:
        return Text(attempt.state.value, _ATTEMPT_STYLES.get(attempt.state, "yellow" if attempt.state.final else ""))

    def last_step(attempt: AttemptDetails) -> int | None:
        return attempt.checkpoints[-1].step if attempt.step is None and attempt.checkpoints else attempt.step

    def step(number: int | None) -> str:
        return "" if number is None else f"{number:,}"

    columns: tuple[ValueColumn[AttemptDetails], ...] = (
        ValueColumn("#", lambda attempt: str(attempt.number), align="right"),
        ValueColumn("state", state),
        ValueColumn("location", lambda row: f"{row.placement.provider}/{row.placement.zone or row.placement.region}"),
        ValueColumn("machine", lambda row: row.placement.machine, 4),
        ValueColumn("purchase type", lambda row: formats.purchase_type(row.placement.capacity_type), 5),
        ValueColumn("machine time", lambda row: formats.length(row.machine_time), 1, "right"),
        ValueColumn("from step", lambda row: step(row.resumed_from_step), 3, "right"),
        ValueColumn("to step", lambda row: step(last_step(row)), 2, "right"),
        ValueColumn("checkpoints", lambda row: str(len(row.checkpoints)), 7, "right"),
        ValueColumn("used", lambda row: use_text(row.use), 8, folds=True),
        ValueColumn(
            "end reason", lambda row: "; ".join(filter(None, [cause_text(row.cause), row.evidence])), folds=True
        ),
    )
    if not attempt_list.attempts:
        return [Text(f"{attempt_list.id} has not been launched yet; see `{program_name()} status {attempt_list.id}`")]
    return table_parts(console, columns, attempt_list.attempts, formats.plural(len(attempt_list.attempts), "attempt"))


_MAX_PERIODS = 4  # of one budget in a sentence


def budget_share_lines(shares: Iterable[BudgetShareResult]) -> list[str]:
    """One line per budget: ``$12.40 of budget team-a for November 2026 and $7.60 for December 2026 (UTC)``."""
    lines = []
    for budget, budget_shares in groupby(shares, lambda share: share.budget):
        first_share, *later_shares = budget_shares
        shown_shares, hidden_shares = later_shares[: _MAX_PERIODS - 1], later_shares[_MAX_PERIODS - 1 :]
        parts = [f"{formats.money(first_share.held)} of budget {budget} for {first_share.period}"]
        parts += [f"{formats.money(share.held)} for {share.period}" for share in shown_shares]
        if hidden_shares:
            hidden_total = sum((share.held for share in hidden_shares), Money.ZERO)
            parts.append(
                f"{formats.money(hidden_total)} for {formats.plural(len(hidden_shares), 'more period')} until "
                f"{hidden_shares[-1].until:%Y-%m-%d}"
            )
        *all_but_last, last_part = parts
        sentence = f"{', '.join(all_but_last)} and {last_part}" if all_but_last else last_part
        lines.append(f"{sentence} ({first_share.timezone})")
    return lines


def hold_coverage_text(quantile: float) -> str:
    """The coverage of a hold that follows from the job's work: ``enough for 95 % of runs …``."""
    share = f"{quantile:g} % of runs of this `work:` (the policy's `hold_quantile`)"
    return f"enough for {share}; more is held while it runs, if it takes longer"


_COLOURS = {Tone.GOOD: "green", Tone.BAD: "red", Tone.ODD: "yellow", Tone.PLAIN: ""}


def event_lines(events: Sequence[Event], start: datetime) -> list[Text]:
    """All events, one line each; consecutive checkpoints share a line."""
    return [_timed_line(story_line) for story_line in story_lines(events, start, formats.moment)]


def event_line(event: Event, start: datetime, course: MachineContext | None = None) -> Text | None:
    """The event with its time since ``start``; None for events that are not shown."""
    entry = story_line(event, start, formats.moment, course)
    return None if entry is None else _timed_line(entry)


def _timed_line(story_line: StoryLine) -> Text:
    return Text.assemble(
        (f"{formats.length(story_line.after):>8}  ", "dim"), (story_line.text, _COLOURS[story_line.tone])
    )
