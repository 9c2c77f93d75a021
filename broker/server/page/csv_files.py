"""Lists as CSV files, for spreadsheets."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from io import StringIO
from itertools import chain
from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import Response, StreamingResponse

from broker.app.billing.focus import plain_cell
from broker.core.values.money import Money

AsCsv = Annotated[bool, Query(alias="csv")]
"""Whether a list is asked for as a file."""


def csv_file(name: str, columns: str, rows: Iterable[object]) -> Response:
    """The file ``name``.csv of these rows, written as they come. ``columns``: attributes of a row, or of its parts
    (``cost.cash``), separated by spaces. Money in USD, times in UTC, lengths of time in seconds; unknown is empty; text
    that a spreadsheet would take for a formula begins with an apostrophe."""
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return StreamingResponse(_lines(columns.split(), rows), headers=headers, media_type="text/csv; charset=utf-8")


def _lines(columns: Sequence[str], rows: Iterable[object]) -> Iterator[str]:
    buffer = StringIO()
    writer = csv.writer(buffer)
    for cells in chain([columns], ([_cell(row, column) for column in columns] for row in rows)):
        writer.writerow(cells)
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _cell(row: Any, column: str) -> Any:
    for part in column.split("."):
        row = None if row is None else getattr(row, part)
    if isinstance(row, Money):
        return row.as_json()
    if isinstance(row, timedelta):
        return row.total_seconds()
    return plain_cell("; ".join(map(str, row)) if isinstance(row, list | tuple) else row)
