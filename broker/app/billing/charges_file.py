"""Charges from a CSV file, for providers without an API for charges.

The header names the columns, in any order; other columns are ignored::

    key,starts,ends,amount,provider,account,line,estimated
    train-k3v9qz-1,2026-11-01T10:00Z,2026-11-02T00:00Z,12.34,vast,,gpu,no

``key``: the attempt's key, by which machines are named and tagged; empty for a charge of no attempt. ``starts`` and
``ends``: ISO 8601, UTC without a zone; or one column ``day``. ``amount``: USD, negative for credits. ``provider``: may
be given for the whole file instead. ``account``: where a provider sends a file for each. ``line``: distinguishes
several charges for the same time. ``estimated``: whether the charge may still change.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path

from broker.core.errors import InvalidInput, Problem
from broker.core.market.capacity import Charge
from broker.core.values.money import Money

_NEEDED = ("key", "amount")
_YES, _NO = ("yes", "true", "1"), ("", "no", "false", "0")
MOST_CHARGED = Decimal(10) ** 9
"""USD; a larger amount in a file is a mistake."""
# A thousands separator counts as one only if the other sign or a second group confirms it: 12,345 may be twelve.
_GROUPED = re.compile(r"-?\d{1,3}((,\d{3})+\.\d+|(,\d{3}){2,})")
_GROUPED_BY_POINTS = re.compile(r"-?\d{1,3}((\.\d{3})+,\d+|(\.\d{3}){2,})")
_EITHER = re.compile(r"-?\d{1,3}[.,]\d{3}")
_SHOWN = 20  # problems


def read_charges(file: Path, provider: str = "") -> list[Charge]:
    """The charges of the file, in its order. Raises `InvalidInput` that names every invalid line."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            rows = csv.DictReader(text)
            names = [name.strip().lower() for name in rows.fieldnames or ()]
            rows.fieldnames = names
            _check_header(file, names, provider)
            numbered = [(rows.line_num, row) for row in rows]
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", where=str(file)) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"is not a CSV file in UTF-8: {error}", where=str(file)) from error
    charges, problems = [], []
    points = any(_GROUPED_BY_POINTS.fullmatch((row["amount"] or "").strip().removeprefix("$")) for _, row in numbered)
    for line, row in numbered:
        try:
            values = {name: (value or "").strip() for name, value in row.items() if name}
            charges.append(_charge(values, provider, grouped_by_points=points))
        except (ValueError, TypeError, AttributeError) as error:
            problems.append(Problem(line, 1, "", str(error)))
    if problems:
        said = "; ".join(f"line {one.line}: {one.message}" for one in problems[:_SHOWN])
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise InvalidInput(said + more, where=str(file), hint="nothing was imported", problems=problems)
    if not charges:
        raise InvalidInput("the file has no charges", where=str(file))
    return charges


def _check_header(file: Path, names: list[str], provider: str) -> None:
    lacking = [name for name in _NEEDED if name not in names]
    if "day" not in names and not {"starts", "ends"} <= set(names):
        lacking.append("starts and ends (or day)")
    if not provider and "provider" not in names:
        lacking.append("provider (or say --provider)")
    if lacking:
        raise InvalidInput(
            f"the header lacks {', '.join(lacking)}",
            where=f"{file}:1",
            hint="expected key,starts,ends,amount; and provider, account, line, estimated where they are known",
        )


def _charge(row: Mapping[str, str], provider: str, *, grouped_by_points: bool) -> Charge:
    """``grouped_by_points``: whether another amount of the file is. Raises ValueError with what was expected."""
    whose = row.get("provider") or provider
    if not whose:
        raise ValueError("no provider; expected one, or --provider")
    if provider and whose != provider:
        raise ValueError(f"provider is {whose!r}; expected {provider!r}, as --provider says")
    if row.get("day"):
        starts = _moment("day", row["day"][:10])
        if starts.date() == date.max:
            raise ValueError(f"day is {row['day']!r}; expected one such as 2026-11-01")
        ends = starts + timedelta(days=1)
    else:
        starts, ends = _moment("starts", row.get("starts", "")), _moment("ends", row.get("ends", ""))
    if ends <= starts:
        raise ValueError(f"ends {ends.isoformat()} and starts {starts.isoformat()}; expected an end after the start")
    estimated = row.get("estimated", "").lower()
    if estimated not in (*_YES, *_NO):
        raise ValueError(f"estimated is {estimated!r}; expected yes or no")
    about = {"line": row["line"]} if row.get("line") else {}
    amount, account = _amount(row.get("amount", ""), grouped_by_points), row.get("account", "")
    return Charge(whose, starts, ends, amount, row["key"], estimated in _YES, about, account)


def _moment(name: str, text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} is {text!r}; expected a time such as 2026-11-01T10:00Z") from None


def _amount(text: str, grouped_by_points: bool) -> Money:
    plain = text.removeprefix("$")
    if _GROUPED.fullmatch(plain):
        plain = plain.replace(",", "")
    elif _GROUPED_BY_POINTS.fullmatch(plain):
        plain = plain.replace(".", "").replace(",", ".")
    elif _EITHER.fullmatch(plain) and ("," in plain or grouped_by_points):
        raise ValueError(
            f"amount is {text!r}, with a thousands separator or a decimal sign; expected USD such as 12345.60"
        )
    try:
        amount = Decimal(plain)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or abs(amount) > MOST_CHARGED:
        raise ValueError(f"amount is {text!r}; expected USD such as 12.34 or 1,234.56")
    return Money.usd(amount)
