"""Money: an exact integer number of micro-dollars (USD), never a float.

A price that is not known is ``None``, never ``Money(0)``; whether zero makes sense is decided where an offer is
judged (`broker.core.market.offers`), not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any, ClassVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

MICROS_PER_USD = 1_000_000
_HOUR_IN_MICROSECONDS = 3_600_000_000
_MICROSECOND = timedelta(microseconds=1)


def divide_half_even(numerator: int, denominator: int) -> int:
    """``numerator / denominator`` rounded to the nearest integer, halves to the even one. ``denominator`` > 0."""
    quotient, remainder = divmod(numerator, denominator)
    twice = 2 * remainder
    if twice > denominator or (twice == denominator and quotient % 2):
        quotient += 1
    return quotient


def in_microseconds(duration: timedelta) -> int:
    """The duration as an exact integer of microseconds."""
    return duration // _MICROSECOND


_set = object.__setattr__


@dataclass(frozen=True, init=False, slots=True)
class Money:
    """An amount in micro-dollars (USD). May be negative: corrections and balances are amounts, too."""

    micros: int

    ZERO: ClassVar[Money]

    # Each job creates and compares some eighty amounts; these five methods take half the time of those of a dataclass.

    def __init__(self, micros: int) -> None:
        if type(micros) is not int:
            raise TypeError(f"Money counts whole micro-dollars; got {micros!r}")
        _set(self, "micros", micros)

    def __lt__(self, other: Money) -> bool:
        return self.micros < other.micros if type(other) is Money else NotImplemented

    def __le__(self, other: Money) -> bool:
        return self.micros <= other.micros if type(other) is Money else NotImplemented

    def __gt__(self, other: Money) -> bool:
        return self.micros > other.micros if type(other) is Money else NotImplemented

    def __ge__(self, other: Money) -> bool:
        return self.micros >= other.micros if type(other) is Money else NotImplemented

    @classmethod
    def usd(cls, amount: Decimal | int | str) -> Money:
        """Dollars to Money, rounded half-even to the micro-dollar.

        Raises ValueError for anything but a finite decimal number. Floats are rejected by type: callers choose the
        digits with ``str``.
        """
        if isinstance(amount, float):
            raise TypeError("money is never made from a float: pass a decimal string or Decimal")
        try:
            value = Decimal(amount)
        except InvalidOperation as error:
            raise ValueError(f"not an amount in dollars: {amount!r}") from error
        if not value.is_finite():
            raise ValueError(f"not a finite amount: {amount!r}")
        return cls(int((value * MICROS_PER_USD).to_integral_value(rounding=ROUND_HALF_EVEN)))

    @property
    def dollars(self) -> Decimal:
        """The amount in USD, exact."""
        return Decimal(self.micros) / MICROS_PER_USD

    def for_duration(self, duration: timedelta) -> Money:
        """The amount of this *hourly rate* over ``duration``, rounded half-even to the micro-dollar."""
        return Money(divide_half_even(self.micros * in_microseconds(duration), _HOUR_IN_MICROSECONDS))

    def lasts(self, rate: Money) -> timedelta:
        """How long this amount lasts at an hourly ``rate`` > 0, rounded down to the microsecond.

        Raises ValueError for another rate, OverflowError for more than 2.7 million years.
        """
        if rate.micros <= 0:
            raise ValueError("only a positive rate uses money up")
        return timedelta(microseconds=self.micros * _HOUR_IN_MICROSECONDS // rate.micros)

    def share(self, part: int, whole: int) -> Money:
        """``part / whole`` of the amount (integers, ``whole`` > 0), rounded half-even."""
        return Money(divide_half_even(self.micros * part, whole))

    def scaled(self, factor: Decimal | float) -> Money:
        """The amount times a dimensionless factor, rounded half-even. For estimates; bills use `for_duration`."""
        value = Decimal(self.micros) * (factor if isinstance(factor, Decimal) else Decimal(repr(factor)))
        return Money(int(value.to_integral_value(rounding=ROUND_HALF_EVEN)))

    def __add__(self, other: Money) -> Money:
        return Money(self.micros + other.micros)

    def __sub__(self, other: Money) -> Money:
        return Money(self.micros - other.micros)

    def __neg__(self) -> Money:
        return Money(-self.micros)

    def __mul__(self, times: int) -> Money:
        if type(times) is not int:
            raise TypeError("money is multiplied by whole numbers; use `scaled` for estimates")
        return Money(self.micros * times)

    __rmul__ = __mul__

    def __abs__(self) -> Money:
        return Money(abs(self.micros))

    def __bool__(self) -> bool:
        return self.micros != 0

    def __str__(self) -> str:
        """Exact: at least two decimals, more only where they are not zero (``$1.20``, ``$0.000001``, ``-$3.00``)."""
        whole, fraction = divmod(abs(self.micros), MICROS_PER_USD)
        digits = f"{fraction:06d}".rstrip("0").ljust(2, "0")
        return f"{'-' if self.micros < 0 else ''}${whole:,}.{digits}"

    def rounded(self, places: int = 2) -> str:
        """For tables: ``$1,234.57``, rounded half-even to ``places`` decimals."""
        value = self.dollars.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN)
        return f"{'-' if value < 0 else ''}${abs(value):,}"

    def up_to_cents(self) -> Money:
        """The least whole number of cents that covers it."""
        return Money(-(-self.micros // 10_000) * 10_000)

    def as_json(self) -> str:
        """The plain decimal string for JSON documents, in USD: at least two decimals, exact."""
        return str(self).replace("$", "").replace(",", "")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """In pydantic models and JSON, money is a decimal string in USD."""

        def parse(value: object) -> Money:
            if isinstance(value, Money):
                return value
            if isinstance(value, str):
                return cls.usd(value)
            raise ValueError("expected an amount in dollars as a decimal string")

        return core_schema.no_info_plain_validator_function(
            parse, serialization=core_schema.plain_serializer_function_ser_schema(cls.as_json, when_used="json")
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^-?[0-9]+\.[0-9]{2,6}$", "description": "USD"}


Money.ZERO = Money(0)


def round_distinct(*amounts: Money) -> list[str]:
    """The amounts, rounded to the fewest decimals (at least two) that keep different amounts different."""
    for places in range(2, 6):
        texts = [amount.rounded(places) for amount in amounts]
        if len(set(texts)) == len(set(amounts)):
            return texts
    return [amount.rounded(6) for amount in amounts]
