"""Reads rows of external sources: exact prices, plausible figures, canonical accelerator names, no duplicates;
and offers of held capacity.

A reader raises `RowRejected` for an unusable row; `read_rows` turns it into a `SkippedRow`, so that others are
unaffected.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from broker.core.errors import UnknownName
from broker.core.market.accelerators import canonical, lookup, part_of
from broker.core.market.capacity import Reservation
from broker.core.market.offers import Availability, Offer, SkippedRow
from broker.core.values.money import Money

Row = Mapping[str, Any]
OfferRows = Iterator[Offer | SkippedRow]

# Lowest and highest plausible price of a machine, USD per hour. A K80 at the bottom of a spot market costs more than
# the former, a rack of 72 of the newest cards far less than the latter. Prices outside are errors of the provider.
MIN_PRICE = Money.usd("0.001")
MAX_PRICE = Money.usd(10_000)
HOURS_A_YEAR = 8760

_DECIMAL = re.compile(r"\d{1,12}(?:\.\d{1,18})?", re.ASCII)
_NOT_IN_NAMES = re.compile(r"[/@\s\x00-\x1f\x7f]+")
_MAX_NAME = 80
_SAME_PART = 0.05  # the tolerance of a part's memory, as a share of its size
_MAX_ACCELERATORS = 1024


class RowRejected(Exception):
    """A row, or one of its prices, that cannot become an offer: a reason for counting, and a detail."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail

    @property
    def skipped(self) -> SkippedRow:
        return SkippedRow(self.reason, self.detail)


def read_rows(rows: Iterable[object], read: Callable[[Row], Iterable[Offer | SkippedRow]]) -> OfferRows:
    """The results of ``read`` for each row. A row that is not a JSON object, or for which ``read`` raises
    `RowRejected`, is skipped; its earlier results stay. A `SkippedRow` among the rows is passed on."""
    for row in rows:
        if isinstance(row, SkippedRow):
            yield row
            continue
        if not isinstance(row, dict):
            yield SkippedRow("malformed_row", f"not a JSON object: {short(row)}")
            continue
        try:
            yield from read(row)
        except RowRejected as error:
            yield error.skipped


def distinct(rows: OfferRows, key: Callable[[Offer], Hashable] = lambda offer: offer.id) -> OfferRows:
    """Each offer once. An identical repetition is dropped silently; a second, different price of the same offer is a
    skipped row. ``key``: identifies an offer."""
    seen: dict[Hashable, Money | None] = {}
    for row in rows:
        if isinstance(row, Offer):
            identity = key(row)
            if identity in seen:
                if seen[identity] != row.price:
                    yield SkippedRow("conflicting_duplicate", f"{row.id}: {seen[identity]}, and again {row.price}")
                continue
            seen[identity] = row.price
        yield row


def number(value: object, label: str) -> Decimal:
    """A finite number of JSON, exact. Raises `RowRejected`."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise RowRejected("malformed_row", f"{label} is not a number: {short(value)}")
    if isinstance(value, Decimal) and not value.is_finite():
        raise RowRejected("malformed_row", f"{label} is not a finite number")
    return Decimal(value)


def decimal_text(value: object) -> Decimal | None:
    """A price that its provider writes as text (``"3.95"``), exact; None if missing. Raises `RowRejected`."""
    if value is None:
        return None
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        raise RowRejected("invalid_price", f"not a decimal number as text: {short(value)}")
    return Decimal(value)


def price(value: object, label: str, *, per: int = 1, times: int = 1) -> Money:
    """USD per hour of one machine, exact to the micro-dollar: ``value × times / per``.

    ``label``: the priced thing, for the detail. Raises `RowRejected`: ``no_price`` for None, ``invalid_price`` for a
    value that is not a positive number, ``absurd_price`` for an implausible one.
    """
    if value is None:
        raise RowRejected("no_price", f"{label}: no price")
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise RowRejected("invalid_price", f"{label}: {short(value)} is not a number")
    amount = Decimal(value)
    if not amount.is_finite() or amount <= 0:
        raise RowRejected("invalid_price", f"{label}: a price of {short(value)}")
    # Compared before multiplication: with a huge exponent the arithmetic would not be exact.
    if not MIN_PRICE.dollars * per <= amount * times <= MAX_PRICE.dollars * per:
        raise RowRejected("absurd_price", f"{label}: a price of {short(value)}{f' / {per}' if per > 1 else ''}")
    return Money.usd(amount * times / per)


def whole(value: object, label: str, maximum: int = _MAX_ACCELERATORS) -> int:
    """A whole number from 1 to ``maximum``. Raises `RowRejected`."""
    amount = number(value, label)
    if not 1 <= amount <= maximum or amount != amount.to_integral_value():
        raise RowRejected("malformed_row", f"{label}: {short(value)} is not a whole number from 1 to {maximum}")
    return int(amount)


def figure(value: object) -> float | None:
    """CPUs, GiB or another optional figure; None if missing or invalid."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    amount = Decimal(value)
    return float(amount) if amount.is_finite() and Decimal("0.01") <= amount <= 10_000_000 else None


def name(value: object, label: str) -> str:
    """A name as part of an offer's id: spaces, ``/`` and ``@`` become ``-``. Raises `RowRejected`."""
    text = _NOT_IN_NAMES.sub("-", value.strip()).strip("-") if isinstance(value, str) else ""
    if not text or len(text) > _MAX_NAME or not text.isprintable():
        raise RowRejected("malformed_row", f"{label} is not a name: {short(value)}")
    return text


def accelerator(*names: object, memory_gib: float | None = None) -> str:
    """The canonical name of the first known one of ``names``. ``memory_gib``: per card, if the row gives it.

    Raises `RowRejected` (``unknown_accelerator``) with the provider's name.
    """
    for candidate in names:
        if isinstance(candidate, str) and candidate.strip():
            try:
                return canonical(candidate, memory_gib)
            except UnknownName:
                continue
    raise RowRejected("unknown_accelerator", " or ".join(short(candidate) for candidate in names))


def part_of_card(card: str, memory_gib: float) -> str:
    """The part of ``card`` with that much of its memory, as one of equal parts. Raises `RowRejected`
    (``part_of_an_accelerator``) where the memory is not a whole part of the card's."""
    parts = lookup(card).memory_gb / memory_gib
    if not 2 <= round(parts) <= 64 or abs(parts - round(parts)) > _SAME_PART * parts:
        raise RowRejected("part_of_an_accelerator", f"{memory_gib:g} GB of one {card}")
    return part_of(card, round(parts))


def usd(currency: object) -> None:
    """Raises `RowRejected` (``foreign_currency``) for anything but US dollars."""
    if not isinstance(currency, str) or currency.upper() != "USD":
        raise RowRejected("foreign_currency", f"priced in {short(currency)}, not in USD")


def short(value: object) -> str:
    """A value for a detail, shortened if long."""
    text = repr(value) if not isinstance(value, Decimal) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_held(reservation: Reservation, now: datetime) -> bool:
    """Whether the reservation has begun and has not ended."""
    has_begun = reservation.starts is None or reservation.starts <= now
    return has_begun and (reservation.ends is None or reservation.ends > now)


def merge_offers(offers: Iterable[Offer | SkippedRow]) -> OfferRows:
    """One offer per place and instance type, with the free machines (``slots``) of all its reservations: unavailable if
    there are none, unknown if unknown for one of them."""
    merged: dict[str, Offer] = {}
    for offer in offers:
        if isinstance(offer, SkippedRow):
            yield offer
            continue
        previous = merged[offer.id].slots if offer.id in merged else 0
        slots = None if previous is None or offer.slots is None else previous + offer.slots
        merged[offer.id] = replace(offer, slots=slots)
    for offer in merged.values():
        if offer.slots is None:
            yield offer
        elif offer.slots:
            yield replace(offer, availability=Availability.AVAILABLE)
        else:
            because = "every machine of these reservations is in use"
            yield replace(offer, availability=Availability.UNAVAILABLE, unavailable_because=because)
