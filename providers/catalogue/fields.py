"""The cells of a catalog's row and their conversion. Raises `Unfit` for invalid values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from broker.core.values.money import Money
from providers.rows import Unfit, figure, price, short, whole

# Numbers as spreadsheets and data frames write them: ``3.06``, ``9.5e-05``, ``8.0``.
_NUMBER = re.compile(r"[+-]?\d{1,15}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_NOTHING = frozenset({"", "nan", "none", "null", "n/a", "-"})
_FOREIGN = re.compile(r"[€£¥₹]|\b(?!USD\b)[A-Z]{3}\b")


@dataclass(frozen=True, slots=True)
class Cells:
    """One row: its cells by column name in lower case; missing cells are empty."""

    by_column: Mapping[str, str]

    def text(self, column: str) -> str:
        """The cell's text, or an empty string for nothing, ``nan``, ``None`` and similar."""
        found = self.by_column.get(column, "").strip()
        return "" if found.lower() in _NOTHING else found

    def number(self, column: str) -> Decimal | None:
        """The cell's number; None if it is empty."""
        found = self.text(column)
        if not found:
            return None
        if not _NUMBER.fullmatch(found):
            raise Unfit("malformed_row", f"{column} is not a number: {short(found)}")
        return Decimal(found)

    def price(self, column: str, what: str) -> Money:
        """USD per hour. Raises `Unfit` as `providers.rows.price`; ``foreign_currency`` where it is in another one."""
        found = self.text(column).removeprefix("$")
        if found and not _NUMBER.fullmatch(found):
            reason = "foreign_currency" if _FOREIGN.search(found) else "invalid_price"
            raise Unfit(reason, f"{what}: {short(found)} is not a price in dollars")
        return price(Decimal(found) if found else None, what)

    def count(self, column: str) -> int:
        """The number of accelerators; 0 if empty. A part of one (``0.125``) is `Unfit`: it cannot be compared."""
        found = self.number(column)
        if found is None or found == 0:
            return 0
        if 0 < found < 1:
            raise Unfit("part_of_an_accelerator", f"{column}: {found}")
        return whole(found, column)

    def count_or_part(self, column: str) -> tuple[int, int]:
        """The number of accelerators, and 1; of a part of one (``0.125``), 1 and how many parts make a whole (8)."""
        found = self.number(column)
        if found is None or not 0 < found < 1:
            return self.count(column), 1
        parts = 1 / found
        if abs(parts - round(parts)) > Decimal("0.05") or round(parts) > 64:
            raise Unfit("part_of_an_accelerator", f"{column}: {found}")
        return 1, round(parts)

    def figure(self, column: str) -> float | None:
        """CPUs, GiB and similar; None if empty or unusable."""
        try:
            return figure(self.number(column))
        except Unfit:
            return None

    def flag(self, column: str) -> bool:
        """``True`` or ``False``, ignoring case; an empty cell is False."""
        found = self.text(column).lower()
        if found not in ("", "true", "false"):
            raise Unfit("malformed_row", f"{column} is neither True nor False: {short(found)}")
        return found == "true"
