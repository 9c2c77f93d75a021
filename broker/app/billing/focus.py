"""The export of a month as FOCUS, the FinOps Open Cost and Usage Specification."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from broker.app.billing.focus_files import writing
from broker.app.billing.months import begun
from broker.app.store_identity import store_id
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, UnknownName
from broker.core.values.money import Money
from broker.finops.focus.charges import GPU_HOURS, Value, charges
from broker.finops.focus.columns import VERSIONS
from broker.finops.focus.idle import unused
from broker.finops.focus.months import BillingMonth

if TYPE_CHECKING:
    from broker.store.jobs.reading import StoreReading


@dataclass(frozen=True, slots=True)
class FocusExport:
    """The written export: rows, sums of BilledCost and EffectiveCost (USD), and the number of rows that correct earlier
    months. ``closed``: whether a repeated export gives the same file."""

    file: Path
    version: str
    month: BillingMonth
    closed: bool
    rows: int
    corrections: int
    billed: Money
    effective: Money


def export(broker: Broker, version: str, month: str, out: Path, *, replace: bool = False) -> FocusExport:
    """Write the entries billed in the ``month`` (``2026-11``, UTC), and the unused part of held capacity, to a ``.csv``
    or ``.parquet`` file, row by row.

    Raises `UnknownName` for an unknown version, `InvalidInput` for an invalid month, and for an existing file without
    ``replace``, `MissingExtra` for Parquet and `StoreProblem`.
    """
    if version not in VERSIONS:
        raise UnknownName("FOCUS version", version, VERSIONS)
    billing = begun(broker, month)
    if out.exists() and not replace:
        raise InvalidInput("the file exists already", where=str(out), hint="write to another one, or add --force")
    account = f"gpubroker-{store_id(broker.store)}"
    rows = corrections = billed = effective = 0
    as_of = min(broker.clock.now(), billing.closes)
    with writing(out, version) as writer, broker.store.reading() as look:
        for row in _rows(look, billing, as_of, account):
            writer.write(row)
            rows += 1
            corrections += row["ChargeClass"] is not None
            billed += int(row["BilledCost"])  # type: ignore[arg-type]  # of money columns: whole micro-dollars
            effective += int(row["EffectiveCost"])  # type: ignore[arg-type]  # likewise
    closed = broker.clock.now() >= billing.closes
    return FocusExport(out, version, billing, closed, rows, corrections, Money(billed), Money(effective))


def _rows(look: StoreReading, month: BillingMonth, as_of: datetime, account: str) -> Iterator[dict[str, Value]]:
    """The records of the month at that time (UTC)."""
    used: defaultdict[str, Decimal] = defaultdict(Decimal)
    for spent in look.billed_in(month):
        for row in charges(spent, month, account):
            if row.get("CommitmentDiscountUnit") == GPU_HOURS and row["ChargeClass"] is None:
                used[str(row["CommitmentDiscountId"])] += row["CommitmentDiscountQuantity"]  # type: ignore[operator]  # a Decimal, by its unit
            yield row
    held = [recorded.holding for recorded in look.held_as_of(as_of)]
    yield from unused(held, used, month, as_of, account)
