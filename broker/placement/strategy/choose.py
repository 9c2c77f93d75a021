"""Chooses the strategy of a job: planned if there is enough history, else Uniform Progress. Few jobs wait for spot, and
NumPy takes longer to import than the rest of a command, so it is imported for the first of them.
"""

from collections.abc import Mapping, Sequence

from broker.placement.strategy.pacing import UniformProgress
from broker.placement.strategy.situation import StrategySession, StrategyTask

STALE = 6.0
"""Hours without a record after which history is too old to plan on."""
HOUR = 3600.0


def session_for(
    task: StrategyTask,
    pools: Sequence[str],
    history: Mapping[str, Sequence[bool]],
    price: Mapping[str, Sequence[float]],
    *,
    gap: float,
    on_demand_price: float,
    age: float = 0.0,
) -> tuple[StrategySession, str]:
    """A session for ``task``, which may use spot capacity of ``pools``, and the reason for the choice of strategy.

    ``history`` (availability) and ``price`` (USD per hour): per pool one entry every ``gap`` seconds, oldest first.
    All end together, ``age`` seconds before the job starts. They must contain ``pools``, and may contain further pools
    of the same family to learn from. Takes a fraction of a second and up to 300 MB, mostly for the plan, which the
    session keeps.
    """
    if age > STALE * HOUR:
        return UniformProgress(task), f"no plan: the history ends {age / HOUR:.1f} h before the job"
    if any(pool not in history for pool in pools) or not pools:
        return UniformProgress(task), "no plan: pools without a history"
    if 2 * task.changeover > task.deadline - task.work:
        return UniformProgress(task), "no plan: less slack than two changeovers"
    from broker.placement.strategy.prepare import learn, prepare, start  # imports NumPy

    learned = learn(history, price, gap, market=pools if len(pools) > 1 else ())
    if not learned.enough:
        return UniformProgress(task), "no plan: too few spells of capacity on record"
    return start(prepare(learned, pools, task, on_demand_price), task), "planned"
