"""The export of a month as FOCUS, the FinOps Open Cost and Usage Specification: CSV, and Parquet with the extra
``parquet``. Rows are written as they come. A file gets its name once it is complete, and only its owner can read it."""

from __future__ import annotations

import csv
import os
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, Protocol

from broker.app.billing.months import resolve_begun_month
from broker.app.billing.report_documents import FocusExportResult
from broker.app.store_identity import store_id
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, MissingExtra, UnknownName
from broker.core.values.money import Money
from broker.ledger.finops.focus.allocated import allocated_charges
from broker.ledger.finops.focus.charges import GPU_HOURS, KINDS, VERSIONS, ColumnKind, Value, charges, header
from broker.ledger.finops.focus.idle import unused_rows
from broker.ledger.finops.focus.months import BillingMonth
from broker.ledger.finops.tokens import timeline

if TYPE_CHECKING:
    from broker.store.jobs.reader import StoreReader


FORMATS = (".csv", ".parquet")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Leading characters that make spreadsheets evaluate a cell as a formula. In CSV an apostrophe is put before them."""

# Named by people, their machines, or providers.
_ESCAPED_COLUMNS = tuple(
    name
    for name in KINDS
    if KINDS[name] is ColumnKind.TEXT
    and (
        name in {"InvoiceIssuerName", "ProviderName", "PublisherName", "RegionId", "RegionName", "SkuId", "SkuPriceId"}
        or name.startswith(("Commitment", "Resource", "SubAccount", "x_"))
    )
)
_FORMULA_STARTS = frozenset(FORMULA)
_GROUP_ROWS = 10_000  # rows of a group in Parquet
_DIGITS, _PLACES = 38, 12  # of a decimal in Parquet
_MICROS = 10**6

Row = Mapping[str, Value]


def check_output_path(out: Path, endings: Sequence[str] = FORMATS, *, replace: bool | None = None) -> None:
    """Raises `InvalidInput` for a name without one of the endings, and for an existing file without ``replace`` (None:
    the command has no option for that)."""
    if out.suffix.lower() not in endings:
        hint = f"end in {' or '.join(endings)}, such as {out.name}{endings[0]}"
        raise InvalidInput(f"cannot write {out.suffix or 'a file without an ending'}", where=str(out), hint=hint)
    if out.exists() and not replace:
        hint = "name another file" + ("" if replace is None or out.is_dir() else ", or add --force")
        raise InvalidInput(f"the {'folder' if out.is_dir() else 'file'} exists already", where=str(out), hint=hint)
    if not out.parent.is_dir():
        hint = f"make it: mkdir -p {shlex.quote(str(out.parent))}"
        raise InvalidInput(f"there is no folder {out.parent}", where=str(out), hint=hint)


class FocusWriter(Protocol):
    """Takes rows by the column names of 1.2."""

    def write(self, row: Row) -> None: ...


@contextmanager
def open_export(out: Path, version: str) -> Iterator[FocusWriter]:
    """A writer of the file, in the format of its ending. An exception leaves no file, or the previous one unchanged.
    Raises `InvalidInput` for another ending or a folder that is not writable, and `MissingExtra`."""
    check_output_path(out, replace=True)
    open_format_writer = _csv_writer if out.suffix.lower() == ".csv" else _parquet_writer
    with open_draft(out) as draft, open_format_writer(draft, version) as writer:
        yield writer


@contextmanager
def open_draft(out: Path) -> Iterator[Path]:
    """A private temporary file that is renamed to ``out`` at the end, and deleted after an exception. Raises
    `InvalidInput` for a folder that is not writable."""
    draft: Path | None = None
    try:
        descriptor, name = mkstemp(".draft", f".{out.name}.", out.parent)  # mode 0600; a new file, never a link
        os.close(descriptor)
        draft = Path(name)
        yield draft
        draft.replace(out)
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror or error}", where=str(out)) from error
    finally:
        if draft is not None:
            draft.unlink(missing_ok=True)


class _CsvWriter:
    def __init__(self, rows: Any) -> None:
        self._rows = rows
        # With a million rows, each step of a loop takes seconds; most columns need no conversion.
        self._columns = [
            (name, _escaped_text if name in _ESCAPED_COLUMNS else _FORMATTERS.get(kind)) for name, kind in KINDS.items()
        ]

    def write(self, row: Row) -> None:
        value = row.get
        self._rows.writerow(
            [
                cell if (cell := value(name)) is None or format_cell is None else format_cell(cell)
                for name, format_cell in self._columns
            ]
        )


@contextmanager
def _csv_writer(draft: Path, version: str) -> Iterator[_CsvWriter]:
    with draft.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(header(version))
        yield _CsvWriter(rows)


# Several columns of a row have the same value: it is formatted once.
@lru_cache(maxsize=1024)
def _money_text(micros: Any) -> str:
    whole, fraction = divmod(abs(micros), _MICROS)
    return f"{'-' if micros < 0 else ''}{whole}.{fraction:06d}"


@lru_cache(maxsize=1024)
def _decimal_text(value: Any) -> str:
    # Whole numbers get a decimal point, because readers otherwise read a column of them as integers.
    whole, _, fraction = f"{value:f}".partition(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}"


@lru_cache(maxsize=1024)
def _time_text(at: Any) -> str:
    return f"{at.isoformat()[:19]}Z"


@lru_cache(maxsize=1024)
def _escaped_text(value: Any) -> str:
    return f"'{value}" if value[:1] in _FORMULA_STARTS else str(value)


_FORMATTERS: Mapping[ColumnKind, Callable[[Any], str]] = {
    ColumnKind.MONEY: _money_text,
    ColumnKind.DECIMAL: _decimal_text,
    ColumnKind.TIME: _time_text,
}


class _ParquetWriter:
    def __init__(self, arrow: Any, file: Any, schema: Any) -> None:
        self._arrow, self._file, self._schema = arrow, file, schema
        self._rows: list[Row] = []

    def write(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) == _GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the rows that are buffered."""
        if self._rows:
            columns = [
                self._arrow.array(_values(self._rows, name, kind), self._schema.field(number).type)
                for number, (name, kind) in enumerate(KINDS.items())
            ]
            self._file.write_table(self._arrow.Table.from_arrays(columns, schema=self._schema))
            self._rows.clear()


@contextmanager
def _parquet_writer(draft: Path, version: str) -> Iterator[_ParquetWriter]:
    arrow, parquet = load_parquet()
    types = {
        ColumnKind.TEXT: arrow.string(),
        ColumnKind.MONEY: arrow.decimal128(_DIGITS, _PLACES),
        ColumnKind.DECIMAL: arrow.decimal128(_DIGITS, _PLACES),
        ColumnKind.TIME: arrow.timestamp("us", tz="UTC"),
    }
    schema = arrow.schema(list(zip(header(version), (types[kind] for kind in KINDS.values()), strict=True)))
    with parquet.ParquetWriter(draft, schema) as file:
        writer = _ParquetWriter(arrow, file, schema)
        yield writer
        writer.flush()


def _values(rows: Sequence[Row], name: str, kind: ColumnKind) -> list[str | Decimal | datetime | None]:
    # The kind of a column decides what its values are, which types cannot express: of money, whole micro-dollars.
    if kind is ColumnKind.MONEY:
        return [None if (value := row.get(name)) is None else Decimal(int(value)).scaleb(-6) for row in rows]  # type: ignore[arg-type]
    return [row.get(name) for row in rows]  # type: ignore[misc]


def write_table(out: Path, columns: Mapping[str, type], rows: Sequence[Sequence[Any]]) -> None:
    """Write rows of texts, decimals, floats, integers and times to a .csv or .parquet file. Raises `InvalidInput` for a
    folder that is not writable, and `MissingExtra`."""
    if out.suffix.lower() == ".csv":
        with open_draft(out) as draft, draft.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(map(plain_cell, row) for row in rows)
        return
    arrow, parquet = load_parquet()
    kinds = {str: arrow.string(), Decimal: arrow.decimal128(_DIGITS, 6), float: arrow.float64(), int: arrow.int64()}
    kinds[datetime] = arrow.timestamp("us", tz="UTC")
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [arrow.array(list(cells), kinds[kind]) for cells, kind in zip(values, columns.values(), strict=True)]
    with open_draft(out) as draft:
        parquet.write_table(arrow.table(arrays, names=list(columns)), draft)


def plain_cell(cell: Any) -> Any:
    """A cell of a CSV file: text that begins like a formula has an apostrophe before it, times are UTC."""
    if isinstance(cell, str):
        return _escaped_text(cell)
    return _time_text(cell) if isinstance(cell, datetime) else cell


def load_parquet() -> tuple[Any, Any]:
    """The modules ``pyarrow`` and ``pyarrow.parquet``. Raises `MissingExtra`."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("parquet", "a Parquet file") from error
    return pyarrow, pyarrow.parquet


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
        for row in _charge_rows(reader, billing, as_of, account):
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


def _charge_rows(reader: StoreReader, month: BillingMonth, as_of: datetime, account: str) -> Iterator[dict[str, Value]]:
    """The records of the month at that time (UTC)."""
    used_hours: defaultdict[str, Decimal] = defaultdict(Decimal)
    counts = reader.token_counts(None, month.start, month.end)
    served = {key: timeline(of_attempt, month.start, month.end) for key, of_attempt in counts.items()}
    for entry in reader.billed_in(month):
        for row in charges(entry, month, account):
            if row.get("CommitmentDiscountUnit") == GPU_HOURS and row["ChargeClass"] is None:
                used_hours[str(row["CommitmentDiscountId"])] += row["CommitmentDiscountQuantity"]  # type: ignore[operator]  # a Decimal, by its unit
            stretches = served.get((entry.entry.tags.job_id, entry.entry.tags.attempt or 0), ())
            yield from allocated_charges(row, stretches, month.start)
    holdings = [recorded.holding for recorded in reader.held_as_of(as_of)]
    yield from unused_rows(holdings, used_hours, month, as_of, account)
