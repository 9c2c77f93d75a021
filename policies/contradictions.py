"""Lists of what is allowed that leave nothing together: several owners' files, each right in itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

from broker.core.ports import Rule
from policies.mentions import PATTERN_SIGNS
from policies.rules.accelerators import AllowedAccelerators
from policies.rules.allowed_locations import AllowedLocations
from policies.rules.capacity_types import CapacityTypes


def contradictions(rules: Iterable[Rule]) -> list[str]:
    """A sentence, with both places, for each two rules about the same jobs whose lists have no name in common. Lists
    with patterns are left out: what they stand for is not known here."""
    found = []
    for one, other in combinations(rules, 2):
        if one.kind != other.kind or getattr(one, "scope", None) != getattr(other, "scope", None):
            continue
        mine, theirs = _allowed(one), _allowed(other)
        for what in mine.keys() & theirs.keys():
            if not any(_same(name, known) for name in mine[what] for known in theirs[what]):
                whom = f" to {scope}" if (scope := str(getattr(one, "scope", ""))) else ""
                found.append(
                    f"{one.source}: allows no {what} but {', '.join(mine[what])}, and {other.source} none but"
                    f" {', '.join(theirs[what])}: together they allow none{whom}"
                )
    return found


def _allowed(rule: Rule) -> Mapping[str, tuple[str, ...]]:
    """What a rule lets through, by what it is; only lists of plain names."""
    lists: dict[str, tuple[str, ...]] = {}
    match rule:
        case AllowedLocations(config=said):
            lists = {"provider": said.providers.allow, "region": said.regions.allow}
        case AllowedAccelerators(config=names):
            lists = {"accelerator": names.allow}
        case CapacityTypes(config=types):
            lists = {"capacity type": tuple(one.value for one in types.allow)}
    return {what: names for what, names in lists.items() if names and not PATTERN_SIGNS.intersection("".join(names))}


def _same(one: str, other: str) -> bool:
    """Whether two names may mean the same: capitals do not count, and a region may be written with its provider."""
    one, other = one.lower(), other.lower()
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")
