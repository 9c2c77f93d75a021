"""Rules that allow nothing together: allowed lists without a common name, member lists without a common member.

In one file, with one author, that is an error. Between files of several owners it is the intended intersection, and a
warning.

Rules of one kind with overlapping scopes: an error for the same jobs on the same terms, in one file or in several; a
warning for rules of one file about some of the same jobs, as several owners may each have theirs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations
from typing import Any

from broker.core.documents import Document, Path
from broker.core.errors import Problem
from broker.core.market.offers import CapacityType
from broker.core.policy.policy import Source
from broker.core.ports import Rule
from broker.core.values.money import Money
from broker.core.values.units import print_duration
from policies.fields import PATTERN_SIGNS
from policies.references import at, entries
from policies.rules.always import Roster
from policies.rules.budget import Budget
from policies.rules.job_limits import MaxJobDuration
from policies.rules.machines import AllowedAccelerators, CapacityTypes
from policies.rules.places import AllowedLocations, Names
from policies.rules.spot import Spot
from policies.scope import MayAsk, Scope

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


# Keys of an entry beside its rule.
_BESIDE = frozenset({"name", "scope", "except", "per", "when", *MayAsk.model_fields})
# Two time windows differ; two thresholds may have different approvers.
_MAY_STAND_TWICE = ("freeze", "data_residency", "approve_above", "reserved_quota")


def twins(
    documents: Iterable[Document], is_wrong: Callable[[Document, Path], bool]
) -> Iterator[tuple[Document, Path, str]]:
    """Each entry of the files that differs from an earlier one in its name and its one limit only: a budget's amount,
    or the value of a guardrail that has a single one. Only the stricter can take effect, so one of them is a mistake.
    ``is_wrong``: whether an entry is invalid, so that its terms are unknown.
    """
    seen: dict[str, tuple[str, int]] = {}
    for document in documents:
        for path, entry in entries(document):
            if is_wrong(document, path):
                continue
            kind, terms = _terms_written(path, entry)
            file, line = seen.setdefault(terms, (document.file, document.values[path][0]))
            if (file, line) != (document.file, document.values[path][0]):
                where = f"line {line}" if file == document.file else f"{file}:{line}"
                message = (
                    f"covers the same jobs as the {kind} in {where}, so only the stricter one takes "
                    "effect; keep one, or give them different scopes"
                )
                yield document, path, message


def _terms_written(path: Path, entry: Mapping[str, Any]) -> tuple[str, str]:
    """The kind of an entry for a sentence, and all that it says beside its name and its limit, in a normal form."""
    said = {key: value for key, value in entry.items() if key != "name"}
    if path[0] == "budgets":
        kind, limit = f"budget per {entry.get('period')}", "amount"
        said = {"counts": "cash", "timezone": "UTC", **said}
    else:
        kind = limit = next((key for key in entry if key not in _BESIDE), "")
    if not isinstance(said.get(limit), dict | list):
        said[limit] = "a limit"
    terms = {key: _normal(value) for key, value in {"action": "deny", **said}.items()}
    return kind, repr((path[0], sorted(terms.items())))


def said_orders(document: Document) -> Iterator[tuple[Path, str, object]]:
    """Every capacity order: its place, its scope (normalised), and the order."""
    capacity = document.data.get("capacity")
    said = capacity if isinstance(capacity, dict) else {}
    if said.get("order") is not None:
        yield ("capacity", "order"), "", said["order"]
    exceptions = said.get("exceptions")
    for index, one in enumerate(exceptions if isinstance(exceptions, list) else ()):
        if isinstance(one, dict) and one.get("order") is not None:
            yield ("capacity", "exceptions", index, "order"), repr(_normal(one.get("scope") or {})), one["order"]


def overlaps(document: Document, rules: Mapping[str, Rule]) -> Iterator[Problem]:
    """Rules that share some jobs with an earlier rule, each once, and each rule that therefore never decides.
    ``rules``: those of the file, by name.

    Left out: scopes on different fields (a team here, a workload there), whose common jobs are unknown; and a stricter
    rule for some beside a rule for everybody, which is intended.
    """
    seen: dict[tuple[str, str], list[tuple[object, Path, Rule]]] = defaultdict(list)
    never: set[str] = set()
    for path, entry in entries(document):
        told, mine = False, rules[entry["name"]]
        for kind, said in _subjects(path, entry):
            before = seen[kind, _whenever(entry)]
            for what, where, other in before:
                message, idle = (
                    _both_apply(document, (path, mine), (where, other)) if _share(what, said) else ("", None)
                )
                if message and (idle not in never if idle else not told):
                    yield document.problem((*path, "scope"), message)
                    told = True
                never |= {idle} if idle else set()
            before.append((said, path, mine))


def _both_apply(document: Document, later: tuple[Path, Rule], earlier: tuple[Path, Rule]) -> tuple[str, str | None]:
    """The message about the later rule, or ""; and the name of the rule that never decides."""
    (path, rule), (where, other) = later, earlier
    mine, theirs = _scope_of(rule), _scope_of(other)
    both, stricter = mine.common(theirs), _stricter(rule, other)
    if both is None:
        return "", None
    looser = other if stricter is rule else rule
    never = stricter is not None and _scope_of(stricter).takes_in(_scope_of(looser))
    if Scope() in (mine, theirs) and stricter is not None and not never:
        return "", None
    names = (
        f"{rule.name}{_shown(document, path, rule)}",
        f"{other.name}{_shown(document, where, other)} in {at(document, (*where, 'scope'))}",
    )
    told = f"{names[0]} and {names[1]} both apply to {str(both) or 'every job'}"
    if stricter is None or _terms(document, path, rule) != _terms(document, where, other):
        return told, None
    if not never:
        return f"{told}: {stricter.name} is the stricter", None
    return f"{told}: {stricter.name} is the stricter, so {looser.name} never decides anything", looser.name


def _shown(document: Document, path: Path, rule: Rule) -> str:
    """`` ($500)``: the value of a rule that has only one."""
    said = document.data[str(path[0])][path[1]].get("amount" if rule.kind == "budget" else rule.kind)
    return f" ({said})" if isinstance(said, str | int | float) else ""


def _terms(document: Document, path: Path, rule: Rule) -> object:
    """The settings of a rule besides its limits. With different settings neither rule is stricter: $100 with ``ask``
    allows jobs that $500 with ``deny`` refuses. A rule that only alerts equals no other.
    """
    if isinstance(rule, Budget):
        told = rule.config.action == "alert"
        return object() if told else {key: said for key, said in rule.config if key not in ("name", "scope", "amount")}
    entry = document.data[str(path[0])][path[1]]
    return MayAsk(**{key: entry[key] for key in MayAsk.model_fields if key in entry})


def _stricter(one: Rule, other: Rule) -> Rule | None:
    """The rule whose limits are nowhere higher; with equal limits the one with the wider scope; None if neither is.
    Terms are not compared.
    """
    mine, theirs = _limits(one), _limits(other)
    if not mine or mine.keys() != theirs.keys() or any(type(mine[key]) is not type(theirs[key]) for key in mine):
        return None
    if all(mine[key] == theirs[key] for key in mine):
        return one if _scope_of(one).takes_in(_scope_of(other)) else other
    if all(mine[key] <= theirs[key] for key in mine):
        return one
    return other if all(mine[key] >= theirs[key] for key in mine) else None


def _limits(rule: Rule) -> Mapping[str, Any]:
    """The limits of a rule that consists only of limits, by subject."""
    if isinstance(rule, Budget):
        return {",".join(sorted(rule.config.counts)): rule.config.amount}
    said = getattr(getattr(rule, "config", None), "root", None)
    limits = said if isinstance(said, Mapping) else {"": said}
    return limits if all(isinstance(limit, Money | timedelta | int | float) for limit in limits.values()) else {}


def _scope_of(rule: Rule) -> Scope:
    scope = getattr(rule, "scope", None)
    return scope if isinstance(scope, Scope) else Scope()


def _subjects(path: Path, entry: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    if path[0] == "budgets":
        if entry.get("period") != "fixed":
            counts = entry.get("counts", ["cash"])
            kinds = map(str, counts if isinstance(counts, list) else [counts])
            alerts = " that alerts only" if entry.get("action") == "alert" else ""
            yield f"budget per {entry.get('period')}{alerts}", dict.fromkeys(kinds)
        return
    asks = {"ask": " that asks", "warn": " that only warns"}.get(str(entry.get("action")), "")
    for kind, said in entry.items():
        if kind not in _BESIDE and kind not in _MAY_STAND_TWICE:
            yield f"{kind}{asks}", said


def _whenever(entry: Mapping[str, Any]) -> str:
    """Entries are comparable only if these are equal: different conditions or exceptions make both matter."""
    return repr((entry.get("when"), entry.get("except"), entry.get("per")))


def _share(one: object, other: object) -> bool:
    """Whether two entries of a kind have a common subject."""
    if isinstance(one, dict) and isinstance(other, dict):
        return bool(one.keys() & other.keys())
    return type(one) is type(other)


def _normal(said: object) -> object:
    """A value, such as a scope, in a normal form: order and one-element lists do not count."""
    if isinstance(said, dict):
        return sorted((str(key), _normal(value)) for key, value in said.items())
    return sorted(map(str, said if isinstance(said, list) else [said]))
