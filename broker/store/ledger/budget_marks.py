"""The marks that budgets have passed, with the time at which this was noticed, so that people are notified once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import and_, insert, select

from broker.core.notices import Notice
from broker.core.values.money import Money
from broker.store import outbox
from broker.store.engine.database import Database
from broker.store.engine.times import from_micros, to_micros
from broker.store.schema.ledger import BudgetMarkRow


class BudgetMarks:
    """Reached as ``store.budget_marks``.

    Every method is one transaction and may raise `StoreProblem`. A mark belongs to a budget, period and amount: after a
    change of the amount it can be passed again.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def since(self, budget: str, period_start: datetime, amount: Money) -> Mapping[str, datetime]:
        """The passed marks, with the time at which this was noticed (UTC)."""
        is_same = and_(
            BudgetMarkRow.budget == budget,
            BudgetMarkRow.period_start == to_micros(period_start),
            BudgetMarkRow.amount == amount.micros,
        )
        with self._database.reading() as connection:
            return {
                row.mark: from_micros(row.at)
                for row in connection.execute(select(BudgetMarkRow.mark, BudgetMarkRow.at).where(is_same))
            }

    def passed(
        self,
        budget: str,
        period_start: datetime,
        amount: Money,
        notices: Mapping[str, Notice],
        quiet: Collection[str],
        targets: Mapping[str, Iterable[str]],
        at: datetime,
    ) -> Sequence[str]:
        """Record passed marks and queue their alerts, in one transaction; returns the marks that were not recorded
        before, each to one process only.

        Each alert goes to the ``targets`` of its mark; those of the ``quiet`` marks are not sent.
        """
        row = {"budget": budget, "period_start": to_micros(period_start), "amount": amount.micros}
        with self._database.writing() as connection:
            is_same = and_(*(getattr(BudgetMarkRow, name) == value for name, value in row.items()))
            recorded = set(connection.scalars(select(BudgetMarkRow.mark).where(is_same)))
            new = [mark for mark in notices if mark not in recorded]
            for mark in new:
                connection.execute(insert(BudgetMarkRow).values(**row, mark=mark, at=to_micros(at)))
                if mark not in quiet:
                    outbox.add(connection, notices[mark], targets[mark], at)
        return new
