"""The inputs of a store's plans, besides the job and the running attempts, as one small value."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, exists, func, select

from broker.store.tables.market import ACCEPTANCE, POLL
from broker.store.tables.policy import POLICY
from broker.store.tables.procurement import HOLDING, PURCHASE
from broker.store.tables.setting import SETTING


@dataclass(frozen=True, slots=True)
class PlanStamp:
    """Equal stamps of one store mean equal offers and policies. ``policy``: the number of the version in force, 0 for
    none; ``runs``: the place of run folders; ``poll``, ``accepted``: the newest poll and the newest resolution of
    doubts. ``owns``: capacity is on record or being bought, whose offers change with time."""

    policy: int
    runs: str | None
    poll: int
    accepted: int
    owns: bool


_STAMP = select(
    select(func.coalesce(func.max(POLICY.c.number), 0)).scalar_subquery(),
    select(SETTING.c.value).where(SETTING.c.key == "runs").scalar_subquery(),
    select(func.coalesce(func.max(POLL.c.id), 0)).scalar_subquery(),
    select(func.coalesce(func.max(ACCEPTANCE.c.number), 0)).scalar_subquery(),
    exists(select(HOLDING.c.number)),
    exists(select(PURCHASE.c.id).where(~PURCHASE.c.closed)),
)


def plan_stamp(connection: Connection) -> PlanStamp:
    """The stamp as of this snapshot."""
    policy, runs, poll, accepted, holds, buys = connection.execute(_STAMP).one()
    return PlanStamp(policy, runs, poll, accepted, bool(holds or buys))
