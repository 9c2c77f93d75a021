"""Rules of one kind with overlapping scopes: an error for the same jobs on the same terms, in one file or in several; a
warning for rules of one file about some of the same jobs, as several owners may each have theirs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from broker.core.documents import Document, Path
from broker.core.errors import Problem
from broker.core.ports import Rule
from broker.core.values.money import Money
from policies.approval_config import MayAsk
from policies.references import at, entries
from policies.rules.budget import Budget
from policies.scope import Scope

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
