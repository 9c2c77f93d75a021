"""Charges by attempt from a provider's FOCUS file (1.0 to 1.4), read row by row: CSV, or Parquet with the extra
``parquet``.

Charges of one attempt for adjoining times are added up, so that memory grows with attempts and not with rows. An
attempt is identified by the tag ``gpubroker`` of its machine (with or without a prefix such as ``user:``), else by the
resource's name or the last part of its id. All other charges are one sum for each provider.

Clouds deliver the whole month again with each run, and keep the files of earlier runs next to it. A manifest (AWS Data
Exports, Azure Cost Management) names the files of its run; the newest run of each export and period counts. Without
manifests, files that contain the same charges are refused, because their sum counts twice.
"""

import csv
import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from broker.app.billing.charge_documents import SkippedRows
from broker.app.billing.charges_file import MAX_CHARGE, ExchangeRate, csv_rows
from broker.app.billing.focus import load_parquet
from broker.core.errors import InvalidInput
from broker.core.market.capacity import Charge
from broker.core.values.figures import join_names
from broker.core.values.money import Money
from broker.core.values.provider_names import is_provider_name, provider_name

SUFFIXES = (".csv", ".csv.gz", ".parquet")
IDENTITY = (
    "BillingAccountId", "SubAccountId", "BillingPeriodStart", "ResourceId", "ResourceName", "ServiceName", "SkuId",
    "SkuPriceId", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "CommitmentDiscountId",
    "CommitmentDiscountStatus", "PricingCategory", "RegionId",
)  # fmt: skip
"""Columns that, with provider and charge period, say what is charged. A later run may correct the amounts."""

_RUN_STAMP = re.compile(r"\d{12,14}")  # a folder for each run, next to its id (Azure)
_MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class ExportFiles:
    """The files to read, and those of earlier runs, which are left out."""

    files: Sequence[Path]
    superseded: Sequence[Path] = ()


@dataclass(frozen=True, slots=True)
class _Run:
    """``series``: the export and period, of which each run is the whole; ``order``: sorts the runs of a series by time;
    ``files``: by their names in the manifest, None for those that the folder lacks."""

    manifest: Path
    id: str
    series: tuple[str, ...]
    order: tuple[str, bool]
    files: Mapping[str, Path | None]


def export_files(export: Path) -> ExportFiles:
    """The files of an export, a file or a folder, in the order of their names. Raises `InvalidInput` for a folder
    without files, for a file that the newest manifest names and the folder lacks, and for runs of unknown order."""
    if not export.is_dir():
        return ExportFiles([export])
    folder_files = sorted(file for file in export.rglob("*") if file.is_file())
    data_files = [file for file in folder_files if file.name.lower().endswith(SUFFIXES)]
    if not data_files:
        raise InvalidInput(f"the folder has no file that ends in {', '.join(SUFFIXES)}", where=str(export))
    newest: dict[tuple[str, ...], _Run] = {}
    listed_files: set[Path | None] = set()
    for manifest in (file for file in folder_files if file.name.lower().endswith("manifest.json")):
        if (run := _run(manifest, data_files)) is None:
            continue
        listed_files |= set(run.files.values())
        newest_run = newest.get(run.series, run)
        if run.order == newest_run.order and run.id != newest_run.id:
            raise InvalidInput(
                f"the manifests {newest_run.manifest} and {manifest} do not say which run is newer",
                where=str(export), hint="move the files of the older run out of the folder",
            )  # fmt: skip
        newest[run.series] = max(newest_run, run, key=lambda run: run.order)
    files, folders = set[Path](), set[Path]()
    for run in newest.values():
        for name, file in run.files.items():
            if file is None:
                hint = "copy the whole export, or name one file"
                raise InvalidInput(f"names {name}, which is not in the folder", where=str(run.manifest), hint=hint)
            files.add(file)
            folders.add(file.parent.parent if run.id and run.id in file.parent.name else file.parent)
    outdated = [
        file
        for file in data_files
        if file not in files and (file in listed_files or not folders.isdisjoint(file.parents))
    ]
    return ExportFiles([file for file in data_files if file not in outdated], outdated)


def _run(manifest: Path, data_files: Sequence[Path]) -> _Run | None:
    """None for a JSON file that lists no files of an export."""
    try:
        body = json.loads(manifest.read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"is not a manifest: {error}", where=str(manifest), hint="copy the file again") from error
    body = body if isinstance(body, dict) else {}
    azure: Mapping[str, Any] = body.get("runInfo") or {}
    blobs = body.get("blobs") or ()
    names = [str(name) for name in body.get("dataFiles") or ()] + [str(blob.get("blobName")) for blob in blobs]
    if not names:
        return None
    id = str(body.get("executionId") or azure.get("runId") or "")
    folder = PurePosixPath(names[0]).parent.parts
    run_folders = [part for part in folder if (id and id in part) or _RUN_STAMP.fullmatch(part)]
    started = str(azure.get("submittedTime") or next((part for part in run_folders if part != id), ""))
    return _Run(
        manifest,
        id,
        tuple(part for part in folder if part not in run_folders),
        (started, not (id and id in str(manifest))),  # next to the folders of runs is the manifest of the newest
        {name: _local_file(name, manifest, data_files) for name in names},
    )


def _local_file(name: str, manifest: Path, data_files: Sequence[Path]) -> Path | None:
    """The file of that name in the cloud. Its folder has the same name here, or contains the manifest, too."""
    reversed_parts = PurePosixPath(name).parts[::-1]

    def match(file: Path) -> tuple[int, bool]:
        path = file.absolute().parts[::-1]
        matching_parts = sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(path, reversed_parts, strict=False))
        )
        return matching_parts, file.parent == manifest.parent

    best = max(data_files, key=match)
    matching_parts, is_beside_manifest = match(best)
    return best if matching_parts > 1 or (matching_parts and is_beside_manifest) else None


@dataclass(slots=True)
class Duplicates:
    """Charges that several files contain. Memory grows with the rows."""

    _file_of: dict[int, Path] = field(default_factory=dict)  # by what is charged, the file that had it last
    _charges: Counter[Path] = field(default_factory=Counter)
    _shared: Counter[tuple[Path, Path]] = field(default_factory=Counter)

    def add(self, file: Path, row: Mapping[str, Any], about: tuple[object, ...]) -> None:
        """``about``: the provider and the charge period."""
        values = (str(row.get(name) or "").casefold() for name in IDENTITY)
        charge = hash((*about, *(value[:10] if at == 2 else value for at, value in enumerate(values))))
        if (earlier_file := self._file_of.get(charge)) != file:
            self._charges[file] += 1
            self._file_of[charge] = file
            if earlier_file is not None:
                self._shared[earlier_file, file] += 1

    def check(self, export: Path) -> None:
        """Raises `InvalidInput` for files that contain the same charges. Numbered parts of one run may share some,
        whose rows differ in other columns."""
        shared_pairs = [
            (first, second)
            for (first, second), count in self._shared.items()
            if not _is_same_series(first, second) or 2 * count >= min(self._charges[first], self._charges[second])
        ]
        if shared_pairs:
            names = sorted({str(file.relative_to(export)) for pair in shared_pairs for file in pair})
            raise InvalidInput(
                f"{join_names(names, _MAX_NAMED)} contain the same charges, which would count twice",
                where=str(export),
                hint="leave the files of one run in the folder, or name one file; "
                "parts of one run need the columns SkuId and ChargeDescription",
            )


def _is_same_series(first: Path, second: Path) -> bool:
    return first.parent == second.parent and re.sub(r"\d+", "0", first.name) == re.sub(r"\d+", "0", second.name)


TAG = "gpubroker"

_REQUIRED_COLUMNS = ("BilledCost", "BillingCurrency", "ChargePeriodStart", "ChargePeriodEnd")
_PROVIDER_COLUMNS = ("ServiceProviderName", "ProviderName")
_READ_COLUMNS = {*_REQUIRED_COLUMNS, *_PROVIDER_COLUMNS, "ResourceId", "ResourceName", "Tags", *IDENTITY}
_KEY = re.compile(r"[A-Za-z0-9][\w.-]*-\d+")
_BATCH_ROWS = 10_000  # rows of Parquet
_MAX_SAMPLES = 3
_MICROS = Decimal(10) ** 6
_MICROSECOND = timedelta(microseconds=1)
_LATEST = datetime.max.replace(tzinfo=UTC) - _MICROSECOND
_NULL_TEXTS = {"", "NULL", "null", "None"}


@dataclass(slots=True)
class _ChargePeriod:
    """A time (UTC) without gaps and its charges (USD); a Decimal, because files have more digits than micro-dollars."""

    starts: datetime
    ends: datetime
    amount: Decimal


@dataclass(slots=True)
class _ChargeSums:
    """Charges by provider and key, in stretches of time."""

    stretches: dict[tuple[str, str], list[_ChargePeriod]] = field(default_factory=dict)

    def add(self, provider: str, key: str, period: _ChargePeriod) -> None:
        periods = self.stretches.setdefault((provider, key), [])
        for earlier in reversed(periods):
            if not key or (period.starts <= earlier.ends and earlier.starts <= period.ends):
                earlier.starts, earlier.ends = min(earlier.starts, period.starts), max(earlier.ends, period.ends)
                earlier.amount += period.amount
                return
        periods.append(period)

    def charges(self) -> Iterator[Charge]:
        for (provider, key), periods in self.stretches.items():
            for period in sorted(periods, key=lambda stretch: stretch.starts):
                amount = Money(int((period.amount * _MICROS).to_integral_value()))
                yield Charge(provider, period.starts, period.ends, amount, key, estimated=False)


@dataclass(frozen=True, slots=True)
class FocusCharges:
    """What a FOCUS export charges in USD, and what is left out: rows, and the files of earlier runs."""

    charges: list[Charge]
    skipped: Sequence[SkippedRows]
    superseded: Sequence[Path]


def read_focus_charges(export: Path, rate: ExchangeRate | None = None) -> FocusCharges:
    """The billed cost (BilledCost) by provider and attempt, of a file (CSV, CSV packed with gzip, Parquet) or of a
    folder of such parts, as clouds write them: the newest runs, where manifests tell. Rows in another currency than USD
    and that of ``rate`` are left out. Raises `InvalidInput` with the row or with the files that would count twice, and
    `MissingExtra` for Parquet."""
    sums, duplicates = _ChargeSums(), Duplicates()
    skipped, samples = Counter[str](), defaultdict[str, list[str]](list)
    dollars = {"USD": Decimal(1)} | ({rate.currency: rate.usd} if rate else {})
    export_parts = export_files(export)
    for file in export_parts.files:
        rows = _parquet_rows(file) if file.suffix.lower() == ".parquet" else _csv_rows(file)
        try:
            for where, row in rows:
                usd = dollars.get(currency := _text(row.get("BillingCurrency")))
                if usd is None:
                    reason = f"in {currency or 'no currency'}; amounts are in USD"
                    skipped[reason] += 1
                    samples[reason] += [where] if len(samples[reason]) < _MAX_SAMPLES else []
                    continue
                provider, period = _provider(row, where), _charge_period(row, where)
                period.amount *= usd
                sums.add(provider, _key(row), period)
                if len(export_parts.files) > 1:
                    duplicates.add(file, row, (provider, period.starts, period.ends))
        except (OSError, EOFError) as error:
            raise InvalidInput(f"cannot be read: {getattr(error, 'strerror', '') or error}", where=str(file)) from error
        except (UnicodeDecodeError, csv.Error) as error:
            raise InvalidInput("is not a CSV file in UTF-8", where=str(file)) from error
    duplicates.check(export)
    skipped_rows = [
        SkippedRows(reason=reason, rows=rows, samples=samples[reason]) for reason, rows in sorted(skipped.items())
    ]
    return FocusCharges(list(sums.charges()), skipped_rows, export_parts.superseded)


def is_focus_export(file: Path) -> bool:
    """Whether it is a folder, is packed or is Parquet, as only exports are, or has a column of FOCUS. Raises
    `InvalidInput` for a pipe, which can be read only once."""
    if file.exists() and not (file.is_file() or file.is_dir()):
        hint = "write it to a file first: COMMAND > bill.csv"
        raise InvalidInput("is a pipe or a device; expected a file or a folder", where=str(file), hint=hint)
    try:
        if file.is_dir() or file.suffix.lower() in (".gz", ".parquet"):
            return True
        with file.open(encoding="utf-8-sig") as stream:
            return "BilledCost" in stream.readline(100_000)
    except (OSError, UnicodeDecodeError):
        return False  # the reader of charges says why


def _csv_rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    is_gzip = file.suffix.lower() == ".gz"
    with (gzip.open if is_gzip else open)(file, "rt", encoding="utf-8-sig", newline="") as stream:
        rows = csv_rows(stream)
        _check_columns(file, rows.fieldnames or ())
        for row in rows:
            yield f"{file}:{rows.line_num}", row


def _parquet_rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    arrow, parquet = load_parquet()
    try:
        parquet_file = parquet.ParquetFile(file)
        names = parquet_file.schema_arrow.names
        _check_columns(file, names)
        number = 0
        for batch in parquet_file.iter_batches(_BATCH_ROWS, columns=[name for name in names if name in _READ_COLUMNS]):
            for row in batch.to_pylist():
                number += 1
                yield f"{file}, row {number}", row
    except arrow.ArrowException as error:
        raise InvalidInput(f"is not a Parquet file: {error}", where=str(file)) from error


def _check_columns(file: Path, names: Any) -> None:
    missing_columns = [name for name in _REQUIRED_COLUMNS if name not in names]
    if not any(name in names for name in _PROVIDER_COLUMNS):
        missing_columns.append("ProviderName (1.4: ServiceProviderName)")
    if missing_columns:
        raise InvalidInput(
            f"lacks the FOCUS columns {', '.join(missing_columns)}",
            where=f"{file}:1",
            hint="export Cost and Usage as FOCUS",
        )


def _provider(row: Mapping[str, Any], where: str) -> str:
    for column in _PROVIDER_COLUMNS:
        if name := _text(row.get(column)):
            return provider_name(name) if is_provider_name(name) else name.lower()
    raise InvalidInput("the provider is missing", where=where)


def _key(row: Mapping[str, Any]) -> str:
    tags = _tags(row.get("Tags"))
    for name, value in tags.items():
        if name.rpartition(":")[2].rpartition("/")[2] == TAG and value:
            return str(value)
    for column in ("ResourceName", "ResourceId"):
        text = _text(row.get(column)).rpartition("/")[2]
        if _KEY.fullmatch(text):
            return text
    return ""


def _tags(value: Any) -> Mapping[str, Any]:
    """Tags as a document, or as pairs (Parquet's maps)."""
    try:
        if isinstance(value, (list, dict)):
            return dict(value)
        tags = json.loads(_text(value) or "{}")
    except (ValueError, TypeError):
        return {}  # unreadable tags identify no attempt
    return tags if isinstance(tags, dict) else {}


def _charge_period(row: Mapping[str, Any], where: str) -> _ChargePeriod:
    try:
        amount = Decimal(str(row["BilledCost"]))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or abs(amount) > MAX_CHARGE:
        raise InvalidInput(f"BilledCost is {row['BilledCost']!r}; expected an amount in USD", where=where)
    starts, ends = (_parse_time(row, column, where) for column in ("ChargePeriodStart", "ChargePeriodEnd"))
    # A charge of a moment (a fee, a credit) covers the shortest period, so that it has a share in some window.
    return _ChargePeriod(starts, max(ends, starts + _MICROSECOND), amount)


def _parse_time(row: Mapping[str, Any], column: str, where: str) -> datetime:
    value = row[column]
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(_text(value))
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        if time > _LATEST:
            raise ValueError
        return time
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"{column} is {value!r}; expected a time such as 2026-11-01T00:00:00Z", where=where
        ) from None


def _text(value: Any) -> str:
    text = "" if value is None else str(value).strip()
    return "" if text in _NULL_TEXTS else text
