"""The inputs of a store's plans, except the job and the running attempts, as one small value."""

from dataclasses import dataclass

from sqlalchemy import Connection, exists, func, select, text

from broker.store.schema.jobs import SettingRow
from broker.store.schema.market import HoldingRow, PriceAcceptanceRow, PurchaseRow
from broker.store.schema.policy import PolicySetRow

CHANGED = "market_changed"
"""The setting with the number of the newest poll that changed more than the dates of offers."""
_RECORD = text(
    "INSERT INTO setting (key, value) VALUES (:key, :run) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)


@dataclass(frozen=True, slots=True)
class PlanStamp:
    """Equal stamps of one store mean equal offers and policies.

    ``policy``: the number of the version in force, 0 for none; ``runs``: the URL of the run store; ``changed``,
    ``accepted``: the numbers of the newest poll that changed more than the dates of offers, and of the newest
    acceptance of suspicious offers. ``owns``: capacity is recorded or being bought, whose offers change with time.
    """

    policy: int
    runs: str | None
    changed: str | None
    accepted: int
    owns: bool


_STAMP = select(
    select(func.coalesce(func.max(PolicySetRow.number), 0)).scalar_subquery(),
    select(SettingRow.value).where(SettingRow.key == "runs").scalar_subquery(),
    select(SettingRow.value).where(SettingRow.key == CHANGED).scalar_subquery(),
    select(func.coalesce(func.max(PriceAcceptanceRow.number), 0)).scalar_subquery(),
    exists(select(HoldingRow.number)),
    exists(select(PurchaseRow.id).where(~PurchaseRow.closed)),
)


def record_change(connection: Connection, run: int) -> None:
    """Record that offers changed, so that earlier plans are outdated.

    ``run``: the number of the poll that found it.
    """
    connection.execute(_RECORD, {"key": CHANGED, "run": str(run)})


def plan_stamp(connection: Connection) -> PlanStamp:
    policy, runs, changed, accepted, has_holdings, has_purchases = connection.execute(_STAMP).one()
    return PlanStamp(policy, runs, changed, accepted, bool(has_holdings or has_purchases))
