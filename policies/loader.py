"""Combines policy files into the active set: the rules of all files and the built-in rules."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from hashlib import sha256
from json import dumps

from broker.core.documents import Document, Path, invalid, nulls, read_document
from broker.core.errors import POLICY_FILE, InvalidInput, Problem
from broker.core.policy.policy import Source
from broker.core.ports import HoldingLimits, PolicyDefaults, Rule
from broker.core.validation import validate
from policies.conditions import Condition
from policies.policyset import ActivePolicies
from policies.references import at, entries, excepted
from policies.registry import GUARDRAILS, rule_class
from policies.rules.always import Roster
from policies.rules.budget import Budget
from policies.schema import BudgetEntry, GuardrailEntry, PolicyFile, policy_file_model
from policies.scope import Exempting, Scope
from policies.semantic_checks import Together, at_home, conditions, unclear_days

_NO_FILES = "none"
_DIGITS_OF_VERSION = 12
# Where a file sets defaults outside `defaults:`, or under another name.
_SECTIONS = {
    "capacity_order": ("capacity", "order"),
    "wait_for_paid": ("capacity", "wait_for_paid"),
}


@dataclass(frozen=True)
class _Read:
    """One parsed file. ``content`` is None if its form is wrong; ``problems``: errors of this file alone; ``doubts``:
    warnings.
    """

    document: Document
    content: PolicyFile | None
    conditions: Mapping[Path, Condition]
    problems: tuple[Problem, ...]
    doubts: tuple[Problem, ...]

    @property
    def file(self) -> str:
        return self.document.file

    @property
    def name(self) -> str:
        said = self.document.data.get("policy")
        stem = re.split(r"[/\\]", self.file)[-1]
        return said if isinstance(said, str) else stem.rpartition(".")[0] or stem

    def source(self, path: Path) -> Source:
        return Source(self.file, self.document.values[path][0])


@dataclass(frozen=True)
class _Right:
    """One file that is valid, alone and with the others."""

    read: _Read
    content: PolicyFile

    def entries(self) -> Iterator[tuple[BudgetEntry | GuardrailEntry, Path]]:
        """Every entry with a name and a scope: budgets and guardrails."""
        yield from ((entry, ("budgets", index)) for index, entry in enumerate(self.content.budgets))
        yield from ((entry, ("guardrails", index)) for index, entry in enumerate(self.content.entries))


def load(files: Mapping[str, str], providers: Collection[str] = ()) -> ActivePolicies:
    """The active set of these files (name to content), in order of their names, which are used only in messages.
    ``providers``: known providers, to detect misspelled names.

    All files apply: every rule judges, so the strictest limit decides. Without files, nothing is granted. Pure. Raises
    `InvalidInput` for the first invalid file, with all its problems and their places and those of the other files:
    form, conditions, duplicate names, teams in scopes that no file lists, rules that cover each other, and
    contradictions between files.
    """
    documents, refused = [], []
    for file in sorted(files):
        try:
            documents.append(read_document(files[file], file=file, kind=POLICY_FILE))
        except InvalidInput as error:
            refused.append(error)  # invalid YAML: no further checks
    model = policy_file_model(frozenset(_kinds(documents)))
    read = [_read(document, model, files[document.file]) for document in documents]
    together = Together(
        [one.document for one in read],
        {one.file: one.name for one in read},
        providers,
        wrong={one.file: [problem.key for problem in one.problems] for one in read},
        complete=not refused,
    )
    between = together.look()
    right: list[_Right] = []
    for one in read:
        if problems := [*one.problems, *between.get(one.file, ())]:
            refused.append(invalid(one.file, POLICY_FILE, problems))
        elif one.content is not None:
            right.append(_Right(one, one.content))
    if refused:
        first, *others = sorted(refused, key=lambda error: error.where)
        first.others = tuple(others)
        raise first
    return _in_force(right, _version(read))


def _in_force(files: list[_Right], version: str) -> ActivePolicies:
    """The active set of valid files."""
    rules = [rule for one in files for rule in _rules(one)]
    contents = [one.content for one in files]
    named = [(entry, path, one) for one in files for entry, path in one.entries()]
    granting = [rule for rule in rules if isinstance(rule, Budget) and "cash" in rule.spec.counts]
    defaults = _defaults(contents, grants_cash=bool(granting))
    return ActivePolicies(
        version,
        defaults,
        tuple(rules),
        rosters=tuple(
            Roster(team, listed.members, one.read.source(("teams", team)))
            for one in files
            for team, listed in one.content.teams.items()
        ),
        conditions={e.name: one.read.conditions[path] for e, path, one in named if path in one.read.conditions},
        warning=frozenset(e.name for e, _, _ in named if e.action == "warn"),
        asking={e.name: e.asking for e, _, _ in named if isinstance(e, GuardrailEntry) and e.asking},
        entries={entry["name"]: entry for one in files for _, entry in entries(one.read.document)},
        order_exceptions=tuple(
            (exception.scope, tuple(exception.order), one.read.source(("capacity", "exceptions", index)))
            for one in files
            if one.content.capacity
            for index, exception in enumerate(one.content.capacity.exceptions)
        ),
        said_at=dict(_said_at(files, defaults)) | ({"grants_cash": granting[0].source} if granting else {}),
        documents=tuple(one.read.document for one in files),
        doubts=tuple((one.read.file, doubt) for one in files for doubt in one.read.doubts),
    )


def _said_at(files: list[_Right], defaults: PolicyDefaults) -> Iterator[tuple[str, Source]]:
    """Where each active default is set: the first file with that value."""
    for default in fields(defaults):
        section, key = _SECTIONS.get(default.name, ("defaults", default.name))
        holds = getattr(defaults, default.name)
        if default.name == "holding":
            yield from _holding_said_at(files, holds)
            continue
        for one in files:
            if (section, key) not in one.read.document.keys:
                continue
            if getattr(getattr(one.content, section), key) == holds:
                yield default.name, Source(one.read.file, one.read.document.keys[section, key][0])
                break


def _holding_said_at(files: list[_Right], limits: HoldingLimits) -> Iterator[tuple[str, Source]]:
    """The first file that limits what may be proposed to hold, and for each limit the first with that value."""
    found: dict[str, Source] = {}
    for one in files:
        if one.content.capacity is None or (hold := one.content.capacity.hold) is None:
            continue
        place = Source(one.read.file, one.read.document.keys["capacity", "hold"][0])
        found.setdefault("holding", place)
        for limit in fields(limits):
            value = getattr(limits, limit.name)
            if value is not None and getattr(hold, limit.name) == value:
                found.setdefault(f"holding.{limit.name}", place)
    yield from found.items()


def _kinds(documents: list[Document]) -> Iterator[str]:
    """The kinds of guardrails in these files."""
    return (key for document in documents for _, entry in entries(document) for key in entry if key in GUARDRAILS)


def _read(document: Document, model: type[PolicyFile], text: str) -> _Read:
    content, problems = validate(document, model)
    found, wrong, doubts = conditions(document, text)
    cut = {problem.key: problem for problem in _cut_amounts(document)}  # otherwise reported as keys without a value
    said = [*cut.values(), *(at_home(problem) for problem in problems if problem.key not in cut), *wrong]
    return _Read(document, content, found, tuple(said), (*doubts, *unclear_days(document)))


def _cut_amounts(document: Document) -> Iterator[Problem]:
    """``{amount: $2,000}``: in YAML the comma ends the amount at $2, and 000 is the next key."""
    for path in nulls(document.data):
        if re.fullmatch(r"[0-9]{3}(\.[0-9]+)?", str(path[-1])) and len(path) > 1:
            message = 'in { } a comma ends a value; write the amount in quotes: "$2,000"'
            yield document.problem(path, message, at_key=True)


def _rules(one: _Right) -> list[Rule]:
    """The rules of a file, in file order."""
    found: list[Rule] = []
    for entry, path in one.entries():
        rule, config = (Budget, entry) if isinstance(entry, BudgetEntry) else (rule_class(entry.kind), entry.rule)
        found.append(
            rule(entry.name, config, _scope(one.read.document, entry, path), one.read.source(path), entry.per or "")
        )
    return sorted(found, key=lambda rule: rule.source.line)


def _scope(document: Document, entry: BudgetEntry | GuardrailEntry, path: Path) -> Scope:
    """The scope of an entry."""
    scope = entry.scope
    if entry.per and not getattr(scope, entry.per):  # a job without a team or project belongs to none
        scope = scope.model_copy(update={entry.per: ("*",)})
    if isinstance(entry, BudgetEntry) or not entry.excepted:
        return scope
    written = document.data[str(path[0])][path[1]]
    places = tuple(Source(document.file, at(document, where).line) for where, _ in excepted(path, written))
    return Exempting.model_construct(**dict(scope), excepted=entry.excepted, said_at=places)


def _defaults(contents: list[PolicyFile], *, grants_cash: bool) -> PolicyDefaults:
    durations = [one.defaults.max_duration for one in contents]
    orders = [one.capacity.order for one in contents if one.capacity and one.capacity.order]
    waits = [one.capacity.wait_for_paid for one in contents if one.capacity]
    holds = [one.capacity.hold for one in contents if one.capacity and one.capacity.hold]
    values = [one.defaults.value_of_time for one in contents]
    alone = [one.defaults.max_unattended for one in contents]
    return PolicyDefaults(
        max_duration=min((d for d in durations if d is not None), default=PolicyDefaults().max_duration),
        allow_reference_prices=_all_say_so(one.defaults.allow_reference_prices for one in contents),
        allow_stale_prices=_all_say_so(one.defaults.allow_stale_prices for one in contents),
        cpu_jobs_on_gpus=_all_say_so(one.defaults.cpu_jobs_on_gpus for one in contents),
        grants_cash=grants_cash,
        capacity_order=orders[0] if orders else (),
        wait_for_paid=min((wait for wait in waits if wait is not None), default=None),
        holding=HoldingLimits(  # the strictest of several files
            utilisation=max((one.utilisation for one in holds if one.utilisation is not None), default=None),
            horizon=min((one.horizon for one in holds if one.horizon is not None), default=None),
            break_even=min((one.break_even for one in holds if one.break_even is not None), default=None),
        ),
        value_of_time=min((value for value in values if value is not None), default=None),
        max_unattended=min((longest for longest in alone if longest is not None), default=None),
        # Ending a machine and deleting files cannot be undone: the longest time counts.
        end_orphans_after=_longest(one.defaults.end_orphans_after for one in contents),
        keep_checkpoints=_longest(one.defaults.keep_checkpoints for one in contents),
        keep_results=_longest(one.defaults.keep_results for one in contents),
        keep_logs=_longest(one.defaults.keep_logs for one in contents),
        hold_quantile=max(
            (one.defaults.hold_quantile for one in contents if one.defaults.hold_quantile is not None), default=None
        ),
        unknown_disk=max((one.defaults.unknown_disk for one in contents if one.defaults.unknown_disk), default=None),
        keep_snapshots=_longest(one.defaults.keep_snapshots for one in contents),
        keep_prices=_longest(one.defaults.keep_prices for one in contents),
        keep_notices=_longest(one.defaults.keep_notices for one in contents),
        timezone=next((one.defaults.timezone for one in contents if one.defaults.timezone), None),
    )


def _longest(times: Iterator[timedelta | None]) -> timedelta | None:
    return max((time for time in times if time is not None), default=None)


def _all_say_so(switches: Iterator[bool | None]) -> bool:
    """True if at least one file sets the switch and none sets it to false."""
    said = [switch for switch in switches if switch is not None]
    return bool(said) and all(said)


def _version(read: list[_Read]) -> str:
    """A hash of the files' meaning: comments, spaces and file names do not count, except a file name that names the
    policy.
    """
    if not read:
        return _NO_FILES
    contents = sorted(dumps([one.name, one.document.data], sort_keys=True) for one in read)
    return sha256("\n".join(contents).encode()).hexdigest()[:_DIGITS_OF_VERSION]
