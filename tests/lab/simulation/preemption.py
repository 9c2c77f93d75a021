"""Who gives way in a simulation: the broker's choice, or that of other schedulers, to compare with. Pure."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from broker.core.job.jobs import Priority
from broker.core.ports import PreemptionRight
from broker.placement.queue.preemption import RunningJob, preemptions
from broker.placement.queue.queue import EPSILON, Free, QueueRules, Turn


class Victims(StrEnum):
    """``least-lost``: as the broker chooses; ``newest-first``: lowest priority, latest start, as Kueue does."""

    LEAST_LOST = "least-lost"
    NEWEST_FIRST = "newest-first"


def chosen(
    victims: Victims,
    turns: Sequence[Turn],
    free: Mapping[str, Free],
    running: Sequence[RunningJob],
    rights: Mapping[Priority, PreemptionRight],
    rules: QueueRules,
) -> list[RunningJob]:
    """The running jobs that are stopped after a round of the queue. All choices stop jobs in the same situations: where
    the broker's choice pays."""
    stopped: list[RunningJob] = []
    for asker, places in preemptions(turns, free, running, rights, rules).items():
        if not places.pays:
            continue
        if victims is Victims.LEAST_LOST:
            stopped += places.jobs
            continue
        turn = next(turn for turn in turns if turn.entry.id == asker)
        right, pool = rights[turn.entry.priority], places.option.pool
        starting = sum(
            other.entry.nodes for other in turns
            if other.option is not None and other.option.pool == pool and other.start <= EPSILON
        )  # fmt: skip
        missing = turn.entry.nodes - (free[str(pool)].steps[0][1] - starting)
        may = [
            job for job in running
            if job.pool == pool and job not in stopped and job.may_give_way(turn.entry.priority, right)
        ]  # fmt: skip
        stopped += newest_first(may, missing)
    return stopped


def newest_first(jobs: Sequence[RunningJob], missing: int) -> list[RunningJob]:
    """Jobs of the lowest priority first, the latest start first, until enough is free; then those that are not needed
    stay, the longest-running ones first."""
    order = list(Priority)
    taken: list[RunningJob] = []
    for job in sorted(jobs, key=lambda job: (order.index(job.priority), job.ran, job.id)):
        if _machines(taken) >= missing:
            break
        taken.append(job)
    for job in sorted(taken, key=lambda job: job.ran, reverse=True):
        if _machines(taken) - _machines([job]) >= missing:
            taken.remove(job)
    return taken


def _machines(jobs: Sequence[RunningJob]) -> int:
    return sum(job.amount for job in jobs if isinstance(job.amount, int))
