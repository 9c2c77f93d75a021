"""Charges by attempt from a provider's FOCUS file (1.0 to 1.4), read row by row: CSV, or Parquet with the extra
``parquet``.

Charges of one attempt for adjoining times are added up, so that memory grows with attempts and not with rows. An
attempt is identified by the tag ``gpubroker`` of its machine (with or without a prefix such as ``user:``), else by the
resource's name or the last part of its id. All other charges are one sum for each provider.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from broker.app.billing.charges_file import MOST_CHARGED
from broker.app.billing.focus_files import load_parquet
from broker.app.billing.focus_runs import IDENTITY, Duplicates, export_files
from broker.app.results.charges import SkippedRows
from broker.core.errors import InvalidInput
from broker.core.market.capacity import Charge
from broker.core.values.money import Money
from broker.core.values.provider_names import is_provider_name, provider_name

TAG = "gpubroker"

_ALWAYS = ("BilledCost", "BillingCurrency", "ChargePeriodStart", "ChargePeriodEnd")
_PROVIDER = ("ServiceProviderName", "ProviderName")
_READ = {*_ALWAYS, *_PROVIDER, "ResourceId", "ResourceName", "Tags", *IDENTITY}
_KEY = re.compile(r"[A-Za-z0-9][\w.-]*-\d+")
_AT_ONCE = 10_000  # rows of Parquet
_SAMPLES = 3
_MICROS = Decimal(10) ** 6
_SHORTEST = timedelta(microseconds=1)
_LAST = datetime.max.replace(tzinfo=UTC) - _SHORTEST
_NOTHING = {"", "NULL", "null", "None"}


@dataclass(slots=True)
class _Stretch:
    """A time (UTC) without gaps and its charges (USD); a Decimal, because files have more digits than micro-dollars."""

    starts: datetime
    ends: datetime
    amount: Decimal


@dataclass(slots=True)
class _Summed:
    """Charges by provider and key, in stretches of time."""

    stretches: dict[tuple[str, str], list[_Stretch]] = field(default_factory=dict)

    def add(self, provider: str, key: str, found: _Stretch) -> None:
        known = self.stretches.setdefault((provider, key), [])
        for one in reversed(known):
            if not key or (found.starts <= one.ends and one.starts <= found.ends):
                one.starts, one.ends = min(one.starts, found.starts), max(one.ends, found.ends)
                one.amount += found.amount
                return
        known.append(found)

    def charges(self) -> Iterator[Charge]:
        for (provider, key), stretches in self.stretches.items():
            for one in sorted(stretches, key=lambda stretch: stretch.starts):
                amount = Money(int((one.amount * _MICROS).to_integral_value()))
                yield Charge(provider, one.starts, one.ends, amount, key, estimated=False)


@dataclass(frozen=True, slots=True)
class FocusCharges:
    """What a FOCUS export charges in USD, and what is left out: rows, and the files of earlier runs."""

    charges: list[Charge]
    skipped: Sequence[SkippedRows]
    superseded: Sequence[Path]


def read_focus_charges(export: Path) -> FocusCharges:
    """The billed cost (BilledCost) by provider and attempt, of a file (CSV, CSV packed with gzip, Parquet) or of a
    folder of such parts, as clouds write them: the newest runs, where manifests tell. Raises `InvalidInput` with the
    row or with the files that would count twice, and `MissingExtra` for Parquet."""
    summed, duplicates = _Summed(), Duplicates()
    skipped, samples = Counter[str](), defaultdict[str, list[str]](list)
    found = export_files(export)
    for file in found.files:
        rows = _parquet_rows(file) if file.suffix.lower() == ".parquet" else _csv_rows(file)
        try:
            for where, row in rows:
                if (currency := _text(row.get("BillingCurrency"))) != "USD":
                    why = f"in {currency or 'no currency'}; amounts are in USD"
                    skipped[why] += 1
                    samples[why] += [where] if len(samples[why]) < _SAMPLES else []
                    continue
                provider, stretch = _provider(row, where), _stretch(row, where)
                summed.add(provider, _key(row), stretch)
                if len(found.files) > 1:
                    duplicates.add(file, row, (provider, stretch.starts, stretch.ends))
        except (OSError, EOFError) as error:
            raise InvalidInput(f"cannot be read: {getattr(error, 'strerror', '') or error}", where=str(file)) from error
        except (UnicodeDecodeError, csv.Error) as error:
            raise InvalidInput(f"is not a CSV file in UTF-8: {error}", where=str(file)) from error
    duplicates.check(export)
    left_out = [SkippedRows(reason=why, rows=rows, samples=samples[why]) for why, rows in sorted(skipped.items())]
    return FocusCharges(list(summed.charges()), left_out, found.superseded)


def _csv_rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    packed = file.suffix.lower() == ".gz"
    with (gzip.open if packed else open)(file, "rt", encoding="utf-8-sig", newline="") as text:
        rows = csv.DictReader(text)
        _check_columns(file, rows.fieldnames or ())
        for row in rows:
            yield f"{file}:{rows.line_num}", row


def _parquet_rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    arrow, parquet = load_parquet()
    try:
        opened = parquet.ParquetFile(file)
        names = opened.schema_arrow.names
        _check_columns(file, names)
        number = 0
        for batch in opened.iter_batches(_AT_ONCE, columns=[name for name in names if name in _READ]):
            for row in batch.to_pylist():
                number += 1
                yield f"{file}, row {number}", row
    except arrow.ArrowException as error:
        raise InvalidInput(f"is not a Parquet file: {error}", where=str(file)) from error


def _check_columns(file: Path, names: Any) -> None:
    lacking = [name for name in _ALWAYS if name not in names]
    if not any(name in names for name in _PROVIDER):
        lacking.append("ProviderName (1.4: ServiceProviderName)")
    if lacking:
        raise InvalidInput(
            f"lacks the FOCUS columns {', '.join(lacking)}", where=f"{file}:1", hint="export Cost and Usage as FOCUS"
        )


def _provider(row: Mapping[str, Any], where: str) -> str:
    for column in _PROVIDER:
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
        found = json.loads(_text(value) or "{}")
    except (ValueError, TypeError):
        return {}  # unreadable tags identify no attempt
    return found if isinstance(found, dict) else {}


def _stretch(row: Mapping[str, Any], where: str) -> _Stretch:
    try:
        amount = Decimal(str(row["BilledCost"]))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or abs(amount) > MOST_CHARGED:
        raise InvalidInput(f"BilledCost is {row['BilledCost']!r}; expected an amount in USD", where=where)
    starts, ends = (_moment(row, column, where) for column in ("ChargePeriodStart", "ChargePeriodEnd"))
    return _Stretch(starts, max(ends, starts + _SHORTEST), amount)


def _moment(row: Mapping[str, Any], column: str, where: str) -> datetime:
    value = row[column]
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(_text(value))
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        if found > _LAST:
            raise ValueError
        return found
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"{column} is {value!r}; expected a time such as 2026-11-01T00:00:00Z", where=where
        ) from None


def _text(value: Any) -> str:
    text = "" if value is None else str(value).strip()
    return "" if text in _NOTHING else text
