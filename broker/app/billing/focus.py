"""The export of a month as FOCUS, the FinOps Open Cost and Usage Specification."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from broker.app.billing.focus_files import check_output_path, open_export
from broker.app.billing.months import resolve_begun_month
from broker.app.billing.report_documents import FocusExportResult
from broker.app.store_identity import store_id
from broker.app.wiring import Broker
from broker.core.errors import UnknownName
from broker.core.values.money import Money
from broker.ledger.finops.focus.charges import GPU_HOURS, VERSIONS, Value, charges
from broker.ledger.finops.focus.idle import unused_rows
from broker.ledger.finops.focus.months import BillingMonth

if TYPE_CHECKING:
    from broker.store.jobs.reader import StoreReader


def export(broker: Broker, version: str, month: str, out: Path, *, replace: bool = False) -> FocusExportResult:
    """Write the entries billed in the ``month`` (``2026-11``, UTC), and the unused part of held capacity, to a ``.csv``
    or ``.parquet`` file, row by row.

    Raises `UnknownName` for an unknown version, `InvalidInput` for an invalid month, and for an existing file without
    ``replace``, `MissingExtra` for Parquet and `StoreProblem`.
    """
    if version not in VERSIONS:
        raise UnknownName("FOCUS version", version, VERSIONS)
    billing = resolve_begun_month(broker, month, "UTC")
    check_output_path(out, replace=replace)
    account = f"gpubroker-{store_id(broker.store)}"
    rows = corrections = billed = effective = 0
    as_of = min(broker.clock.now(), billing.closes)
    with open_export(out, version) as writer, broker.store.reading() as reader:
        for row in _rows(reader, billing, as_of, account):
            writer.write(row)
            rows += 1
            corrections += row["ChargeClass"] is not None
            billed += int(row["BilledCost"])  # type: ignore[arg-type]  # of money columns: whole micro-dollars
            effective += int(row["EffectiveCost"])  # type: ignore[arg-type]  # likewise
    return FocusExportResult(
        file=str(out),
        version=version,
        month=billing.name,
        timezone=billing.timezone,
        closed=broker.clock.now() >= billing.closes,
        closes=billing.closes,
        rows=rows,
        corrections=corrections,
        billed_cost=Money(billed),
        effective_cost=Money(effective),
    )


def _rows(reader: StoreReader, month: BillingMonth, as_of: datetime, account: str) -> Iterator[dict[str, Value]]:
    """The records of the month at that time (UTC)."""
    used_hours: defaultdict[str, Decimal] = defaultdict(Decimal)
    for entry in reader.billed_in(month):
        for row in charges(entry, month, account):
            if row.get("CommitmentDiscountUnit") == GPU_HOURS and row["ChargeClass"] is None:
                used_hours[str(row["CommitmentDiscountId"])] += row["CommitmentDiscountQuantity"]  # type: ignore[operator]  # a Decimal, by its unit
            yield row
    holdings = [recorded.holding for recorded in reader.held_as_of(as_of)]
    yield from unused_rows(holdings, used_hours, month, as_of, account)
