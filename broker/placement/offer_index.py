"""The best placements of a job on an indexed market: the head of `make_plan`'s ranking, quickly.

Offers that differ only in name, price and size rank by price. They form a group, sorted by price. A heap orders the
groups, first by a lower bound of the cheapest member's cost (work without interruptions at its price), then by its
exact cost. An offer that leaves the heap with an exact cost is the next in the ranking; the next member of its group
takes its place. So only a few of 100,000 offers are priced.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import count, islice
from typing import Any

from broker.core.job.jobs import Job, MachineRequest
from broker.core.job.placements import Placement
from broker.core.job.reasons import Reason, Rejection
from broker.core.market.offers import Availability, Offer
from broker.placement.planner import Judge
from broker.placement.pricing.estimate import Hazard
from broker.placement.pricing.run_model import Effort, speed
from broker.placement.ranking import RankKey

# Reasons that apply to a whole group.
_ABOUT_THE_GROUP = frozenset(
    {
        Reason.SANDBOX_NOT_ASKED_FOR,
        Reason.WRONG_PROVIDER,
        Reason.WRONG_REGION,
        Reason.WRONG_CAPACITY_TYPE,
        Reason.WRONG_ACCELERATOR,
        Reason.NOT_A_CPU_OFFER,
        Reason.TOO_FEW_ACCELERATORS,
        Reason.TOO_MANY_ACCELERATORS,
        Reason.INTERCONNECT_TOO_WEAK,
        Reason.NO_ENGINE,
        Reason.ENGINE_NOT_INSTALLED,
        Reason.ENGINE_CANNOT,
        Reason.RUNS_OUT_OF_REACH,
        Reason.NEEDS_COMMITMENT,
        Reason.TOO_OFTEN_INTERRUPTED,
        Reason.MISSES_DEADLINE,
        Reason.REFERENCE_PRICE,
    }
)
# Upper limit of the number of cost terms; each is rounded to a micro-dollar.
_ROUNDING = 32
# Cost, tie-breaker, placement (None while the cost is a lower bound), the rest of the group, and whether the pool is
# limited.
_HeapEntry = tuple[RankKey, int, Placement | None, Iterator[Offer], bool]


@dataclass(frozen=True, slots=True)
class Board:
    """Offers by accelerator, in groups, each cheapest first. ``hazard``: the interruption rates used for grouping."""

    hazard: Hazard
    groups: Mapping[str | None, Sequence[Sequence[Offer]]]

    @classmethod
    def of(cls, offers: Iterable[Offer], hazard: Hazard) -> Board:
        """Index the available offers that have a price; the others serve no job. Takes a second for 200,000."""
        grouped: dict[tuple[Any, ...], list[Offer]] = defaultdict(list)
        for offer in offers:
            if offer.availability in (Availability.UNAVAILABLE, Availability.NO_QUOTA) or not offer.has_valid_price():
                continue
            grouped[
                (
                    offer.accelerator,
                    offer.count,
                    offer.provider,
                    offer.region,
                    offer.zone,
                    offer.capacity_type,
                    offer.term_months,
                    offer.money,
                    offer.engine,
                    offer.interconnect,
                    offer.reference,
                    offer.billing,
                    offer.slots is None,
                    hazard(offer),
                )
            ].append(offer)
        groups: dict[str | None, list[list[Offer]]] = defaultdict(list)
        for (accelerator, *_), members in grouped.items():
            members.sort(key=lambda offer: (offer.price, offer.id))
            groups[accelerator].append(members)
        return cls(hazard, dict(groups))

    def judge(self, job: Job, **arguments: Any) -> Judge:
        """A judge for `ranked` with this board's interruption rates. ``how``: arguments of `Judge.of`."""
        return Judge.of(job, **arguments, hazard=self.hazard)

    def ranked(self, judge: Judge, *, most_limited: float = math.inf) -> Iterator[Placement]:
        """The placements of `make_plan` in order, computed lazily; at most ``most_limited`` on pools with a known
        number of machines. Raises ValueError for conditions that rank by emissions.
        """
        if judge.conditions.by_carbon:
            raise ValueError("a board ranks by cost alone")
        job = judge.request.job
        accelerators = [machine.accelerator for machine in job.resources] or [None]
        if None in accelerators or len(set(accelerators)) < len(accelerators):
            # An offer may serve several of the machines, so the order of prices is not the order of costs.
            yield from self._rank_all(judge, most_limited)
            return
        tie = count()
        heap = list(self._lower_bounds(judge, tie))
        heapq.heapify(heap)
        while heap:
            _, _, placement, members_left, limited = heapq.heappop(heap)
            if limited and most_limited <= 0:
                continue
            if placement is not None:
                most_limited -= limited
                yield placement
            for offer in members_left:
                outcome = judge(offer)
                if not isinstance(outcome, Rejection):
                    heapq.heappush(heap, (outcome[0], next(tie), outcome[1], members_left, limited))
                    break
                if outcome.reason in _ABOUT_THE_GROUP:
                    break

    def _lower_bounds(self, judge: Judge, tie: Iterator[int]) -> Iterator[_HeapEntry]:
        """An entry for each group that may serve the job, by the least that its cheapest member can cost."""
        job = judge.request.job
        for machine, request in enumerate(job.resources):
            hours = _bare_hours(judge.effort, request, request.count)
            for members in self.groups.get(request.accelerator, ()):
                cheapest = members[0]
                if cheapest.count < request.count:
                    continue
                if request.at_least:
                    hours = _bare_hours(judge.effort, request, cheapest.count)
                bound = _lower_bound(cheapest, hours, judge)
                rank_key = (0.0, judge.place(cheapest), machine if job.ordered else 0, bound, timedelta(0), 0, "")
                yield rank_key, next(tie), None, iter(members), cheapest.slots is not None

    def _rank_all(self, judge: Judge, most_limited: float) -> Iterator[Placement]:
        outcomes = (judge(o) for groups in self.groups.values() for members in groups for o in members)
        for _, placement in sorted((outcome for outcome in outcomes if not isinstance(outcome, Rejection)), key=_key):
            limited = placement.offer.slots is not None
            if not limited or most_limited > 0:
                most_limited -= limited
                yield placement

    def best(self, job: Job, limit: int, **arguments: Any) -> list[Placement]:
        """The ``limit`` best placements, in order. ``how``: arguments of `Judge.of`."""
        return list(islice(self.ranked(self.judge(job, **arguments)), limit))


def _key(entry: tuple[RankKey, Placement]) -> RankKey:
    return entry[0]


def _bare_hours(effort: Effort, machine: MachineRequest, count: int) -> float:
    """Hours of the work without interruptions (or of one useful hour) on ``count`` accelerators of the machine."""
    throughput, _ = speed(effort, machine.accelerator, count)
    return (1.0 if effort.work is None else effort.work) / throughput


def _lower_bound(offer: Offer, hours: float, judge: Judge) -> int:
    """A lower bound of the weighed cost in micro-dollars: ``hours`` at the current price, and their value of time."""
    assert offer.price is not None
    if offer.divided:  # the job may take a part of the machine, which costs less
        return -_ROUNDING
    return int((offer.price.micros * judge.effort.nodes + judge.value_of_time.micros) * hours) - _ROUNDING
