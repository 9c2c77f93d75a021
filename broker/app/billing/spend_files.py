"""A spending report as a file: CSV, or Parquet with the extra ``parquet``. A column for each dimension, then money
(USD, decimal), hours and counts.

People open CSV in spreadsheets, which calculate text that begins like a formula: names of places come from providers,
names of users from their machines. Such text gets an apostrophe before it; amounts, negative ones too, stay numbers.
"""

from __future__ import annotations

import csv
from decimal import Decimal
from pathlib import Path

from broker.app.billing.focus_files import FORMULA, check_output_path, load_parquet, open_draft
from broker.app.results.reports import SpendGroup, SpendReport

_MONEY = ("cash", "amortised", "sandbox", "held", "bought", "rented")
_HOURS = ("gpu_hours", "machine_hours")
_COUNTS = ("attempts", "jobs")


def write_spend(out: Path, report: SpendReport) -> None:
    """Write every row. Raises `InvalidInput` for another ending, an existing file, or a folder that is not writable,
    and `MissingExtra`."""
    check_output_path(out)
    dimensions, rows = report.by.split(","), report.rows
    header = [*dimensions, *_MONEY, *_HOURS, *_COUNTS]
    if out.suffix.lower() == ".csv":
        with open_draft(out) as draft, draft.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(map(_escape_formula, _cells(row)) for row in rows)
        return
    arrow, parquet = load_parquet()
    kinds = [
        *(arrow.string() for _ in dimensions),
        *(arrow.decimal128(38, 6) for _ in _MONEY),
        *(arrow.float64() for _ in _HOURS),
        *(arrow.int64() for _ in _COUNTS),
    ]
    columns = list(zip(*(_cells(row) for row in rows), strict=True)) or [()] * len(header)
    arrays = [arrow.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
    with open_draft(out) as draft:
        parquet.write_table(arrow.table(arrays, names=header), draft)


def _escape_formula(cell: str | Decimal | float | int) -> str | Decimal | float | int:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def _cells(row: SpendGroup) -> list[str | Decimal | float | int]:
    money = [Decimal(getattr(row, name).micros).scaleb(-6) for name in _MONEY]
    return [*row.values, *money, *(round(getattr(row, name), 6) for name in _HOURS), row.attempts, row.jobs]
