"""Charges from a CSV file, for providers without an API for charges.

The header names the columns, in any order; other columns are ignored::

    key,starts,ends,amount,provider,account,line,estimated
    train-k3v9qz-1,2026-11-01T10:00Z,2026-11-02T00:00Z,12.34,vast,,gpu,no

``key``: the attempt's key, by which machines are named and tagged; empty for a charge of no attempt. ``starts`` and
``ends``: ISO 8601, UTC without a zone; or one column ``day``. ``amount``: negative for credits; in ``currency``, USD
without that column. Amounts in another one become USD by the rate that is given for the file. ``provider``: may
be given for the whole file instead. ``account``: where a provider sends a file for each. ``line``: distinguishes
several charges for the same time. ``estimated``: whether the charge may still change.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from itertools import chain
from pathlib import Path
from typing import Self

from broker.core.errors import InvalidInput, Problem
from broker.core.market.capacity import Charge
from broker.core.values.money import Money
from broker.core.values.provider_names import provider_name

_REQUIRED_COLUMNS = ("key", "amount")
_YES, _NO = ("yes", "true", "1"), ("", "no", "false", "0")
MAX_CHARGE = Decimal(10) ** 9
"""USD; a larger amount in a file is a mistake."""
# A thousands separator counts as one only if the other sign or a second group confirms it: 12,345 may be twelve.
_COMMA_GROUPED = re.compile(r"-?\d{1,3}((,\d{3})+\.\d+|(,\d{3}){2,})")
_POINT_GROUPED = re.compile(r"-?\d{1,3}((\.\d{3})+,\d+|(\.\d{3}){2,})")
_AMBIGUOUS = re.compile(r"-?\d{1,3}[.,]\d{3}")
_COLUMNS_HINT = "expected key,starts,ends,amount; and provider, account, line, estimated where known; or a FOCUS export"
_MAX_PROBLEMS = 20  # problems


def csv_rows(lines: Iterator[str]) -> "csv.DictReader[str]":
    """The rows by column. They are separated as the header is: by commas, semicolons or tabs."""
    header = next(lines, "")
    return csv.DictReader(chain([header], lines), delimiter=max(",;\t", key=header.count))


@dataclass(frozen=True, slots=True)
class ExchangeRate:
    """The dollars that a unit of a currency costs, as of a day: the rate of the invoice, or of a bank."""

    currency: str
    usd: Decimal
    day: date

    @classmethod
    def parse(cls, text: str) -> Self:
        """The rate of ``EUR=1.0821@2026-11-30``. Raises `InvalidInput`."""
        match = re.fullmatch(r"([A-Z]{3})=(\d{1,9}(?:\.\d{1,12})?)@(\d{4}-\d\d-\d\d)", text)
        try:
            if match and match[1] != "USD" and (usd := Decimal(match[2])):
                return cls(match[1], usd, date.fromisoformat(match[3]))
        except ValueError:
            pass
        hint = "dollars for one unit, and the day of the rate: --rate EUR=1.0821@2026-11-30"
        raise InvalidInput(f"expected CURRENCY=USD@DAY, found {text!r}", where="--rate", hint=hint)

    def __str__(self) -> str:
        return f"1 {self.currency} = {self.usd} USD, {self.day}"


def read_charges(file: Path, provider: str = "", rate: ExchangeRate | None = None) -> list[Charge]:
    """The charges of the file, in its order. Raises `InvalidInput` that names every invalid line."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv_rows(stream)
            names = [name.strip().lower() for name in rows.fieldnames or ()]
            rows.fieldnames = names
            _check_header(file, names, provider)
            numbered_rows = [(rows.line_num, row) for row in rows]
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", where=str(file)) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput("is not a CSV file in UTF-8", where=str(file), hint=_COLUMNS_HINT) from error
    charges, problems = [], []
    has_point_groups = any(
        _POINT_GROUPED.fullmatch((row["amount"] or "").strip().removeprefix("$")) for _, row in numbered_rows
    )
    for line, row in numbered_rows:
        try:
            values = {name: (value or "").strip() for name, value in row.items() if name}
            charges.append(_parse_charge(values, provider, rate, grouped_by_points=has_point_groups))
        except (ValueError, TypeError, AttributeError) as error:
            problems.append(Problem(line, 1, "", str(error)))
    if problems:
        problems_text = "; ".join(f"line {problem.line}: {problem.message}" for problem in problems[:_MAX_PROBLEMS])
        others_text = f"; and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
        raise InvalidInput(problems_text + others_text, where=str(file), hint="nothing was imported", problems=problems)
    if not charges:
        raise InvalidInput("the file has no charges", where=str(file))
    return charges


def _check_header(file: Path, names: list[str], provider: str) -> None:
    missing_columns = [name for name in _REQUIRED_COLUMNS if name not in names]
    if "day" not in names and not {"starts", "ends"} <= set(names):
        missing_columns.append("starts and ends (or day)")
    if not provider and "provider" not in names:
        missing_columns.append("provider (or say --provider)")
    if missing_columns:
        raise InvalidInput(
            f"the header lacks {', '.join(missing_columns)}",
            where=f"{file}:1",
            hint=_COLUMNS_HINT,
        )


def _parse_charge(
    row: Mapping[str, str], provider: str, rate: ExchangeRate | None, *, grouped_by_points: bool
) -> Charge:
    """``grouped_by_points``: whether another amount of the file is. Raises ValueError with what was expected."""
    row_provider, provider = provider_name(row.get("provider") or provider), provider_name(provider)
    if not row_provider:
        raise ValueError("no provider; expected one, or --provider")
    if provider and row_provider != provider:
        raise ValueError(f"provider is {row_provider!r}; expected {provider!r}, as --provider says")
    if row.get("day"):
        starts = _parse_time("day", row["day"][:10])
        if starts.date() == date.max:
            raise ValueError(f"day is {row['day']!r}; expected one such as 2026-11-01")
        ends = starts + timedelta(days=1)
    else:
        starts, ends = _parse_time("starts", row.get("starts", "")), _parse_time("ends", row.get("ends", ""))
    if ends <= starts:
        raise ValueError(f"ends {ends.isoformat()} and starts {starts.isoformat()}; expected an end after the start")
    estimated = row.get("estimated", "").lower()
    if estimated not in (*_YES, *_NO):
        raise ValueError(f"estimated is {estimated!r}; expected yes or no")
    details = {"line": row["line"]} if row.get("line") else {}
    amount, account = _parse_amount(row.get("amount", ""), grouped_by_points), row.get("account", "")
    currency = row.get("currency") or "USD"
    if currency != "USD":
        if rate is None or currency != rate.currency:
            raise ValueError(f"in {currency}; expected USD, or the rate of its invoice: --rate {currency}=RATE@DAY")
        amount *= rate.usd
    return Charge(row_provider, starts, ends, Money.usd(amount), row["key"], estimated in _YES, details, account)


def _parse_time(name: str, text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} is {text!r}; expected a time such as 2026-11-01T10:00Z") from None


def _parse_amount(text: str, grouped_by_points: bool) -> Decimal:
    plain = text.removeprefix("$")
    if _COMMA_GROUPED.fullmatch(plain):
        plain = plain.replace(",", "")
    elif _POINT_GROUPED.fullmatch(plain):
        plain = plain.replace(".", "").replace(",", ".")
    elif _AMBIGUOUS.fullmatch(plain) and ("," in plain or grouped_by_points):
        raise ValueError(
            f"amount is {text!r}, with a thousands separator or a decimal sign; expected USD such as 12345.60"
        )
    try:
        amount = Decimal(plain)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or abs(amount) > MAX_CHARGE:
        raise ValueError(f"amount is {text!r}; expected USD such as 12.34 or 1,234.56")
    return amount
