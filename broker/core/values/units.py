"""Reads values with units from text, and prints them.

Readers take text (or the value YAML made of it) and raise ``ValueError`` with a message that names the expected unit
and gives an example. None accepts a negative value, NaN or an absurd size, and only those that say so accept a bare
number. Writers are their inverse: ``parse_x(print_x(value)) == value`` for every value a reader can return.
"""

import re
from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, PlainSerializer, PlainValidator, WithJsonSchema

from broker.core.values.money import MICROS_PER_USD, Money, in_microseconds

_ABBREVIATION = re.compile(r"(?!(UTC|GMT|UCT|PRC|ROC|ROK)$)[A-Z]{3,4}([0-9][A-Z]{3})?")


def zone(name: str) -> ZoneInfo:
    """The time zone with an IANA name. Raises ValueError if it does not exist, and for an abbreviation: ``EST`` has no
    summer time, though most who write it mean a place that has."""
    if _ABBREVIATION.fullmatch(name):
        raise ValueError(
            f"{name!r} is an abbreviation, which does not say where and whether summer time applies; expected an IANA"
            " name such as America/New_York, Europe/Berlin or UTC"
        )
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: the name is a folder of the database
        raise ValueError(f"{name!r} is not a time zone; expected an IANA name such as Europe/Berlin or UTC") from error


def seconds_of(time: timedelta) -> int | float:
    """A duration in seconds; an int if it is a whole number."""
    seconds = time.total_seconds()
    return int(seconds) if seconds == int(seconds) else seconds


Seconds = Annotated[
    timedelta,
    PlainSerializer(seconds_of, when_used="json"),
    WithJsonSchema({"type": "number", "description": "seconds"}, mode="serialization"),
]
"""A duration that JSON has in seconds."""

MAX_DURATION = timedelta(days=3650)
MAX_BYTES = 10**18
MAX_MONEY = Money(10**9 * MICROS_PER_USD)
MAX_COUNT = 10**15
MAX_MEMORY_GIB = 2**20
MAX_ACCELERATORS = 1024
_MIN_MEMORY_GIB = Decimal(1) / 1024
_GIB = 2**30

# ASCII only: otherwise the Kelvin sign is a K, and Arabic digits are digits.
_FLAGS = re.IGNORECASE | re.ASCII
_NUMBER = r"\d{1,30}(?:\.\d{1,30})?"
_SIGNED = re.compile(r"(?:-|\$\s*-|USD\s*-)")

_DURATION_UNITS = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
}
_DURATION = re.compile(r"\s*".join(rf"(?:({_NUMBER})\s*{unit})?" for unit in _DURATION_UNITS), _FLAGS)
_EXPECTED_DURATION = "expected a duration with its unit, such as 90s, 12m, 48h, 1h30m or 2d"

_TERM = re.compile(rf"({_NUMBER})(mo|y)", _FLAGS)
_TERM_DAYS = {"mo": 365 / 12, "y": 365.0}
_LONGEST_TERM = 100 * 365  # days

_SIZE_UNITS = {
    "PiB": 2**50, "TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10,
    "PB": 10**15, "TB": 10**12, "GB": 10**9, "MB": 10**6, "KB": 10**3, "B": 1,
}  # fmt: skip
_SIZES = {unit.lower(): factor for unit, factor in _SIZE_UNITS.items()}
_SIZE = re.compile(rf"({_NUMBER})\s*([kmgtp]?i?b)", _FLAGS)
_EXPECTED_SIZE = "expected a size with its unit, such as 14GB (10^9 bytes), 14GiB (2^30 bytes) or 500MB"

_AMOUNT = r"(\d{1,3}(?:,\d{3}){1,9}(?:\.\d{1,30})?|\d{1,30}(?:\.\d{1,30})?)"
_MONEY = re.compile(rf"\$\s*{_AMOUNT}(?:\s*USD)?|USD\s*{_AMOUNT}|{_AMOUNT}\s*USD", _FLAGS)
_EXPECTED_MONEY = "expected an amount with currency, such as $900"

_COUNT_UNITS = {"T": 10**12, "B": 10**9, "M": 10**6, "K": 10**3, "": 1}
_COUNT = re.compile(rf"({_NUMBER})\s*([TBMK]?)", _FLAGS)
_EXPECTED_COUNT = "expected a count, such as 7B (10^9), 350M (10^6) or 7000000000"

# SkyPilot means 2^30 bytes by GB here, and so do we: memory of machines comes in powers of two.
_MEMORY_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_MEMORY = re.compile(rf"({_NUMBER})\s*(?:([kmgtp])i?b?)?\s*\+?", _FLAGS)
_EXPECTED_MEMORY = "expected memory in GiB, such as 64, 64+ (at least) or 64GB"

_CPUS = re.compile(rf"({_NUMBER})\s*\+?", _FLAGS)
_EXPECTED_CPUS = "expected a number of CPUs, such as 8 or 8+ (at least)"

_MACHINE = re.compile(r"([^:\s](?:[^:]*[^:\s])?)(?:\s*:\s*(\S+))?")
_EXPECTED_MACHINE = "expected an accelerator and how many per machine, such as H100:8"


def parse_duration(value: object) -> timedelta:
    """``"48h"``, ``"1h30m"``, ``"1.5h"``, ``"2d"``; units w, d, h, m, s, largest first. Zero is a duration, too.

    Rounded half-even to the microsecond; at most ten years.
    """
    if isinstance(value, timedelta):
        return value
    text = _text(value, _EXPECTED_DURATION)
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"{_EXPECTED_DURATION}; got {_quote_short(text)}")
    microseconds = sum(
        Decimal(amount) * in_microseconds(unit)
        for amount, unit in zip(match.groups(), _DURATION_UNITS.values(), strict=True)
        if amount
    )
    if microseconds > in_microseconds(MAX_DURATION):
        raise ValueError(f"{_quote_short(text)} is too long: at most {MAX_DURATION.days}d makes sense here")
    return timedelta(microseconds=_round_to_int(Decimal(microseconds)))


def parse_term(text: str) -> timedelta:
    """As `parse_duration`, above zero; or in years of 365 days or months of a twelfth of a year, at most 100 years:
    ``"3y"``, ``"36mo"``."""
    match = _TERM.fullmatch(text.strip())
    if match is None:
        duration = parse_duration(text)
        if not duration:
            raise ValueError(f"expected a duration greater than zero, such as 30d; got {_quote_short(text)}")
        return duration
    days = float(match[1]) * _TERM_DAYS[match[2].lower()]
    if not 0 < days <= _LONGEST_TERM:
        raise ValueError(f"expected more than zero and at most 100 years; got {_quote_short(text)}")
    return timedelta(days=days)


def print_duration(duration: timedelta) -> str:
    """``48h``, ``1h30m``, ``14d``; exact to the microsecond. ``duration`` ≥ 0."""
    if duration >= timedelta(days=7) and not duration % timedelta(days=1):
        return f"{duration.days}d"
    hours, rest = divmod(in_microseconds(duration), 3_600_000_000)
    minutes, rest = divmod(rest, 60_000_000)
    seconds = _plain(Decimal(rest) / 1_000_000)
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else "", f"{seconds}s" if rest else ""]
    return "".join(parts) or "0s"


def parse_size(value: object) -> int:
    """Bytes: ``"14GB"`` is 14 × 10⁹, ``"14GiB"`` 14 × 2³⁰. Rounded half-even to the byte; at most 10¹⁸."""
    text = _text(value, _EXPECTED_SIZE)
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _SIZES:
        raise ValueError(f"{_EXPECTED_SIZE}; got {_quote_short(text)}")
    size = _round_to_int(Decimal(match[1]) * _SIZES[match[2].lower()])
    if size > MAX_BYTES:
        raise ValueError(f"{_quote_short(text)} is too large: at most 1000PB makes sense here")
    return size


def print_size(size: int) -> str:
    """The shortest exact text for ``size`` bytes; of two equally short ones, the one with a decimal unit."""
    candidates = [f"{size // factor}{unit}" for unit, factor in _SIZE_UNITS.items() if size % factor == 0]
    return min(candidates, key=lambda text: (len(text), "i" in text)) if size else "0B"


def parse_money(value: object) -> Money:
    """USD: ``"$900"``, ``"$1,234.56"``, ``"900 USD"``. Exact to the micro-dollar; at most 10⁹ USD."""
    if isinstance(value, Money):
        return value
    text = _text(value, _EXPECTED_MONEY)
    match = _MONEY.fullmatch(text)
    if match is None:
        raise ValueError(f"{_EXPECTED_MONEY}; got {_quote_short(text)}")
    digits = next(group for group in match.groups() if group).replace(",", "")
    if len(digits.partition(".")[2].rstrip("0")) > 6:
        raise ValueError(f"{_quote_short(text)} is finer than a millionth of a dollar; {_EXPECTED_MONEY}")
    amount = Money.usd(digits)
    if amount > MAX_MONEY:
        raise ValueError(f"{_quote_short(text)} is too much: at most {print_money(MAX_MONEY)} makes sense here")
    return amount


def print_money(amount: Money) -> str:
    """``$900.00``, ``$1,234.56``, ``$0.001``: exact, and never without cents."""
    return str(amount)


def parse_count(value: object) -> float:
    """``"7B"`` is 7 × 10⁹; suffixes K, M, B, T. A number without suffix is accepted, too. From 1 to 10¹⁵."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = _plain(Decimal(repr(value)))
    text = _text(value, _EXPECTED_COUNT)
    match = _COUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"{_EXPECTED_COUNT}; got {_quote_short(text)}")
    count = Decimal(match[1]) * _COUNT_UNITS[match[2].upper()]
    if not 1 <= count <= MAX_COUNT:
        raise ValueError(f"{_quote_short(text)} is out of range: between 1 and 1000T makes sense here")
    return float(count)


def print_count(count: float) -> str:
    """``7B``, ``350M``, ``1.5B``; exact."""
    exact = Decimal(repr(count))
    unit, factor = next((unit, factor) for unit, factor in _COUNT_UNITS.items() if exact >= factor)
    scaled = _plain(exact / factor)
    return f"{scaled}{unit}" if _COUNT.fullmatch(f"{scaled}{unit}") else _plain(exact)


def parse_memory(value: object) -> float:
    """GiB, as SkyPilot writes memory and disks: ``64``, ``"64+"``, ``"64GB"`` (there GB is 2³⁰ bytes), ``"512MB"``.

    The ``+`` ("at least") changes nothing: requests are always minima here.
    """
    text = _text(_number_as_text(value), _EXPECTED_MEMORY)
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise ValueError(f"{_EXPECTED_MEMORY}; got {_quote_short(text)}")
    gib = Decimal(match[1]) * _MEMORY_UNITS[(match[2] or "g").lower()] / _GIB
    if not _MIN_MEMORY_GIB <= gib <= MAX_MEMORY_GIB:
        raise ValueError(f"{_quote_short(text)} is out of range: between 1MB and 1024TB makes sense here")
    return float(gib)


def parse_cpus(value: object) -> float:
    """CPUs as SkyPilot writes them: ``8``, ``"8+"``, ``0.5``. The ``+`` changes nothing: requests are minima."""
    text = _text(_number_as_text(value), _EXPECTED_CPUS)
    match = _CPUS.fullmatch(text)
    if match is None:
        raise ValueError(f"{_EXPECTED_CPUS}; got {_quote_short(text)}")
    cpus = float(match[1])
    if not 0.01 <= cpus <= 100_000:
        raise ValueError(f"{_quote_short(text)} is out of range: between 0.01 and 100000 CPUs makes sense here")
    return cpus


def print_minimum(amount: float) -> str:
    """CPUs or GiB as SkyPilot writes "at least": ``8+``."""
    return f"{_plain(Decimal(repr(amount)))}+"


def split_machine(value: object) -> tuple[str, int]:
    """``"H100:8"`` → ``("H100", 8)``; a name alone means one. The name is not looked up here."""
    text = _text(value, _EXPECTED_MACHINE) if isinstance(value, str) else ""
    match = _MACHINE.fullmatch(text)
    if match is None:
        raise ValueError(f"{_EXPECTED_MACHINE}; got {_quote_short(value)}")
    return match[1], parse_accelerators(match[2]) if match[2] else 1


def parse_accelerators(value: object) -> int:
    """How many accelerators per machine: a whole number from 1 to 1024, as a number or as text."""
    text = _number_as_text(value)
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,30}(?:\.0+)?", text):
        raise ValueError(
            f"expected a whole number of accelerators per machine, such as H100:8; got {_quote_short(value)}"
        )
    count = int(text.partition(".")[0])
    if not 1 <= count <= MAX_ACCELERATORS:
        raise ValueError(f"{count} accelerators per machine: between 1 and {MAX_ACCELERATORS} makes sense here")
    return count


def _text(value: object, expected: str) -> str:
    """The text to read. Raises ``ValueError`` with what was ``expected`` for anything else and for negative values."""
    if value is None:
        raise ValueError(f"{expected}; got nothing")
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    if text is None:
        raise ValueError(f"{expected}; got {_quote_short(value)}")
    if _SIGNED.match(text):
        raise ValueError(f"must not be negative; {expected}; got {_quote_short(text)}")
    return text


def _number_as_text(value: object) -> object:
    """Numbers from YAML without an exponent, so that 1e2 reads as 100."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _plain(Decimal(repr(value)))
    return value


def _plain(value: Decimal) -> str:
    """The number without exponent and without trailing zeros."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _round_to_int(value: Decimal) -> int:
    return int(value.to_integral_value(rounding=ROUND_HALF_EVEN))


def _quote_short(value: object) -> str:
    """The given value for messages, in quotes, truncated if long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    text = str(value)
    return repr(text if len(text) <= 40 else text[:37] + "...")


def require_positive(duration: timedelta) -> timedelta:
    """The duration, unchanged. Raises ``ValueError`` for zero."""
    if duration <= timedelta(0):
        raise ValueError(f"must be longer than nothing; {_EXPECTED_DURATION}")
    return duration


# Fields with units, for pydantic models of files.
Duration = Annotated[timedelta, PlainValidator(parse_duration), WithJsonSchema({"type": "string"})]
PositiveDuration = Annotated[Duration, AfterValidator(require_positive)]
Size = Annotated[int, PlainValidator(parse_size), WithJsonSchema({"type": "string"})]
Amount = Annotated[Money, PlainValidator(parse_money), WithJsonSchema({"type": "string"})]
Count = Annotated[float, PlainValidator(parse_count), WithJsonSchema({"type": ["string", "number"]})]
