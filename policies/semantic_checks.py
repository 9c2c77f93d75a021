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

from broker.core.documents import Document, Path, path_text
from broker.core.errors import Problem, did_you_mean
from broker.core.market.accelerators import accelerator_names
from broker.core.policy.policy import PolicyName, Source
from broker.core.values.provider_names import NAMES, is_provider_name
from policies.conditions import Condition, parse_condition
from policies.fields import PATTERN_SIGNS, names_accelerator, parse_accelerator
from policies.references import entries, listed_members, named_approvers, named_providers, named_teams
from policies.rules import GUARDRAILS, RULES
from policies.scope import MayAsk, restrict_to

if TYPE_CHECKING:
    from policies.cel_typecheck import ExpressionError

_UNKNOWN_KEY = re.compile(r"guardrails\[\d+\]\.(\w+)")
_EXCEPT_IN_BUDGET = re.compile(r"budgets\[\d+\]\.except")
_REMOVED = {
    "rules_of_thumb": "is now `assumptions:`, with the same names; rename the key",
    "capacity.lend": "lending between teams was removed: every team uses bought machines at no price; to divide their "
    "cost by use, see `gpubroker report showback`; delete this key",
    "defaults.keep_events": "the archive was removed: events of ended jobs stay in the database; delete this key",
}
_SPEND_OF_SCOPE = (
    "decides which jobs this budget pays for, and divides no money: jobs in its scope that do not meet it count as "
    "spend of this budget, too; to count some jobs alone, name their user, team, project, workload or environment "
    "in `scope:`"
)
_KEY_PREFIX = 3  # letters of a key that identify it
# Keys of an entry besides its rule.
_COMMON_KEYS = frozenset({"name", "scope", "except", "per", "when", *MayAsk.model_fields})


def check_conditions(
    document: Document, text: str
) -> tuple[dict[Path, Condition], list[Problem], list[Problem], list[PolicyName]]:
    """The conditions of a file by entry, the problems of invalid ones, warnings for conditions that some jobs cannot
    evaluate and for those of budgets, and the names in them.
    """
    names: list[PolicyName] = []
    parsed: dict[Path, Condition] = {}
    problems: list[Problem] = []
    doubts: list[Problem] = []
    lines = text.removeprefix("\ufeff").splitlines()
    for path, entry in entries(document):
        expression = entry.get("when")
        if not isinstance(expression, str) or not expression.strip():
            continue  # the form is wrong
        from policies.cel_typecheck import ExpressionError  # imported only for files with conditions

        try:
            parsed[path] = parse_condition(expression)
        except ExpressionError as mistake:
            problems.append(_locate_problem(document, lines, (*path, "when"), expression, mistake))
            continue
        if path[0] == "budgets" and (changing := parsed[path].changing):
            offset = max(expression.find(changing[0]), 0)
            problems.append(
                _locate_problem(
                    document, lines, (*path, "when"), expression, ExpressionError(offset, _about_change(changing[0]))
                )
            )
        if path[0] == "budgets":
            doubts.append(document.problem((*path, "when"), _SPEND_OF_SCOPE, at_key=True))
        for name, offset in parsed[path].unasked:
            warning = ExpressionError(offset, _absent_field_message(name, parsed[path], budget=path[0] == "budgets"))
            doubts.append(_locate_problem(document, lines, (*path, "when"), expression, warning))
        for kind, name, pattern, offset in parsed[path].names:
            at = _locate_problem(document, lines, (*path, "when"), expression, ExpressionError(offset, ""))
            names.append(PolicyName(kind, name, Source(document.file, at.line, at.column), pattern))
    return parsed, problems, doubts, names


def unclear_days(document: Document) -> list[Problem]:
    """A warning for working hours that name no days, which then apply from Monday to Friday, and for two days that read
    as a range."""
    message, problems = "no `days` are given, so Monday to Friday apply; write `days: mon-fri` to say so", []
    for path, entry in entries(document):
        if not isinstance(hours := entry.get("working_hours"), dict):
            continue
        if "days" not in hours:
            problems.append(document.problem((*path, "working_hours"), message, at_key=True))
        elif advice := _reads_as_range(hours["days"]):
            problems.append(document.problem((*path, "working_hours", "days"), advice))
    return problems


def similar_cards(document: Document) -> Iterator[Problem]:
    """A warning for each card that a rule limits or denies without naming one with almost the same name: GB200 beside
    B200, A10G beside A10. The form of the file must be valid."""
    for path, entry in entries(document):
        prices, cards = entry.get("max_price_per_gpu_hour"), entry.get("accelerators")
        price_limits = prices if isinstance(prices, dict) and "default" not in prices else ()
        denied_cards = cards.get("deny") or () if isinstance(cards, dict) else ()
        for key, value in (("max_price_per_gpu_hour", price_limits), ("accelerators", denied_cards)):
            names = {name: parse_accelerator(name) for name in ([value] if isinstance(value, str) else value)}
            for name, card in names.items():
                similar_name = re.compile(f"[A-Z]?{re.escape(card)}[A-Za-z]?")
                if neighbors := [
                    neighbor
                    for neighbor in filter(similar_name.fullmatch, accelerator_names())
                    if not any(names_accelerator(pattern, neighbor) for pattern in names.values())
                ]:
                    message = f"{name!r} does not include {', '.join(neighbors)}; list it, too, if you mean it"
                    yield document.problem((*path, key, name), message, at_key=True)


def _reads_as_range(days: object) -> str:
    """What two days in a list mean, and how to write the range between them; empty for any other list."""
    from policies.rules.times import DAYS, days_between

    if not isinstance(days, list) or len(days) != 2 or any(day not in DAYS for day in days):
        return ""
    first, last = days
    if len(span := days_between(first, last)) <= 2:
        return ""
    return f"`[{first}, {last}]` means {first} and {last} alone; for {', '.join(span)} write `days: {first}-{last}`"


def _about_change(name: str) -> str:
    """A message about a budget's condition on something that may change during a job."""
    return (
        f"{name} may change while a job runs, and a budget covers a whole job; expected only user "
        "and job.* in the condition of a budget; a guardrail's may use it, such as freeze or max_job_cost"
    )


def _absent_field_message(name: str, checked: Condition, *, budget: bool) -> str:
    """A message about a condition that reads an optional field: its effect, and what to write instead."""
    names = [field_name for field_name, _ in checked.unasked]
    text = " ".join(checked.text.splitlines()).strip()
    wrapped = f"({text})" if "||" in text or "?" in text else text
    guarded = " && ".join([*(f"has({field_name})" for field_name in names), wrapped])
    if not budget:
        return f"{name} may be absent; the rule then applies as if the condition were met; to avoid that: {guarded}"
    permissive = " || ".join([*(f"!has({field_name})" for field_name in names), wrapped])
    return (
        f"{name} may be absent; the budget then grants nothing; to state that: {guarded}; to grant anyway: {permissive}"
    )


def _locate_problem(
    document: Document, lines: Sequence[str], path: Path, expression: str, mistake: ExpressionError
) -> Problem:
    """The problem with its place: the exact character if the condition is on one line."""
    line, column = document.values[path]
    rest = lines[line - 1][column - 1 :] if line <= len(lines) else ""
    quoted = rest[:1] in ("'", '"')
    if rest[quoted:].startswith(expression):
        return Problem(line, column + quoted + mistake.at, path_text(path), str(mistake))
    place = f" (at {expression[mistake.at : mistake.at + 20]!r})" if mistake.at < len(expression) else " (at its end)"
    return Problem(line, column, path_text(path), f"{mistake}{place}")


@dataclass
class CrossFileChecks:
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
        for document, path, message in duplicate_entries(self.documents, self._is_wrong):
            self._add(document, path, message)
        return self.problems

    def _add(self, document: Document, path: Path, message: str, *, at_key: bool = False) -> None:
        self.problems[document.file].append(document.problem(path, message, at_key=at_key))

    def _policy_names(self) -> None:
        files_by_name: dict[str, str] = {}
        for document in self.documents:
            name = self.names[document.file]
            if name in files_by_name:
                message = f"the policy name {name!r} is taken by {files_by_name[name]}; set a different `policy:`"
                self._add(document, ("policy",), message)
            files_by_name[name] = document.file

    def _names(self) -> None:
        places_by_name: dict[str, str] = {}
        for document in self.documents:
            for path, entry in entries(document):
                name = entry.get("name")
                if not isinstance(name, str):
                    continue
                if name in places_by_name:
                    message = f"the name {name!r} is already used in {places_by_name[name]}; names must be unique"
                    self._add(document, (*path, "name"), message)
                places_by_name.setdefault(name, f"{document.file}:{document.values[path][0]}")

    def _teams(self) -> None:
        sections = [document.data.get("teams") for document in self.documents]
        teams = {team for section in sections if isinstance(section, dict) for team in section}
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
                hint = did_you_mean(name, {*NAMES, *self.providers})
                if hint and name.lower() not in self.providers and not is_provider_name(name):
                    message = f"no provider is called {name!r}{hint} For a future provider, write a pattern"
                    self._add(document, path, f"{message}, such as '{name[:-1]}[{name[-1]}]'")

    def _approvers(self) -> None:
        """Once files list people, an approver must be one of them: otherwise nobody could approve."""
        people = listed_members(self.documents)
        if not people:
            return  # without lists any name is valid
        for document in self.documents:
            for path, name in named_approvers(document):
                if restrict_to([name], people):
                    continue
                if PATTERN_SIGNS.intersection(name):
                    message = f"no team has a member who matches {name!r}, so nobody can approve"
                    self._add(document, path, f"{message}; expected a listed name or a pattern that matches one")
                    continue
                named_people = [person for person in people if not PATTERN_SIGNS.intersection(person)]
                hint = did_you_mean(name, named_people)
                message = (
                    f"no team has a member {name!r}, so nobody of that name can "
                    f"approve{f'{hint} Or add' if hint else '; add'} the team, such as finance: {{members: "
                    f"[{name}]}}"
                )
                self._add(document, path, message)

    def _orders(self) -> None:
        """One capacity order for everybody, and one per scope."""
        first_orders: dict[str, tuple[object, str]] = {}
        for document in self.documents:
            for path, scope_text, order in capacity_orders(document):
                place = f"{document.file}:{document.problem(path, '').line}"
                earlier, earlier_place = first_orders.setdefault(scope_text, (order, place))
                if earlier != order and not self._wrong_at(document, path):
                    qualifier = " for the same jobs" if len(path) > len(("capacity", "order")) else ""
                    self._add(
                        document, path, f"contradicts the order{qualifier} in {earlier_place}; only one is possible"
                    )

    def _is_wrong(self, document: Document, path: Path) -> bool:
        """Whether the terms of the entry are unknown because it is invalid. Its name does not matter."""
        return bool(self._wrong_at(document, path) - {f"{path_text(path)}.name"})

    def _wrong_at(self, document: Document, path: Path) -> set[str]:
        """The keys at and below this path that are already reported as invalid."""
        part = path_text(path)
        return {
            key for key in self.wrong.get(document.file, ()) if key == part or key.startswith((f"{part}.", f"{part}["))
        }


def duplicate_entries(
    documents: Iterable[Document], is_wrong: Callable[[Document, Path], bool]
) -> Iterator[tuple[Document, Path, str]]:
    """Each entry of the files that differs from an earlier one in its name and its one limit only: a budget's amount,
    or the value of a guardrail that has a single one. Only the stricter can take effect, so one of them is a mistake.
    ``is_wrong``: whether an entry is invalid, so that its terms are unknown.
    """
    first_places: dict[str, tuple[str, int]] = {}
    for document in documents:
        for path, entry in entries(document):
            if is_wrong(document, path):
                continue
            kind, terms = _entry_terms(path, entry)
            file, line = first_places.setdefault(terms, (document.file, document.values[path][0]))
            if (file, line) != (document.file, document.values[path][0]):
                place = f"line {line}" if file == document.file else f"{file}:{line}"
                message = (
                    f"covers the same jobs as the {kind} in {place}, so only the stricter one takes "
                    "effect; keep one, or give them different scopes"
                )
                yield document, path, message


def _entry_terms(path: Path, entry: Mapping[str, Any]) -> tuple[str, str]:
    """The kind of an entry for a sentence, and all that it says besides its name and its limit, in a normal form."""
    settings = {key: value for key, value in entry.items() if key != "name"}
    if path[0] == "budgets":
        kind, limit = f"budget per {entry.get('period')}", "amount"
        settings = {"counts": "cash", "timezone": "UTC", **settings}
    else:
        kind = limit = next((key for key in entry if key not in _COMMON_KEYS), "")
    if not isinstance(settings.get(limit), dict | list):
        settings[limit] = "a limit"
    terms = {key: _normal(value) for key, value in {"action": "deny", **settings}.items()}
    return kind, repr((path[0], sorted(terms.items())))


def capacity_orders(document: Document) -> Iterator[tuple[Path, str, object]]:
    """Every capacity order: its place, its scope (normalized), and the order."""
    capacity = document.data.get("capacity")
    section = capacity if isinstance(capacity, dict) else {}
    if section.get("order") is not None:
        yield ("capacity", "order"), "", section["order"]
    exceptions = section.get("exceptions")
    for index, exception in enumerate(exceptions if isinstance(exceptions, list) else ()):
        if isinstance(exception, dict) and exception.get("order") is not None:
            yield (
                ("capacity", "exceptions", index, "order"),
                repr(_normal(exception.get("scope") or {})),
                exception["order"],
            )


def _normal(raw: object) -> object:
    """A value, such as a scope, in a normal form: order and one-element lists do not count."""
    if isinstance(raw, dict):
        return sorted((str(key), _normal(value)) for key, value in raw.items())
    return sorted(map(str, raw if isinstance(raw, list) else [raw]))


def with_key_hint(problem: Problem) -> Problem:
    """The problem of an unknown key, extended by what replaced a removed key, by the rule that has the key, or by
    similar keys."""
    if problem.key in _REMOVED:
        return replace(problem, message=_REMOVED[problem.key], known=())
    if _EXCEPT_IN_BUDGET.fullmatch(problem.key):
        message = "budgets have no exceptions (only guardrails do); narrow the scope instead"
        return replace(problem, message=message)
    match = _UNKNOWN_KEY.fullmatch(problem.key)
    if not match or not problem.unknown_key:
        return problem
    key = match[1]
    rules = [kind for kind in GUARDRAILS if key in _keys_of(kind)]
    if rules:
        return replace(problem, message=f"unknown key; it belongs in a rule, such as {rules[0]}: {{{key}: …}}")
    candidates = [kind for kind in GUARDRAILS if kind.startswith(key) and len(key) >= _KEY_PREFIX]
    if candidates:
        return replace(problem, message=f"unknown key; did you mean {' or '.join(map(repr, candidates))}?")
    return problem


def _keys_of(kind: str) -> set[str]:
    fields = RULES[kind].Config.model_fields
    return {field.alias or name for name, field in fields.items()} - {"root"}
