"""Advice in JSON: amounts of money as decimal strings, everything else as in `broker.cli.render.document`.

The economics compute USD in floats, often fractions of a cent, so amounts have nine decimals without trailing zeros
beyond the cents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

from broker.cli.render.document import plain

_MONEY = re.compile(r"(^|_)usd(_|$)")


def document(*parts: Any, **more: Any) -> dict[str, Any]:
    """One document with the fields of several results and further keys; later values replace earlier ones."""
    joined: dict[str, Any] = {}
    for part in (*parts, more):
        joined |= part if isinstance(part, Mapping) else fields_of(part)
    found = _told(joined)
    assert isinstance(found, dict)
    return found


def usd(amount: float) -> str:
    """``0.162580901`` → ``"0.162580901"``, 94188 → ``"94188.00"``."""
    whole, _, decimals = f"{amount:.9f}".partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, not converted further."""
    from dataclasses import fields

    return {field.name: getattr(value, field.name) for field in fields(value)}


def _told(value: Any, key: str = "") -> Any:
    from dataclasses import is_dataclass

    if is_dataclass(value) and not isinstance(value, type):
        value = fields_of(value)
    if isinstance(value, Mapping):
        return {str(plain(name)): _told(item, str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_told(item, key) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool) and _MONEY.search(key):
        return usd(value) if isfinite(value) else None
    return plain(value)
