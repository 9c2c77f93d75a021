"""FOCUS exports as results. Amounts are USD."""

from __future__ import annotations

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
