"""Checks of policy files beyond their form: duplicate names, teams that no file lists, rules that cover each other,
contradictions between files, and conditions.

Works on the documents, so that all problems of a file are reported together.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from broker.core.documents import Document, Path, dotted
from broker.core.errors import Problem, did_you_mean
from broker.core.values.provider_names import NAMES, is_provider_name
from policies.conditions import Condition, condition
from policies.fields import PATTERN_SIGNS
from policies.references import entries, listed_members, named_approvers, named_providers, named_teams
from policies.registry import GUARDRAILS, rule_class
from policies.scope import MayAsk, among

if TYPE_CHECKING:
    from policies.cel_typecheck import Mistake

_UNKNOWN_KEY = re.compile(r"guardrails\[\d+\]\.(\w+)")
_EXCEPT_IN_BUDGET = re.compile(r"budgets\[\d+\]\.except")
_REMOVED = {
    "capacity.lend": "lending between teams was removed: every team uses bought machines at no price; to divide their "
    "cost by use, see `gpubroker report showback`; delete this key",
    "defaults.keep_events": "the archive was removed: events of ended jobs stay in the database; delete this key",
}
_TELLING = 3  # letters of a key that identify it
# Keys of an entry besides its rule.
_BESIDE = frozenset({"name", "scope", "except", "per", "when", *MayAsk.model_fields})


def conditions(document: Document, text: str) -> tuple[dict[Path, Condition], list[Problem], list[Problem]]:
    """The conditions of a file by entry, the problems of invalid ones, and warnings for conditions that some jobs
    cannot evaluate.
    """
    found: dict[Path, Condition] = {}
    problems: list[Problem] = []
    doubts: list[Problem] = []
    lines = text.removeprefix("\ufeff").splitlines()
    for path, entry in entries(document):
        said = entry.get("when")
        if not isinstance(said, str) or not said.strip():
            continue  # the form is wrong
        from policies.cel_typecheck import Mistake  # imported only for files with conditions

        try:
            found[path] = condition(said)
        except Mistake as mistake:
            problems.append(_located(document, lines, (*path, "when"), said, mistake))
            continue
        if path[0] == "budgets" and (changing := found[path].changing):
            at = max(said.find(changing[0]), 0)
            problems.append(_located(document, lines, (*path, "when"), said, Mistake(at, _about_change(changing[0]))))
        for name, at in found[path].unasked:
            unsure = Mistake(at, _unsure(name, found[path], budget=path[0] == "budgets"))
            doubts.append(_located(document, lines, (*path, "when"), said, unsure))
    return found, problems, doubts


def unclear_days(document: Document) -> list[Problem]:
    """A warning for working hours that name no days, which then apply from Monday to Friday, and for two days that read
    as a range."""
    message, found = "no `days` are given, so Monday to Friday apply; write `days: mon-fri` to say so", []
    for path, entry in entries(document):
        if not isinstance(hours := entry.get("working_hours"), dict):
            continue
        if "days" not in hours:
            found.append(document.problem((*path, "working_hours"), message, at_key=True))
        elif said := _reads_as_range(hours["days"]):
            found.append(document.problem((*path, "working_hours", "days"), said))
    return found


def _reads_as_range(days: object) -> str:
    """What two days in a list mean, and how to write the range between them; empty for any other list."""
    from policies.rules.times import DAYS, between

    if not isinstance(days, list) or len(days) != 2 or any(day not in DAYS for day in days):
        return ""
    first, last = days
    if len(span := between(first, last)) <= 2:
        return ""
    return f"`[{first}, {last}]` means {first} and {last} alone; for {', '.join(span)} write `days: {first}-{last}`"


def _about_change(name: str) -> str:
    """A message about a budget's condition on something that may change during a job."""
    return (
        f"{name} may change while a job runs, and a budget covers a whole job; expected only user "
        "and job.* in the condition of a budget; a guardrail's may use it, such as freeze or max_job_cost"
    )


def _unsure(name: str, asked: Condition, *, budget: bool) -> str:
    """A message about a condition that reads an optional field: its effect, and what to write instead."""
    names = [one for one, _ in asked.unasked]
    text = " ".join(asked.text.splitlines()).strip()
    said = f"({text})" if "||" in text or "?" in text else text
    there = " && ".join([*(f"has({one})" for one in names), said])
    if not budget:
        return f"{name} may be absent; the rule then applies as if the condition were met; to avoid that: {there}"
    either = " || ".join([*(f"!has({one})" for one in names), said])
    return f"{name} may be absent; the budget then grants nothing; to state that: {there}; to grant anyway: {either}"


def _located(document: Document, lines: Sequence[str], path: Path, said: str, mistake: Mistake) -> Problem:
    """The problem with its place: the exact character if the condition is on one line."""
    line, column = document.values[path]
    stands = lines[line - 1][column - 1 :] if line <= len(lines) else ""
    quoted = stands[:1] in ("'", '"')
    if stands[quoted:].startswith(said):
        return Problem(line, column + quoted + mistake.at, dotted(path), str(mistake))
    where = f" (at {said[mistake.at : mistake.at + 20]!r})" if mistake.at < len(said) else " (at its end)"
    return Problem(line, column, dotted(path), f"{mistake}{where}")


@dataclass
class Together:
    """All files, and the findings by file. ``names``: the policy's name by file; ``providers``: known providers.
    ``wrong``: keys, by file, that are already reported as invalid: nothing is derived from them. ``complete``: False if
    a file cannot be read, so that its lists are unknown.
    """

    documents: Sequence[Document]
    names: Mapping[str, str]
    providers: Collection[str] = ()
    wrong: Mapping[str, Collection[str]] = field(default_factory=dict)
    complete: bool = True
    problems: dict[str, list[Problem]] = field(default_factory=lambda: defaultdict(list))

    def look(self) -> Mapping[str, list[Problem]]:
        """Problems between the parts of the files, by file."""
        self._policy_names()
        self._names()
        self._places()
        if self.complete:
            self._teams()
            self._approvers()
        self._orders()
        for document, path, message in twins(self.documents, self._is_wrong):
            self._add(document, path, message)
        return self.problems

    def _add(self, document: Document, path: Path, message: str, *, at_key: bool = False) -> None:
        self.problems[document.file].append(document.problem(path, message, at_key=at_key))

    def _policy_names(self) -> None:
        taken: dict[str, str] = {}
        for document in self.documents:
            name = self.names[document.file]
            if name in taken:
                message = f"the policy name {name!r} is taken by {taken[name]}; set a different `policy:`"
                self._add(document, ("policy",), message)
            taken[name] = document.file

    def _names(self) -> None:
        taken: dict[str, str] = {}
        for document in self.documents:
            for path, entry in entries(document):
                name = entry.get("name")
                if not isinstance(name, str):
                    continue
                if name in taken:
                    message = f"the name {name!r} is already used in {taken[name]}; names must be unique"
                    self._add(document, (*path, "name"), message)
                taken.setdefault(name, f"{document.file}:{document.values[path][0]}")

    def _teams(self) -> None:
        listed = [document.data.get("teams") for document in self.documents]
        teams = {team for one in listed if isinstance(one, dict) for team in one}
        if not teams:
            return  # without lists any name is valid
        for document in self.documents:
            for path, team in named_teams(document):
                if team not in teams:
                    message = f"no file lists a team {team!r}{did_you_mean(team, teams)}"
                    self._add(document, path, message, at_key=path[-1] == team)

    def _places(self) -> None:
        """Report names close to a known provider: a misspelled provider in a deny list denies nothing. Other names are
        accepted with a warning (`PolicySet.places`): catalogs bring providers of their own.
        """
        for document in self.documents:
            for path, name in named_providers(document):
                meant = did_you_mean(name, {*NAMES, *self.providers})
                if meant and name.lower() not in self.providers and not is_provider_name(name):
                    message = f"no provider is called {name!r}{meant} For a future provider, write a pattern"
                    self._add(document, path, f"{message}, such as '{name[:-1]}[{name[-1]}]'")

    def _approvers(self) -> None:
        """Once files list people, an approver must be one of them: otherwise nobody could approve."""
        people = listed_members(self.documents)
        if not people:
            return  # without lists any name is valid
        for document in self.documents:
            for path, name in named_approvers(document):
                if among([name], people):
                    continue
                if PATTERN_SIGNS.intersection(name):
                    message = f"no team has a member who matches {name!r}, so nobody can approve"
                    self._add(document, path, f"{message}; expected a listed name or a pattern that matches one")
                    continue
                known = [person for person in people if not PATTERN_SIGNS.intersection(person)]
                meant = did_you_mean(name, known)
                message = (
                    f"no team has a member {name!r}, so nobody of that name can "
                    f"approve{f'{meant} Or add' if meant else '; add'} the team, such as finance: {{members: "
                    f"[{name}]}}"
                )
                self._add(document, path, message)

    def _orders(self) -> None:
        """One capacity order for everybody, and one per scope."""
        first: dict[str, tuple[object, str]] = {}
        for document in self.documents:
            for path, whom, order in said_orders(document):
                place = f"{document.file}:{document.problem(path, '').line}"
                before, where = first.setdefault(whom, (order, place))
                if before != order and not self._wrong_at(document, path):
                    same = " for the same jobs" if len(path) > len(("capacity", "order")) else ""
                    self._add(document, path, f"contradicts the order{same} in {where}; only one is possible")

    def _is_wrong(self, document: Document, path: Path) -> bool:
        """Whether the entry's scope is unknown because it is invalid. The amount and name of a budget do not matter."""
        entry = dotted(path)
        return bool(self._wrong_at(document, path) - {f"{entry}.amount", f"{entry}.name"})

    def _wrong_at(self, document: Document, path: Path) -> set[str]:
        """The keys at and below this path that are already reported as invalid."""
        part = dotted(path)
        return {
            key for key in self.wrong.get(document.file, ()) if key == part or key.startswith((f"{part}.", f"{part}["))
        }


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
    """The kind of an entry for a sentence, and all that it says besides its name and its limit, in a normal form."""
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
    """Every capacity order: its place, its scope (normalized), and the order."""
    capacity = document.data.get("capacity")
    said = capacity if isinstance(capacity, dict) else {}
    if said.get("order") is not None:
        yield ("capacity", "order"), "", said["order"]
    exceptions = said.get("exceptions")
    for index, one in enumerate(exceptions if isinstance(exceptions, list) else ()):
        if isinstance(one, dict) and one.get("order") is not None:
            yield ("capacity", "exceptions", index, "order"), repr(_normal(one.get("scope") or {})), one["order"]


def _normal(said: object) -> object:
    """A value, such as a scope, in a normal form: order and one-element lists do not count."""
    if isinstance(said, dict):
        return sorted((str(key), _normal(value)) for key, value in said.items())
    return sorted(map(str, said if isinstance(said, list) else [said]))


def at_home(problem: Problem) -> Problem:
    """The problem of an unknown key, extended by what replaced a removed key, by the rule that has the key, or by
    similar keys."""
    if problem.key in _REMOVED:
        return replace(problem, message=_REMOVED[problem.key], known=())
    if _EXCEPT_IN_BUDGET.fullmatch(problem.key):
        message = "budgets have no exceptions (only guardrails do); narrow the scope instead"
        return replace(problem, message=message)
    found = _UNKNOWN_KEY.fullmatch(problem.key)
    if not found or not problem.unknown_key:
        return problem
    key = found[1]
    homes = [kind for kind in GUARDRAILS if key in _keys_of(kind)]
    if homes:
        return replace(problem, message=f"unknown key; it belongs in a rule, such as {homes[0]}: {{{key}: …}}")
    longer = [kind for kind in GUARDRAILS if kind.startswith(key) and len(key) >= _TELLING]
    if longer:
        return replace(problem, message=f"unknown key; did you mean {' or '.join(map(repr, longer))}?")
    return problem


def _keys_of(kind: str) -> set[str]:
    fields = rule_class(kind).Config.model_fields
    return {field.alias or name for name, field in fields.items()} - {"root"}
