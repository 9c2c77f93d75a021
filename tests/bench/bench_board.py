"""How long ranking on a prepared market takes: 100,000 offers, one job. Run: python -m tests.bench.bench_board

Figures are CPU seconds of this process, the best of three. At most 0.05 s for one job, warm.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from broker.core.job.jobs import MachineRequest, Priority, Work
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.money import Money
from broker.placement.offer_index import Board
from broker.placement.pricing.priors import interruption_rate
from broker.placement.queue.entry import entry_of
from broker.placement.queue.queue import Free, place
from tests.bench.bench_plan import CONDITIONS, JOB, NOW, market

HOW: dict[str, Any] = {"now": NOW, "submitted_at": NOW, "conditions": CONDITIONS}


def measure(title: str, work: Callable[[], Any], at_most: str = "") -> None:
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    print(f"{title:<58} {best:8.4f} s CPU  {at_most}")


def main() -> None:
    whole = market(100_000)
    alike = market(100_000, ("H100",), (8,))
    measure("100,000 offers: made ready", lambda: Board.of(whole, interruption_rate))
    measure_ranking("a whole market", Board.of(whole, interruption_rate))
    measure_ranking("every offer would do", Board.of(alike, interruption_rate))
    entries, free = queue_of(2_000, 5_000)
    measure("2,000 jobs × 5,000 offers: options and a round", lambda: place(*queue_of(2_000, 5_000)), "(at most 10 s)")
    measure("2,000 jobs: a round", lambda: place(entries, free))


def measure_ranking(title: str, board: Board) -> None:
    limit = "(at most 0.05 s)"
    open_ended = JOB.model_copy(update={"deadline": None})
    measure(f"100,000 offers, {title}: the best", lambda: board.best(open_ended, 1, **HOW), limit)
    measure(f"100,000 offers, {title}: the best 100", lambda: board.best(open_ended, 100, **HOW), limit)
    measure(f"100,000 offers, {title}: 100 with a deadline", lambda: board.best(JOB, 100, **HOW), limit)
    hurried = open_ended.model_copy(update={"value_of_time": Money.usd(50)})
    measure(f"100,000 offers, {title}: 100, time has its price", lambda: board.best(hurried, 100, **HOW), limit)


def queue_of(jobs: int, offers: int) -> Any:
    """Jobs of many kinds, and the entries they make on a market of which some pools are limited."""
    chance = random.Random(2)
    listed = market(offers)
    ours = [_ours(one, chance.randint(1, 20)) if n % 20 == 0 else one for n, one in enumerate(listed)]
    board = Board.of(ours, interruption_rate)
    cards = ("L4", "A100", "H100", "H200", "V100")
    entries = []
    for n in range(jobs):
        machine = MachineRequest(accelerator=chance.choice(cards), count=chance.choice((1, 2, 4, 8)))
        job = JOB.model_copy(
            update={
                "name": f"job-{n}",
                "team": chance.choice("abcdefgh"),
                "priority": chance.choice(tuple(Priority)),
                "resources": (machine,),
                "num_nodes": chance.choice((1, 1, 1, 2, 4)),
                "work": Work(duration=timedelta(hours=chance.randint(1, 90)), accelerator="A100-80GB", count=8),
                "deadline": chance.choice((None, timedelta(hours=2_000))),
            }
        )
        entries.append(entry_of(f"job-{n}", job, board, **{**HOW, "submitted_at": NOW - timedelta(minutes=n)}))
    free = {one.pool: Free.of(one.slots) for one in ours if one.slots is not None}
    return entries, free


def _ours(offer: Offer, slots: int) -> Offer:
    """The machine as a reservation of so many, cheaper than all else."""
    return replace(offer, capacity_type=CapacityType.RESERVED, price=Money(200_000), slots=slots)


if __name__ == "__main__":
    main()
