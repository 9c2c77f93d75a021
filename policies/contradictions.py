"""Lists of what is allowed, or of members, that leave nothing together: several owners' files, each right in itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations

from broker.core.policy import Source
from broker.core.ports import Rule
from policies.mentions import PATTERN_SIGNS
from policies.rules.accelerators import AllowedAccelerators
from policies.rules.allowed_locations import AllowedLocations
from policies.rules.capacity_types import CapacityTypes
from policies.rules.membership import Roster


def contradictions(rules: Iterable[Rule], place: Callable[[Rule], Source]) -> list[str]:
    """A sentence, with both places, for each two rules about the same jobs whose lists have no name in common. Lists
    with patterns are left out: what they stand for is not known here. ``place``: where a rule's list stands."""
    found = []
    for one, other in combinations(rules, 2):
        if one.kind != other.kind or getattr(one, "scope", None) != getattr(other, "scope", None):
            continue
        mine, theirs = _allowed(one), _allowed(other)
        for what in mine.keys() & theirs.keys():
            if not any(_same(name, known) for name in mine[what] for known in theirs[what]):
                whom = f" to {scope}" if (scope := str(getattr(one, "scope", ""))) else ""
                found.append(
                    f"{place(one)}: allows no {what} but {', '.join(mine[what])}, and {place(other)} none but"
                    f" {', '.join(theirs[what])}: together they allow none{whom}"
                )
    return found


def nobodys(rosters: Iterable[Roster], place: Callable[[Roster], Source]) -> list[str]:
    """A sentence, with both places, for each two lists of one team that have no member in common: then nobody is one.
    A pattern may mean anybody."""
    return [
        f"{place(one)}: has {', '.join(one.members)} in team {one.team}, and {place(other)} has"
        f" {', '.join(other.members)}: nobody is a member for both"
        for one, other in combinations(rosters, 2)
        if one.team == other.team
        and not PATTERN_SIGNS.intersection("".join((*one.members, *other.members)))
        and not set(one.members) & set(other.members)
    ]


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
