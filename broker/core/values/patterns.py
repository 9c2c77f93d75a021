"""Shell-style patterns over a closed list of names."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from broker.core.errors import UnknownName


def matching(kind: str, patterns: Iterable[str], known: Iterable[str]) -> frozenset[str]:
    """The known names that match one of the patterns; ``on-demand`` is ``on_demand``. ``kind``: what they name. Raises
    `UnknownName` for a pattern that matches none."""
    names = list(known)
    found: set[str] = set()
    for pattern in patterns:
        plain = pattern.strip().lower().replace("-", "_")
        matches = {name for name in names if fnmatchcase(name, plain)}
        if not matches:
            raise UnknownName(kind, pattern, names)
        found |= matches
    return frozenset(found)
