"""The queue as a result."""

from collections.abc import Iterable
from typing import Self

from broker.app.documents import ErrorDetails, Figure, Moment, Result
from broker.app.jobs import reasons
from broker.app.jobs.preview import Preview, refusal
from broker.app.jobs.queue import MachineUse, Queue, QueuedJob
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import AwaitsJobs, WaitReason
from broker.core.job.jobs import Priority
from broker.core.values.money import Money
from broker.placement.queue.preemption import Preemption


class ReachedTurn(Result):
    """A job's turn on recorded capacity, if an engine reached it. ``expected_cost`` in USD at the marginal price of
    that capacity: of one hour if ``finish`` is null."""

    offer: str
    start: Moment
    finish: Moment | None
    expected_cost: Money

    @classmethod
    def of(cls, queued: QueuedJob | None) -> Self | None:
        if queued is None or queued.start is None or queued.turn.option is None:
            return None
        option = queued.turn.option
        return cls.from_parts(queued, offer=option.name, expected_cost=_money(option.cost))


class TakenPlaces(Result):
    """The running ``jobs`` whose places a waiting job could take, and how many ``others`` that the reader may not see.
    ``lost``: the cost of the work that they repeat; ``worth``: that of the wait avoided (estimates, USD). They are
    stopped if it ``pays``."""

    jobs: list[str]
    others: int
    lost: Money
    worth: Money
    pays: bool

    @classmethod
    def of(cls, preemption: Preemption) -> Self:
        return cls.from_parts(preemption, jobs=[job.id for job in preemption.jobs])


class WaitingJob(Result):
    """A job that waits, and its expected placement. ``expected_cost`` in USD; it is the cost of one hour if ``start``
    is set and ``finish`` is null, because the amount of work is unknown. ``planned``: it is not submitted.
    ``out_of_reach``: recorded capacity that would serve it, if an engine reached it; ``reached``: its turn there then,
    null where it would go elsewhere. ``preemption``: whose places it could take; null for nobody's."""

    turn: int
    id: str
    name: str
    team: str | None
    priority: Priority
    nodes: int
    submitted_at: Moment
    deadline: Moment | None
    offer: str | None
    limited: bool
    start: Moment | None
    finish: Moment | None
    expected_cost: Money | None
    late: bool
    waiting_because: str
    wait_reason: WaitReason | None
    planned: bool
    out_of_reach: list[str]
    reached: ReachedTurn | None
    preemption: TakenPlaces | None

    @classmethod
    def of(cls, queued: QueuedJob, turn: int) -> Self:
        view, option = queued.view, queued.turn.option
        return cls.from_parts(
            view.job,
            view,
            queued.turn,
            queued,
            turn=turn,
            nodes=view.job.num_nodes,
            offer=option.name if option else None,
            limited=option is not None and option.pool is not None,
            expected_cost=_money(option.cost) if option else None,
            waiting_because=reasons.wait_text(view.waiting),
            wait_reason=view.waiting,
        )


class LaterJob(Result):
    """A job that comes after others. ``after``: those that are still to end."""

    id: str
    name: str
    team: str | None
    submitted_at: Moment
    after: list[str]

    @classmethod
    def of(cls, view: JobView) -> Self:
        reason = view.waiting
        ids = reason.jobs if isinstance(reason, AwaitsJobs) else [predecessor.job for predecessor in view.job.after]
        return cls.from_parts(view, name=view.job.name, team=view.job.team, after=ids)


class RefusedJob(Result):
    """A job whose submission would fail: the exit code and the error."""

    name: str
    exit_code: int
    error: ErrorDetails

    @classmethod
    def of(cls, job_preview: Preview) -> Self:
        error = ErrorDetails.of(refusal(job_preview))
        return cls(name=job_preview.job.name, exit_code=job_preview.exit_code, error=error)


class SharedMachine(Result):
    """The resources of an owned machine, and those free for another job now. ``gpus``: by accelerator."""

    name: str
    jobs: int
    cpus: Figure
    free_cpus: Figure
    memory_gib: Figure
    free_memory_gib: Figure
    gpus: dict[str, int]
    free_gpus: dict[str, int]

    @classmethod
    def of(cls, machine_use: MachineUse) -> Self:
        free = dict(machine_use.free.gpus)
        return cls.from_parts(
            machine_use,
            cpus=machine_use.has.cpus,
            free_cpus=machine_use.free.cpus,
            memory_gib=machine_use.has.memory_gib,
            free_memory_gib=machine_use.free.memory_gib,
            gpus=dict(machine_use.has.gpus),
            free_gpus={name: free.get(name, 0) for name, _ in machine_use.has.gpus},
        )


class QueueResult(Result):
    """The waiting jobs, the next one first. ``running``: how many jobs have a machine now. ``machines``: our own ones
    that jobs share. ``later``: jobs that come after others, which have not ended."""

    as_of: Moment
    running: int
    waiting: list[WaitingJob]
    machines: list[SharedMachine]
    later: list[LaterJob]

    @classmethod
    def of(cls, queue: Queue) -> Self:
        return cls.from_parts(
            queue,
            as_of=queue.now,
            waiting=[WaitingJob.of(queued, turn) for turn, queued in enumerate(queue.waiting, 1)],
        )


class PlannedTogether(QueueResult):
    """Several jobs planned together with those that wait. ``refused``: the planned ones that the policies or the market
    refuse, or that need an approval, each looked at as if it were submitted alone."""

    refused: list[RefusedJob]

    @classmethod
    def of_plan(cls, whole_queue: Queue, refused: Iterable[Preview]) -> Self:
        return cls.from_parts(QueueResult.of(whole_queue), refused=[RefusedJob.of(preview) for preview in refused])


def _money(usd: float) -> Money:
    return Money(round(usd * 1e6))
