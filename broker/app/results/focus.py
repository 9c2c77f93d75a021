"""FOCUS exports as results. Amounts are USD."""

from __future__ import annotations

from typing import Self

from broker.app.billing.focus import FocusExport
from broker.app.results.values import Moment, Result
from broker.core.values.money import Money


class FocusExportResult(Result):
    """A written export. ``closed``: whether a repeated export gives the same file, which is so from ``closes``
    on; ``corrections``: rows about earlier months; the sums are of all rows."""

    file: str
    version: str
    month: str
    closed: bool
    closes: Moment
    rows: int
    corrections: int
    billed_cost: Money
    effective_cost: Money

    @classmethod
    def of(cls, found: FocusExport) -> Self:
        return cls.from_parts(
            found,
            file=str(found.file),
            month=found.month.name,
            closes=found.month.closes,
            billed_cost=found.billed,
            effective_cost=found.effective,
        )
