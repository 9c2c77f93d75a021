"""Rules that allow nothing together: allowed lists without a common name, member lists without a common member.

In one file, with one author, that is an error. Between files of several owners it is the intended intersection, and a
warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations

from broker.core.market.offers import CapacityType
from broker.core.policy.policy import Source
from broker.core.ports import Rule
from broker.core.values.units import print_duration
from policies.fields import PATTERN_SIGNS
from policies.rules.job_limits import MaxJobDuration
from policies.rules.machines import AllowedAccelerators, CapacityTypes
from policies.rules.membership import Roster
from policies.rules.places import AllowedLocations, Names
from policies.rules.spot import Spot
from policies.scope import Scope

_SPOT = CapacityType.SPOT.value


@dataclass(frozen=True)
class DeadEnd:
    """Rules in file order, each with its statement (``says``), and the result (``leaves``)."""

    rules: tuple[Rule, ...]
    says: tuple[str, ...]
    leaves: str

    def told(self, place: Callable[[Rule], Source], of: int) -> str:
        """The message for the rule with index ``of``, with the places of the others."""
        order = [of, *(index for index in range(len(self.rules)) if index != of)]
        others = [f"{place(self.rules[index])} {self.says[index]}" for index in order[1:]]
        return f"{', and '.join([self.says[of], *others])}: {self.leaves}"


def dead_ends(rules: Iterable[Rule]) -> Iterator[DeadEnd]:
    """Sets of rules that together deny everything that one of them allows explicitly. ``rules``: unconditional denials
    without exceptions.

    Reports certain cases only: names matched by a pattern are unknown, and scopes on different fields (a team in one, a
    workload in the other) may share no job.
    """
    every = list(rules)
    lists: dict[str, list[tuple[Rule, Names]]] = {}
    for rule in every:
        for what, names in _lists(rule).items():
            lists.setdefault(what, []).append((rule, names))
    for what, limits in lists.items():
        yield from _nothing_left(what, limits)


def nobodys(rosters: Iterable[Roster], place: Callable[[Roster], Source]) -> list[str]:
    """A sentence for each two lists of one team without a common member, so that nobody is a member. A pattern may
    match anybody.
    """
    return [
        f"{place(one)}: has {', '.join(one.members)} in team {one.team}, and {place(other)} has "
        f"{', '.join(other.members)}: no user is a member in both"
        for one, other in combinations(rosters, 2)
        if one.team == other.team
        and not PATTERN_SIGNS.intersection("".join((*one.members, *other.members)))
        and not set(one.members) & set(other.members)
    ]


def too_short(
    rules: Iterable[Rule], default: timedelta, said_at: Source, place: Callable[[Rule], Source]
) -> Iterator[str]:
    """A sentence for each limit for everybody that is below the default ``max_duration``. ``said_at``: where a file
    sets that ``default``.
    """
    for rule in rules:
        if isinstance(rule, MaxJobDuration) and rule.scope == Scope() and rule.config.root < default:
            yield (
                f"{place(rule)}: denies every job without `max_duration`: the default is "
                f"{print_duration(default)} by {said_at}, and the limit is {print_duration(rule.config.root)}"
            )


def _nothing_left(what: str, limits: list[tuple[Rule, Names]]) -> Iterator[DeadEnd]:
    """Lists that deny everything one of them allows: alone, with one other, or with several."""
    found: set[frozenset[Rule]] = set()
    for rule, names in limits:
        if not names.allow or PATTERN_SIGNS.intersection("".join(names.allow)):
            continue
        others = [one for one in limits if one[0] is not rule]
        mine = _scope(rule)
        shared = ((mine.common(_scope(other[0])), other) for other in others)
        pairs = [(scope, [(rule, names), other]) for scope, other in shared if scope is not None]
        several = (
            (scope, [(rule, names), *(other for other in others if _scope(other[0]).takes_in(scope))])
            for scope in dict.fromkeys((mine, *(scope for scope, _ in pairs)))
        )
        for scope, group in ((mine, [(rule, names)]), *pairs, *several):
            taking = _taking(names.allow, group)
            told = frozenset((rule, *(one for one, _ in taking)))
            if not taking or any(known <= told for known in found):
                continue
            found.add(told)
            yield _empty(what, [one for one in limits if one[0] in told], scope)


def _taking(allowed: tuple[str, ...], group: list[tuple[Rule, Names]]) -> list[tuple[Rule, Names]]:
    """The rules of a group that together deny all of ``allowed``; empty if something remains."""
    taking = []
    for name in allowed:
        first = next((one for one in group if _takes(one[1], name)), None)
        if first is None:
            return []
        taking.append(first)
    return taking


def _takes(names: Names, name: str) -> bool:
    """Whether a list denies the name. A region without its provider may belong to any provider."""
    whole, bare = name, name.rpartition("/")[2]
    if whole != bare:
        return names.objection(bare, whole) is not None
    anywhere = Names.model_construct(allow=tuple(one.rpartition("/")[2] for one in names.allow), deny=names.deny)
    return anywhere.objection(name) is not None


def _empty(what: str, limits: list[tuple[Rule, Names]], scope: Scope) -> DeadEnd:
    said = (
        (
            f"allows only {what} {', '.join(names.allow)}" if names.allow else "",
            f"denies {', '.join(names.deny)}" if names.deny else "",
        )
        for _, names in limits
    )
    whom = f" to {scope}" if str(scope) else ""
    together = "together they allow nothing" if len(limits) > 1 else "it allows nothing"
    says = tuple(" and ".join(filter(None, parts)) for parts in said)
    return DeadEnd(tuple(rule for rule, _ in limits), says, f"{together}{whom}")


def _lists(rule: Rule) -> Mapping[str, Names]:
    """The allow and deny lists of a rule, by subject."""
    lists: dict[str, Names] = {}
    match rule:
        case AllowedLocations(config=said):
            lists = {"provider": said.providers, "region": said.regions}
        case AllowedAccelerators(config=names):
            lists = {"accelerator": names}
        case CapacityTypes(config=types):
            allow, deny = (tuple(one.value for one in said) for said in (types.allow, types.deny))
            lists = {"capacity type": Names.model_construct(allow=allow, deny=deny)}
        case Spot() if rule.forbids_spot:
            lists = {"capacity type": Names.model_construct(allow=(), deny=(_SPOT,))}
    return {what: names for what, names in lists.items() if names.allow or names.deny}


def _scope(rule: Rule) -> Scope:
    scope = getattr(rule, "scope", None)
    return scope if isinstance(scope, Scope) else Scope()
