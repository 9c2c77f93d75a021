"""Policy files into the one set that is in force: every rule of every file, and the built-in ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from json import dumps

from broker.core.documents import Document, Path, nulls, read_document
from broker.core.errors import InvalidInput, Problem, did_you_mean
from broker.core.findings import validate
from broker.core.policy import Source
from broker.core.ports import PolicyDefaults, Rule
from policies.policyset import ActivePolicies
from policies.registry import rule_class
from policies.rules.budget import Budget
from policies.rules.membership import Roster
from policies.schema import BudgetEntry, GuardrailEntry, PolicyFile, policy_file_model

_KIND = "policy file"
_NO_FILES = "none"
_DIGITS_OF_VERSION = 12


@dataclass(frozen=True)
class _Read:
    """One file that is right in itself."""

    document: Document
    content: PolicyFile

    @property
    def name(self) -> str:
        stem = re.split(r"[/\\]", self.document.file)[-1]
        return self.content.policy or stem.rpartition(".")[0] or stem

    def source(self, path: Path) -> Source:
        return Source(self.document.file, self.document.values[path][0])

    def entries(self) -> Iterator[tuple[BudgetEntry | GuardrailEntry, Path]]:
        """Everything with a name and a scope of its own: budgets and guardrails."""
        yield from ((entry, ("budgets", index)) for index, entry in enumerate(self.content.budgets))
        yield from ((entry, ("guardrails", index)) for index, entry in enumerate(self.content.entries))


def load(files: Mapping[str, str]) -> ActivePolicies:
    """The set made of these files (name to content), in the order of their names; the names are for messages only.

    All files apply: every rule judges, so the strictest limit decides. No file at all is a set that grants nothing.
    Pure. Raises `InvalidInput` for the first file that is wrong, with every mistake in it and its place: what one
    file says alone, names that are used twice, teams in scopes that no file lists, and files that contradict each
    other.
    """
    read, refused = [], []
    for file in sorted(files):
        try:
            read.append(_read(file, files[file]))
        except InvalidInput as error:
            refused.append(error)
    if not refused:
        refused = list(_conflicts(read))
    if refused:
        first, *others = refused
        if others:
            first.hint = f"there are mistakes in {', '.join(error.where for error in others)}, too"
        raise first
    rules = [rule for one in read for rule in _rules(one)]
    rosters = [
        Roster(team, listed.members, one.source(("teams", team)))
        for one in read
        for team, listed in one.content.teams.items()
    ]
    return ActivePolicies(_version(read), _defaults(read, rules), tuple(rules), tuple(rosters))


def _read(file: str, text: str) -> _Read:
    document = read_document(text, file=file, kind=_KIND)
    problems = list(_cut_amounts(document))
    if problems:
        document.refuse(problems)
    content, problems = validate(document, policy_file_model())
    if problems or content is None:
        document.refuse(problems)
    return _Read(document, content)


def _cut_amounts(document: Document) -> Iterator[Problem]:
    """``{amount: $2,000}``: in YAML the comma ends the amount at two dollars, and 000 is the next key."""
    for path in nulls(document.data):
        if re.fullmatch(r"[0-9]{3}(\.[0-9]+)?", str(path[-1])) and len(path) > 1:
            message = 'inside { } a comma ends the value before it; write the amount in quotes: "$2,000"'
            yield document.problem(path, message, at_key=True)


def _conflicts(read: list[_Read]) -> Iterator[InvalidInput]:
    """What is wrong between files that are right in themselves, by file."""
    taken: dict[str, Source] = {}
    policies: dict[str, str] = {}
    order: tuple[tuple[str, ...], str] | None = None
    teams = {team for one in read for team in one.content.teams}
    for one in read:
        problems: list[Problem] = []
        if one.name in policies:
            message = f"the policy name {one.name!r} is taken by {policies[one.name]}; give one a `policy:` of its own"
            problems.append(one.document.problem(("policy",), message))
        policies[one.name] = one.document.file
        for entry, path in one.entries():
            if entry.name in taken:
                message = f"the name {entry.name!r} is used in {taken[entry.name]} already; no two may have one name"
                problems.append(one.document.problem((*path, "name"), message))
            taken.setdefault(entry.name, one.source(path))
            problems += [
                one.document.problem(
                    (*path, "scope", "team"), f"no file lists a team {team!r}{did_you_mean(team, teams)}"
                )
                for team in entry.scope.plain_teams()
                if teams and team not in teams
            ]
        if one.content.capacity:
            said = one.content.capacity.order
            if order and order[0] != said:
                message = f"contradicts the order in {order[1]}; there can be one only"
                problems.append(one.document.problem(("capacity", "order"), message))
            order = order or (said, one.document.file)
        if problems:
            try:
                one.document.refuse(problems)
            except InvalidInput as error:
                yield error


def _rules(one: _Read) -> list[Rule]:
    """The rules of a file, in the order in which they are written."""
    found: list[Rule] = []
    for entry, path in one.entries():
        rule, config = (
            (Budget, entry.terms()) if isinstance(entry, BudgetEntry) else (rule_class(entry.kind), entry.rule)
        )
        found.append(rule(entry.name, config, entry.scope, one.source(path)))
    return sorted(found, key=lambda rule: rule.source.line)


def _defaults(read: list[_Read], rules: list[Rule]) -> PolicyDefaults:
    durations = [one.content.defaults.max_duration for one in read]
    orders = [one.content.capacity.order for one in read if one.content.capacity]
    return PolicyDefaults(
        max_duration=min((d for d in durations if d is not None), default=PolicyDefaults().max_duration),
        allow_reference_prices=_all_say_so(one.content.defaults.allow_reference_prices for one in read),
        cpu_jobs_on_gpus=_all_say_so(one.content.defaults.cpu_jobs_on_gpus for one in read),
        grants_cash=any(isinstance(rule, Budget) and "cash" in rule.spec.counts for rule in rules),
        capacity_order=orders[0] if orders else (),
    )


def _all_say_so(switches: Iterator[bool | None]) -> bool:
    """On when at least one file says so and none says no."""
    said = [switch for switch in switches if switch is not None]
    return bool(said) and all(said)


def _version(read: list[_Read]) -> str:
    """Tells sets apart by what they say: comments, spaces and the names of files do not count, but where a file's name
    is the policy's."""
    if not read:
        return _NO_FILES
    contents = sorted(dumps([one.name, one.document.data], sort_keys=True) for one in read)
    return sha256("\n".join(contents).encode()).hexdigest()[:_DIGITS_OF_VERSION]
