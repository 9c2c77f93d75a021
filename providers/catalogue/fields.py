"""The cells of a catalog's row and their conversion. Raises `RowRejected` for invalid values."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from broker.core.values.money import Money
from providers.rows import RowRejected, figure, price, short, whole

# Numbers as spreadsheets and data frames write them: ``3.06``, ``9.5e-05``, ``8.0``.
_NUMBER = re.compile(r"[+-]?\d{1,15}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_EMPTY_WORDS = frozenset({"", "nan", "none", "null", "n/a", "-"})
_FOREIGN_CURRENCY = re.compile(r"[€£¥₹]|\b(?!USD\b)[A-Z]{3}\b")


@dataclass(frozen=True, slots=True)
class Cells:
    """One row: its cells by column name in lower case; missing cells are empty."""

    by_column: Mapping[str, str]

    def text(self, column: str) -> str:
        """The cell's text, or an empty string for nothing, ``nan``, ``None`` and similar."""
        cell = self.by_column.get(column, "").strip()
        return "" if cell.lower() in _EMPTY_WORDS else cell

    def number(self, column: str) -> Decimal | None:
        """The cell's number; None if it is empty."""
        text = self.text(column)
        if not text:
            return None
        if not _NUMBER.fullmatch(text):
            raise RowRejected("malformed_row", f"{column} is not a number: {short(text)}")
        return Decimal(text)

    def price(self, column: str, what: str) -> Money:
        """USD per hour. Raises `RowRejected` as `providers.rows.price`; ``foreign_currency`` where it is in another
        one."""
        text = self.text(column).removeprefix("$")
        if text and not _NUMBER.fullmatch(text):
            reason = "foreign_currency" if _FOREIGN_CURRENCY.search(text) else "invalid_price"
            raise RowRejected(reason, f"{what}: {short(text)} is not a price in dollars")
        return price(Decimal(text) if text else None, what)

    def count(self, column: str) -> int:
        """The number of accelerators; 0 if empty. A part of one (``0.125``) is `RowRejected`: it cannot be compared."""
        value = self.number(column)
        if value is None or value == 0:
            return 0
        if 0 < value < 1:
            raise RowRejected("part_of_an_accelerator", f"{column}: {value}")
        return whole(value, column)

    def count_or_part(self, column: str) -> tuple[int, int]:
        """The number of accelerators, and 1; of a part of one (``0.125``), 1 and how many parts make a whole (8)."""
        value = self.number(column)
        if value is None or not 0 < value < 1:
            return self.count(column), 1
        parts = 1 / value
        if abs(parts - round(parts)) > Decimal("0.05") or round(parts) > 64:
            raise RowRejected("part_of_an_accelerator", f"{column}: {value}")
        return 1, round(parts)

    def figure(self, column: str) -> float | None:
        """CPUs, GiB and similar; None if empty or unusable."""
        try:
            return figure(self.number(column))
        except RowRejected:
            return None

    def flag(self, column: str) -> bool:
        """``True`` or ``False``, ignoring case; an empty cell is False."""
        text = self.text(column).lower()
        if text not in ("", "true", "false"):
            raise RowRejected("malformed_row", f"{column} is neither True nor False: {short(text)}")
        return text == "true"
