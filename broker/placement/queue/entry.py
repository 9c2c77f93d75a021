"""A job's entry in the queue, with its options from an index of offers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.job.reasons import Reason
from broker.core.values.figures import hours_of
from broker.core.values.money import Money
from broker.placement.conditions import Conditions
from broker.placement.offer_index import Board
from broker.placement.planner import Deny
from broker.placement.pricing.estimate import margin
from broker.placement.pricing.run_model import ASSUMED_WORK, Effort
from broker.placement.queue.queue import QueueEntry, QueueOption
from broker.placement.ranking import ranking_cost

# Maximum number of limited pools among a job's options.
_LIMITED = 8


def entry_of(  # noqa: PLR0913 - a job, a market, and what `Judge.of` wants to know
    job_id: str,
    job: Job,
    board: Board,
    *,
    now: datetime,
    submitted_at: datetime,
    conditions: Conditions,
    remaining: timedelta | None = None,
    excluded: Mapping[str, tuple[Reason, str]] | None = None,
    deny: Deny | None = None,
) -> QueueEntry:
    """The entry of a job with at most nine options: limited pools, best first, up to the first unlimited capacity in
    the ranking. If no placement meets the deadline, the options ignore it. So a job alone in the queue, with all
    machines free, gets the first placement of its plan. An offer's ``slots`` must include the machines that jobs occupy
    now.
    """

    def options(variant: Job) -> tuple[QueueOption, ...]:
        judge = board.judge(
            variant, now=now, submitted_at=submitted_at, conditions=conditions, remaining=remaining, excluded=excluded,
            deny=deny,
        )  # fmt: skip
        return _options(board.ranked(judge, most_limited=_LIMITED), judge.effort)

    effort = Effort.of(job, conditions, remaining)
    entry_options = options(job)
    if not entry_options and job.deadline is not None:
        entry_options = options(job.model_copy(update={"deadline": None, "value_of_time": Money.ZERO}))
    deadline = job.deadline_at(submitted_at)
    value = conditions.value_of_time if job.value_of_time is None else job.value_of_time
    return QueueEntry(
        id=job_id,
        team=job.team or "",
        priority=job.priority,
        nodes=job.num_nodes,
        gpus=job.num_nodes * max((machine.count for machine in job.resources), default=0) or job.num_nodes,
        options=entry_options,
        deadline=None if deadline is None else hours_of(deadline - now),
        handed_in=hours_of(submitted_at - now),
        needs=min((option.hours for option in entry_options), default=effort.work or 0.0),
        open_ended=effort.work is None,
        # $0 is a value too: the job waits while waiting is cheaper. A deadline overrides the value of time.
        value_of_time=None if value is None or deadline is not None else _usd(value),
    )


def _options(ranked: Iterator[Placement], effort: Effort) -> tuple[QueueOption, ...]:
    options: list[QueueOption] = []
    minimum = Money.ZERO
    for placement in ranked:
        offer = placement.offer
        # A later option never weighs less, even if the ranking is not by money.
        minimum = max(minimum, ranking_cost(placement))
        if offer.slots is None:
            # Unlimited capacity serves the job however long the queue is; later options would not be used.
            options.append(_option(placement, None, minimum, effort))
            break
        options.append(_option(placement, offer.capacity, minimum, effort))
    return tuple(options)


def _option(placement: Placement, pool: str | None, weighs: Money, effort: Effort) -> QueueOption:
    offer, cost = placement.offer, _usd(placement.expected_cost)
    share = None if offer.whole is None else offer.has
    if placement.duration is not None:
        spare = hours_of(margin(placement, effort))
        return QueueOption(offer.id, pool, hours_of(placement.duration), cost, _usd(weighs), spare, share)
    hours = ASSUMED_WORK / (placement.throughput * placement.useful_fraction)
    return QueueOption(offer.id, pool, hours, cost, _usd(weighs) * ASSUMED_WORK, share=share)


def _usd(amount: Money) -> float:
    return amount.micros / 1e6
