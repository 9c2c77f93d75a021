"""The types of fields in policy files. Each refuses what would be a gate left open by mistake."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainValidator, WithJsonSchema

from broker.core.findings import each
from broker.core.money import Money
from broker.core.units import parse_money
from broker.ledger.budgets import zone

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LONGEST_PATTERN = 200


class Part(BaseModel):
    """Base of the parts of a policy file: immutable, nothing unknown let through."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def parse_name(value: object) -> str:
    """A name of something in a policy file."""
    if not isinstance(value, str) or not _PLAIN_NAME.fullmatch(value):
        raise ValueError(
            "expected a name of up to 64 letters, digits, dots, dashes and underscores that begins with a letter"
            f" or digit; got {_shown(value)}"
        )
    return value


def parse_patterns(value: object) -> tuple[str, ...]:
    """One name or a list of names; shell-style patterns may stand for several. Never none: that matches nothing."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise ValueError(f"expected a name or a list of names, such as nlp or [nlp, 'vision-*']; got {_shown(value)}")
    if not items:
        raise ValueError("is an empty list; name at least one, or delete the key")
    if isinstance(value, str):
        return (_pattern(value),)
    return tuple(each(enumerate(items), lambda _, item: _pattern(item)))


def parse_limit(value: object) -> Money:
    """An amount of money above zero, with its currency."""
    amount = parse_money(value)
    if amount <= Money.ZERO:
        raise ValueError(f"must be more than $0; to forbid something, say so with allowed_locations; got {amount}")
    return amount


def parse_gpus(value: object) -> int:
    """A whole number of GPUs, at least one."""
    if type(value) is not int or not 1 <= value <= 1_000_000:
        raise ValueError(f"expected a whole number of GPUs from 1 to 1000000, such as 16; got {_shown(value)}")
    return value


def _pattern(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a name; got {_shown(value)}; write numbers in quotes")
    if len(value) > _LONGEST_PATTERN or not value.isprintable():
        raise ValueError(f"expected a name of at most {_LONGEST_PATTERN} printable characters")
    return value


def _timezone(value: str) -> str:
    zone(value)
    return value


def _shown(value: object) -> str:
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
Patterns = Annotated[
    tuple[str, ...],
    PlainValidator(parse_patterns),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
Limit = Annotated[Money, PlainValidator(parse_limit), WithJsonSchema(_MONEY_SCHEMA)]
GpuCount = Annotated[int, PlainValidator(parse_gpus), WithJsonSchema({"type": "integer", "minimum": 1})]
TimeZone = Annotated[str, AfterValidator(_timezone)]
