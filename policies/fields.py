"""Field types of policy files. Each rejects values that would allow spending by mistake."""

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from fnmatch import fnmatchcase
from itertools import islice
from typing import Annotated, Generic, Self, TypeVar
from zoneinfo import available_timezones

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainValidator, RootModel, WithJsonSchema, model_validator

from broker.core.errors import UnknownName, did_you_mean
from broker.core.market.accelerators import canonical
from broker.core.ports import MIN_HISTORY, MIN_NOTICE_RETENTION
from broker.core.validation import parse_each
from broker.core.values.money import Money
from broker.core.values.provider_names import place_name, provider_name
from broker.core.values.units import PositiveDuration, parse_money, zone

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LONGEST_PATTERN = 200


class PolicyPart(BaseModel):
    """Base of the parts of a policy file: immutable, unknown keys rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


ValueT = TypeVar("ValueT")


class PolicyValue(RootModel[ValueT], Generic[ValueT]):
    """Base of a rule that is one value in a policy file."""

    model_config = ConfigDict(frozen=True)


def parse_name(value: object) -> str:
    """A name in a policy file."""
    if not isinstance(value, str) or not _PLAIN_NAME.fullmatch(value):
        raise ValueError(
            "expected a name of up to 64 letters, digits, dots, dashes and underscores that begins with a letter"
            f" or digit; got {_describe(value)}"
        )
    return value


def parse_hold_quantile(value: object) -> float:
    """A percentage from 50% to 100%: a hold for less than the usual run would be topped up in most runs."""
    percent = parse_percent(value)
    if not 50 <= percent <= 100:
        raise ValueError(f"expected 50% to 100%, got {value}")
    return percent


def _require_price_history(time: timedelta) -> timedelta:
    if time < MIN_HISTORY:
        raise ValueError(f"expected {MIN_HISTORY.days}d or more, because plans and reports need a month of history")
    return time


def _require_notice_history(time: timedelta) -> timedelta:
    if time < MIN_NOTICE_RETENTION:
        raise ValueError(
            f"expected {MIN_NOTICE_RETENTION.days}d or more, because an alert that still applies would be sent again"
        )
    return time


def parse_patterns(value: object) -> tuple[str, ...]:
    """One name or a list of names, shell-style patterns included. Not empty: an empty list would match nothing."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise ValueError(
            f"expected a name or a list of names, such as nlp or [nlp, 'vision-*']; got {_describe(value)}"
        )
    if not items:
        raise ValueError("is an empty list; name at least one, or delete the key")
    if isinstance(value, str):
        return (_pattern(value),)
    return tuple(parse_each(enumerate(items), lambda _, item: _pattern(item)))


PATTERN_SIGNS = frozenset("*?[")
_EXACT_PREFIX = "="


def parse_accelerators(value: object) -> tuple[str, ...]:
    """Names of accelerators, aliases resolved, or patterns; see `names_accelerator`."""
    return tuple(parse_each(enumerate(parse_patterns(value)), lambda _, name: parse_accelerator(name)))


def parse_accelerator(name: str) -> str:
    """One of `parse_accelerators`."""
    if PATTERN_SIGNS.intersection(name):
        return name
    is_exact = name.startswith(_EXACT_PREFIX)
    try:
        return f"{_EXACT_PREFIX if is_exact else ''}{canonical(name.removeprefix(_EXACT_PREFIX))}"
    except UnknownName as error:
        raise ValueError(error.message) from error


def names_accelerator(pattern: str, accelerator: str) -> bool:
    """Whether a name of `parse_accelerators` names the accelerator. A plain name stands for its variants, too: ``H100``
    for H100-NVL, ``A100`` for A100-80GB and parts of it. ``=H100`` names that card alone."""
    if pattern.startswith(_EXACT_PREFIX):
        return accelerator == pattern.removeprefix(_EXACT_PREFIX)
    if PATTERN_SIGNS.intersection(pattern):
        return fnmatchcase(accelerator.lower(), pattern.lower())
    return accelerator == pattern or accelerator.startswith(f"{pattern}-")


_REGULAR_EXPRESSION = re.compile(r"[\^$\\()|+]|\.[*+?]|\{\d+(,\d*)?\}")
_COUNT = re.compile(r"(\\[dws]|\[[^]]*\]|[^{}()|])\{(\d{1,2})(,\d*)?\}")
_MAX_EXAMPLES = 4  # shell-style patterns in an error


def parse_places(value: object) -> tuple[str, ...]:
    """Patterns of regions (``eu-*``) or places (``aws/eu-*``), with aliases of providers resolved."""
    return tuple(parse_each(enumerate(parse_patterns(value)), lambda _, pattern: place_name(_reject_regex(pattern))))


def parse_providers(value: object) -> tuple[str, ...]:
    """Names or patterns of providers, with aliases resolved."""
    return tuple(parse_each(enumerate(parse_patterns(value)), lambda _, pattern: provider_name(_reject_regex(pattern))))


def _reject_regex(pattern: str) -> str:
    if _REGULAR_EXPRESSION.search(pattern):
        patterns = list(islice(_shell_patterns(pattern), _MAX_EXAMPLES))
        example = repr(patterns[0]) if len(patterns) == 1 else f"[{', '.join(patterns)}]"
        raise ValueError(f"{pattern!r} is a regular expression; patterns here are as in a shell, such as {example}")
    return pattern


def _shell_patterns(expression: str) -> Iterator[str]:
    """Shell-style patterns that match about what a regular expression does, one for each alternative. Lazy: their
    number doubles with each group."""
    group = re.search(r"\((?:\?:)?([^()]*)\)(?:[+*?]|\{[\d,]*\})?", expression)
    before, after = (expression[: group.start()], expression[group.end() :]) if group else ("", "")
    alternatives = (group[1] if group else expression).split("|")
    if group or len(alternatives) > 1:
        for part in alternatives:
            yield from _shell_patterns(f"{before}{part}{after}")
        return
    expression = _COUNT.sub(_expand_count, expression)
    simple = re.sub(r"\\[dws][+*]?|\.[*+?]|\[[^]]*\][+*]", "*", expression)
    yield re.sub(r"[\^$\\()+]", "", simple)


def _expand_count(match: re.Match[str]) -> str:
    """A counted unit (``[0-9]{2,}``) written out as often as it must occur, then ``*`` if it may occur more often."""
    unit, least, more = match.groups()
    return ("?" if unit == "." or unit[0] == "\\" else unit) * int(least) + ("*" if more else "")


def parse_limit(value: object) -> Money:
    """An amount of money above zero, with its currency."""
    amount = parse_money(value)
    if amount <= Money.ZERO:
        raise ValueError(f"must be more than $0; to forbid capacity, use allowed_locations; got {amount}")
    return amount


def parse_gpus(value: object) -> int:
    """A whole number of GPUs, at least one."""
    return _whole(value, "GPUs")


def parse_jobs(value: object) -> int:
    """A whole number of jobs, at least one."""
    return _whole(value, "jobs")


def parse_gpu_hours(value: object) -> int:
    """A whole number of GPU-hours, also 0."""
    return _whole(value, "GPU-hours", minimum=0)


def parse_attempts(value: object) -> int:
    """A whole number of attempts, at least one."""
    return _whole(value, "attempts")


def _whole(value: object, unit: str, minimum: int = 1) -> int:
    if type(value) is not int or not minimum <= value <= 1_000_000:
        raise ValueError(
            f"expected a whole number of {unit} from {minimum} to 1000000, such as 16; got {_describe(value)}"
        )
    return value


def parse_when(value: object) -> str:
    """The text of a condition; the loader checks it."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a condition in CEL, such as 'spend.asked > 100.0'; got {_describe(value)}")
    return value


def parse_percent(value: object, alternatives: Sequence[str] = ()) -> float:
    """A percentage as a number from 0 to 100. ``alternatives``: other texts that the caller accepts, for the error."""
    text = str(value).strip()
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?\s*%", text):
        forms = "".join(f", or `{form}`" for form in alternatives)
        raise ValueError(f"expected a percentage such as 5% or 50%{forms}; got {_describe(value)}")
    percent = float(text.rstrip("% "))
    if not 0 < percent <= 100:
        raise ValueError(f"must be more than 0% and at most 100%; got {text}")
    return percent


def parse_wall_time(value: object) -> time:
    """A time of day, such as ``08:00``; ``24:00`` becomes the last moment of the day."""
    if not isinstance(value, str) or not re.fullmatch(r"([01][0-9]|2[0-4]):[0-5][0-9]", value):
        raise ValueError(f"expected a time of day such as 08:00 or 20:30; got {_describe(value)}")
    if value.startswith("24"):
        if value != "24:00":
            raise ValueError(f"expected a time of day up to 24:00; got {value!r}")
        return time.max
    return time.fromisoformat(value)


def parse_day(value: object) -> date:
    """A day of the calendar."""
    try:
        if not isinstance(value, str) or len(value) != 10:
            raise ValueError
        return date.fromisoformat(value)
    except ValueError:
        raise ValueError(f"expected a day such as 2026-12-24; got {_describe(value)}") from None


def parse_local_time(value: object) -> datetime:
    """A day, or a day and a time, without a time zone: the file gives the zone in another key."""
    try:
        if not isinstance(value, str) or len(value) not in (10, 16):
            raise ValueError
        parsed = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(
            f"expected a day, or a day and a time, such as 2026-12-24T18:00; got {_describe(value)}"
        ) from None
    if not 2000 <= parsed.year <= 9000:
        raise ValueError(f"expected a year from 2000 to 9000; got {parsed.year}")
    return parsed


def _pattern(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a name; got {_describe(value)}; write numbers in quotes")
    if len(value) > _LONGEST_PATTERN or not value.isprintable():
        raise ValueError(f"expected a name of at most {_LONGEST_PATTERN} printable characters")
    return value


def parse_timezone(value: object) -> str:
    """The IANA name of a time zone."""
    if not isinstance(value, str):
        raise ValueError(f"expected a time zone, by its IANA name such as Europe/Berlin or UTC; got {_describe(value)}")
    try:
        zone(value)
    except ValueError as error:
        raise ValueError(f"{error}{suggest_zone(value)}") from error
    return value


def suggest_zone(name: str) -> str:
    """A suggestion for a mistyped time zone: the zone of that city, or the nearest name. Abbreviations such as EST get
    none: they lack summer time and are ambiguous.
    """
    names = [
        "UTC",
        *(
            zone_name
            for zone_name in sorted(available_timezones())
            if "/" in zone_name and not zone_name.startswith("Etc/")
        ),
    ]
    word = name.strip().replace(" ", "_").lower()
    city = next((zone_name for zone_name in names if word and zone_name.lower().endswith(f"/{word}")), None)
    return f"; did you mean {city!r}?" if city else did_you_mean(name, names)


def _describe(value: object) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else str(value).lower()
    text = str(value)
    return repr(text if len(text) <= 40 else text[:37] + "...")


_MONEY_SCHEMA = {"type": "string", "pattern": r"^\s*(\$|USD|[0-9])", "examples": ["$900", "$2,000"]}

Name = Annotated[
    str, PlainValidator(parse_name), WithJsonSchema({"type": "string", "pattern": f"^{_PLAIN_NAME.pattern}$"})
]
_PATTERNS_SCHEMA = WithJsonSchema(
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
)
Patterns = Annotated[tuple[str, ...], PlainValidator(parse_patterns), _PATTERNS_SCHEMA]
AcceleratorPatterns = Annotated[tuple[str, ...], PlainValidator(parse_accelerators), _PATTERNS_SCHEMA]
PlacePatterns = Annotated[tuple[str, ...], PlainValidator(parse_places), _PATTERNS_SCHEMA]
ProviderPatterns = Annotated[tuple[str, ...], PlainValidator(parse_providers), _PATTERNS_SCHEMA]
Limit = Annotated[Money, PlainValidator(parse_limit), WithJsonSchema(_MONEY_SCHEMA)]
_COUNT_SCHEMA = {"type": "integer", "minimum": 1}
GpuCount = Annotated[int, PlainValidator(parse_gpus), WithJsonSchema(_COUNT_SCHEMA)]
JobCount = Annotated[int, PlainValidator(parse_jobs), WithJsonSchema(_COUNT_SCHEMA)]
GpuHours = Annotated[int, PlainValidator(parse_gpu_hours), WithJsonSchema({"type": "integer", "minimum": 0})]
AttemptCount = Annotated[int, PlainValidator(parse_attempts), WithJsonSchema(_COUNT_SCHEMA)]
When = Annotated[
    str, PlainValidator(parse_when), WithJsonSchema({"type": "string", "examples": ["spend.asked > 100.0"]})
]
Percent = Annotated[float, PlainValidator(parse_percent), WithJsonSchema({"type": "string", "examples": ["5%"]})]
PriceRetention = Annotated[PositiveDuration, AfterValidator(_require_price_history)]
NoticeRetention = Annotated[PositiveDuration, AfterValidator(_require_notice_history)]
HoldQuantile = Annotated[
    float, PlainValidator(parse_hold_quantile), WithJsonSchema({"type": "string", "examples": ["95%", "100%"]})
]
WallTime = Annotated[time, PlainValidator(parse_wall_time), WithJsonSchema({"type": "string", "examples": ["08:00"]})]
Day = Annotated[date, PlainValidator(parse_day), WithJsonSchema({"type": "string", "format": "date"})]
LocalTime = Annotated[
    datetime,
    PlainValidator(parse_local_time),
    WithJsonSchema({"type": "string", "examples": ["2026-12-24", "2026-12-24T18:00"]}),
]
TimeZone = Annotated[
    str, PlainValidator(parse_timezone), WithJsonSchema({"type": "string", "examples": ["Europe/Berlin", "UTC"]})
]


class HoldOrRent(PolicyPart):
    """When holding GPUs is better than renting them; at least one of the three."""

    utilisation: Percent | None = None
    horizon: PositiveDuration | None = None
    break_even: Percent | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.utilisation is None and self.horizon is None and self.break_even is None:
            raise ValueError("is empty; expected `utilisation`, `horizon` or `break_even`")
        return self
