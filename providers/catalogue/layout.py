"""Common parts of the layouts of catalog files."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache

from broker.core.market.accelerators import is_part, lookup
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.money import Money
from providers.rows import RowRejected, accelerator, figure, part_of_card, price, short, whole

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


# List prices are valid for weeks, spot prices for minutes: an old table must not start spot machines.
_SPOT_AGE = timedelta(hours=6)
_LIST_AGE = timedelta(days=7)

# A card with less than this share of its memory is a part of a card: drivers and error correction take less.
_WHOLE_CARD = 0.8

# The clouds in which SkyPilot starts machines by the names in its own catalogs.
SKYPILOT_CLOUDS = ("aws", "azure", "gcp", "oci", "lambda", "runpod", "nebius")


@dataclass(frozen=True, slots=True)
class RowContext:
    """Values for every row: the provider, the time of the prices, and the current time (both UTC)."""

    provider: str
    dated: datetime
    now: datetime


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """``needs``: required columns; ``knows``: optional ones. Case is ignored. ``read``: the offers of one row, and its
    unusable parts; raises `RowRejected` for a whole row."""

    name: str
    needs: tuple[str, ...]
    knows: tuple[str, ...]
    read: Callable[[Cells, RowContext], Iterator[Offer | RowRejected]]


def card(*names: str, memory_gib: float | None = None, description: str = "", machine: str = "") -> str:
    """The canonical name of the first known one of ``names``, made more exact by ``description``, a further description
    of the card, or by a machine type with ``pcie``: an H100 of many tables may be the PCIe card, which is slower and
    cheaper than the SXM one of that name. Raises `RowRejected`."""
    card_name = _canonical_or_none(names, memory_gib)
    if card_name is None:
        raise RowRejected("unknown_accelerator", " or ".join(short(name) for name in names))
    pcie = "pcie" in f"{description} {machine}".lower()
    for hint in (description, f"{card_name}-PCIe" if pcie else ""):
        exact = _canonical_or_none((hint,), None) if hint else None
        if exact is not None and exact.startswith(f"{card_name}-"):
            return exact
    return card_name


def whole_or_part(card_name: str, memory_gib: float | None) -> str:
    """The card, or the part of it that has that much memory: gpuhunt counts a part of a card as one card with little
    memory. Raises `RowRejected` for memory that is not a whole part of the card's."""
    if memory_gib is None or memory_gib >= _WHOLE_CARD * lookup(card_name).memory_gib:
        return card_name
    return part_of_card(card_name, memory_gib)


@lru_cache(maxsize=4096)  # tables have 100,000 rows, and an unknown name is compared with all known ones
def _canonical_or_none(names: tuple[str, ...], memory_gib: float | None) -> str | None:
    try:
        return accelerator(*names, memory_gib=memory_gib)
    except RowRejected:
        return None


def offer(  # noqa: PLR0913 - the fields of an offer
    context: RowContext,
    source: str,
    *,
    region: str,
    zone: str | None,
    instance_type: str,
    accelerator: str | None,
    count: int,
    capacity_type: CapacityType,
    price: Money,
    cpus: float | None,
    memory_gib: float | None,
    engine: str | None,
) -> Offer:
    """An offer as of the file's date, with the age limit of its kind. A zone with the name of its region counts as
    none. A machine with a part of a card has an engine only if SkyPilot's own catalogue has it."""
    return Offer(
        provider=context.provider,
        region=region,
        zone=None if zone == region else zone,
        instance_type=instance_type,
        accelerator=accelerator,
        count=count,
        capacity_type=capacity_type,
        price=price,
        as_of=context.dated,
        source=f"csv:{source}",
        cpus=cpus,
        memory_gib=memory_gib,
        engine=None if is_part(accelerator) and source != "skypilot" else engine,
        max_age=_SPOT_AGE if capacity_type is CapacityType.SPOT else _LIST_AGE,
    )
