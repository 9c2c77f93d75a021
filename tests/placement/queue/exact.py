"""The optimal round, to measure the heuristic of `queue`: a mixed-integer programme solved by HiGHS.

One binary variable per job, option and start on a grid of ``step`` hours. With whole-step lengths and returns the grid
loses nothing: any round can be shifted left until every job starts at time 0, at the end of another, or at a return.
Priorities are solved in turn, each at the minimum that those above allow: first the fewest late jobs, then the least
burden. For a dozen jobs.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from broker.placement.queue.queue import (
    EPSILON,
    Free,
    QueueEntry,
    QueueOption,
    QueueRules,
    Turn,
    burden,
    latest_start,
    order_by_turn,
    weights,
)


def is_late(entry: QueueEntry, option: QueueOption, start: float) -> bool:
    """Whether it would miss its deadline there."""
    return start > latest_start(entry, option) + EPSILON


def place_exactly(
    entries: Sequence[QueueEntry], free: Mapping[str, Free], rules: QueueRules | None = None, *, step: float = 1.0
) -> list[Turn]:
    """As `queue.place`, optimal on the grid.

    Raises ValueError for a job that none of its options can hold.
    """
    rules = rules or QueueRules()
    weight, ordered = weights(entries, rules), order_by_turn(entries, rules.running)
    slots = _horizon(ordered, free, step)
    tiers = groupby(ordered, key=lambda entry: entry.priority)
    placed = [
        (tier, job, option, slot)
        for tier, (_, group) in enumerate(tiers)
        for job in group
        for option in job.options
        for slot in range(1 if option.pool is None else slots)
    ]
    columns = [(job, option, slot) for _, job, option, slot in placed]
    # The priority's place, the burden, and whether it is late.
    costs = [
        (tier, burden(job, option, slot * step, weight[job.id], rules), is_late(job, option, slot * step))
        for tier, job, option, slot in placed
    ]
    rows: list[tuple[int, int, float]] = []
    lower: list[float] = []
    upper: list[float] = []
    placeable = [job for job in ordered if job.options]
    for row, job in enumerate(placeable):
        rows += [(row, column, 1.0) for column, (owner, _, _) in enumerate(columns) if owner.id == job.id]
        lower.append(1.0)
        upper.append(1.0)
    row_of: dict[tuple[str, int], int] = {}
    for column, (job, option, slot) in enumerate(columns):
        if option.pool is None:
            continue
        for busy in range(slot, slot + max(round(option.hours / step), 1)):
            row = row_of.setdefault((option.pool, busy), len(lower))
            if row == len(lower):
                lower.append(0.0)
                upper.append(float(_free_at(free[option.pool], busy * step)))
            rows.append((row, column, float(job.nodes)))
    chosen = np.zeros(len(columns))
    objectives = []
    for tier in range(max((tier for tier, _, _ in costs), default=-1) + 1):
        lateness = np.array([float(late) if of == tier else 0.0 for of, _, late in costs])
        objectives += [lateness] if lateness.any() else []
        objectives.append(np.array([cost if of == tier else 0.0 for of, cost, _ in costs]))
    for objective in objectives:
        at = np.array(rows)
        matrix = csr_array((at[:, 2], (at[:, 0].astype(int), at[:, 1].astype(int))), shape=(len(lower), len(columns)))
        solved = milp(
            objective,
            integrality=np.ones(len(columns)),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix, lower, upper),
            options={"mip_rel_gap": 0.0},
        )
        if solved.x is None:
            raise ValueError(f"the queue cannot be placed: {solved.message}")
        chosen = np.round(solved.x)
        # Lower priorities must not make this one worse.
        rows += [(len(lower), column, cost) for column, cost in enumerate(objective) if cost]
        lower.append(0.0)
        upper.append(float(objective @ chosen) * (1 + 1e-9) + 1e-9)
    turns = {
        job.id: Turn(job, option, slot * step, is_late(job, option, slot * step))
        for (job, option, slot), taken in zip(columns, chosen, strict=True)
        if taken
    }
    return [turns.get(job.id, Turn(job, None, 0.0, late=True)) for job in ordered]


def _horizon(entries: Sequence[QueueEntry], free: Mapping[str, Free], step: float) -> int:
    """Enough slots for every job to wait for all the others."""
    longest = [max((o.hours for o in job.options if o.pool is not None), default=0.0) for job in entries]
    last = max((at for of in free.values() for at, _ in of.steps), default=0.0)
    return round((sum(longest) + last) / step) + 1


def _free_at(of: Free, at: float) -> int:
    return max((step for step in of.steps if step[0] <= at + 1e-9), default=(0.0, 0), key=lambda step: step[0])[1]
