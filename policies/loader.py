"""Combines policy files into the active set: the rules of all files and the built-in rules."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from json import dumps
from typing import Any

from broker.core.documents import Document, Path, invalid_input, nulls, read_document
from broker.core.errors import POLICY_FILE, InvalidInput, Problem
from broker.core.job.jobs import Priority
from broker.core.policy.policy import PolicyName, Source
from broker.core.ports import HoldingLimits, PolicyDefaults, PreemptionRight, Rule
from broker.core.validation import validate
from policies.conditions import Condition
from policies.policyset import ActivePolicies
from policies.references import entries, excepted_scopes, source_at
from policies.rules import GUARDRAILS, RULES
from policies.rules.always import Roster
from policies.rules.budget import Budget
from policies.schema import BudgetEntry, GuardrailEntry, PolicyFile, PriorityEntry, policy_file_model
from policies.scope import Exempting, Scope
from policies.semantic_checks import CrossFileChecks, check_conditions, similar_cards, unclear_days, with_key_hint

_NO_FILES = "none"
_DIGITS_OF_VERSION = 12
# Where a file sets defaults outside `defaults:`, or under another name.
_SECTIONS = {
    "capacity_order": ("capacity", "order"),
    "wait_for_paid": ("capacity", "wait_for_paid"),
    "overlap": ("moves", "overlap"),
}


@dataclass(frozen=True)
class _ParsedFile:
    """One parsed file. ``content`` is None if its form is wrong; ``problems``: errors of this file alone; ``doubts``:
    warnings; ``names``: those in conditions.
    """

    document: Document
    content: PolicyFile | None
    conditions: Mapping[Path, Condition]
    problems: tuple[Problem, ...]
    doubts: tuple[Problem, ...]
    names: tuple[PolicyName, ...]

    @property
    def file(self) -> str:
        return self.document.file

    @property
    def name(self) -> str:
        policy_name = self.document.data.get("policy")
        stem = re.split(r"[/\\]", self.file)[-1]
        return policy_name if isinstance(policy_name, str) else stem.rpartition(".")[0] or stem

    def source(self, path: Path) -> Source:
        return Source(self.file, self.document.values[path][0])


@dataclass(frozen=True)
class _ValidFile:
    """One file that is valid, alone and with the others."""

    read: _ParsedFile
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
    parsed_files = [_parse_file(document, model, files[document.file]) for document in documents]
    checks = CrossFileChecks(
        [parsed_file.document for parsed_file in parsed_files],
        {parsed_file.file: parsed_file.name for parsed_file in parsed_files},
        providers,
        wrong={parsed_file.file: [problem.key for problem in parsed_file.problems] for parsed_file in parsed_files},
        complete=not refused,
    )
    cross_problems = checks.look()
    valid: list[_ValidFile] = []
    for parsed_file in parsed_files:
        if problems := [*parsed_file.problems, *cross_problems.get(parsed_file.file, ())]:
            refused.append(invalid_input(parsed_file.file, POLICY_FILE, problems))
        elif parsed_file.content is not None:
            valid.append(_ValidFile(parsed_file, parsed_file.content))
    if refused:
        first, *others = sorted(refused, key=lambda error: error.where)
        first.others = tuple(others)
        raise first
    return _active_policies(valid, _version(parsed_files))


def _active_policies(files: list[_ValidFile], version: str) -> ActivePolicies:
    """The active set of valid files."""
    rules = [rule for file in files for rule in _rules(file)]
    contents = [file.content for file in files]
    named_entries = [(entry, path, file) for file in files for entry, path in file.entries()]
    granting = [rule for rule in rules if isinstance(rule, Budget) and "cash" in rule.spec.counts]
    defaults = _defaults(contents, grants_cash=bool(granting))
    return ActivePolicies(
        version,
        defaults,
        tuple(rules),
        rosters=tuple(
            Roster(team, roster.members, file.read.source(("teams", team)))
            for file in files
            for team, roster in file.content.teams.items()
        ),
        conditions={
            e.name: file.read.conditions[path] for e, path, file in named_entries if path in file.read.conditions
        },
        warning=frozenset(e.name for e, _, _ in named_entries if e.action == "warn"),
        asking={e.name: e.asking for e, _, _ in named_entries if isinstance(e, GuardrailEntry) and e.asking},
        entries={entry["name"]: entry for file in files for _, entry in entries(file.read.document)},
        order_exceptions=tuple(
            (exception.scope, tuple(exception.order), file.read.source(("capacity", "exceptions", index)))
            for file in files
            if file.content.capacity
            for index, exception in enumerate(file.content.capacity.exceptions)
        ),
        said_at=dict(_default_sources(files, defaults)) | ({"grants_cash": granting[0].source} if granting else {}),
        documents=tuple(file.read.document for file in files),
        doubts=tuple((file.read.file, doubt) for file in files for doubt in file.read.doubts),
        names_in_conditions=tuple(name for file in files for name in file.read.names),
    )


def _default_sources(files: list[_ValidFile], defaults: PolicyDefaults) -> Iterator[tuple[str, Source]]:
    """Where each active default is set: the first file with that value."""
    for default in fields(defaults):
        section, key = _SECTIONS.get(default.name, ("defaults", default.name))
        value = getattr(defaults, default.name)
        if default.name == "holding":
            yield from _holding_sources(files, value)
            continue
        if default.name == "preempts" and value:
            yield default.name, next(file.read.source(("priorities",)) for file in files if file.content.priorities)
            continue
        for file in files:
            if (section, key) not in file.read.document.keys:
                continue
            if getattr(getattr(file.content, section), key) == value:
                yield default.name, Source(file.read.file, file.read.document.keys[section, key][0])
                break


def _holding_sources(files: list[_ValidFile], limits: HoldingLimits) -> Iterator[tuple[str, Source]]:
    """The first file that limits what may be proposed to hold, and for each limit the first with that value."""
    sources: dict[str, Source] = {}
    for file in files:
        if file.content.capacity is None or (hold := file.content.capacity.hold) is None:
            continue
        place = Source(file.read.file, file.read.document.keys["capacity", "hold"][0])
        sources.setdefault("holding", place)
        for limit in fields(limits):
            value = getattr(limits, limit.name)
            if value is not None and getattr(hold, limit.name) == value:
                sources.setdefault(f"holding.{limit.name}", place)
    yield from sources.items()


def _kinds(documents: list[Document]) -> Iterator[str]:
    """The kinds of guardrails in these files."""
    return (key for document in documents for _, entry in entries(document) for key in entry if key in GUARDRAILS)


def _parse_file(document: Document, model: type[PolicyFile], text: str) -> _ParsedFile:
    content, problems = validate(document, model)
    parsed_conditions, condition_problems, doubts, names = check_conditions(document, text)
    cut_amounts = {problem.key: problem for problem in _cut_amounts(document)}  # else shown as keys without a value
    all_problems = [
        *cut_amounts.values(),
        *(with_key_hint(problem) for problem in problems if problem.key not in cut_amounts),
        *condition_problems,
    ]
    return _ParsedFile(
        document,
        content,
        parsed_conditions,
        tuple(all_problems),
        (*doubts, *unclear_days(document), *(similar_cards(document) if content else ())),
        tuple(names),
    )


def _cut_amounts(document: Document) -> Iterator[Problem]:
    """``{amount: $2,000}``: in YAML the comma ends the amount at $2, and 000 is the next key."""
    for path in nulls(document.data):
        if re.fullmatch(r"[0-9]{3}(\.[0-9]+)?", str(path[-1])) and len(path) > 1:
            message = 'in { } a comma ends a value; write the amount in quotes: "$2,000"'
            yield document.problem(path, message, at_key=True)


def _rules(file: _ValidFile) -> list[Rule]:
    """The rules of a file, in file order."""
    rules: list[Rule] = []
    for entry, path in file.entries():
        rule, config = (Budget, entry) if isinstance(entry, BudgetEntry) else (RULES[entry.kind], entry.rule)
        rules.append(
            rule(entry.name, config, _scope(file.read.document, entry, path), file.read.source(path), entry.per or "")
        )
    return sorted(rules, key=lambda rule: rule.source.line)


def _scope(document: Document, entry: BudgetEntry | GuardrailEntry, path: Path) -> Scope:
    """The scope of an entry."""
    scope = entry.scope
    if entry.per and not getattr(scope, entry.per):  # a job without a team or project belongs to none
        scope = scope.model_copy(update={entry.per: ("*",)})
    if isinstance(entry, BudgetEntry) or not entry.excepted:
        return scope
    raw_entry = document.data[str(path[0])][path[1]]
    places = tuple(
        Source(document.file, source_at(document, key_path).line) for key_path, _ in excepted_scopes(path, raw_entry)
    )
    return Exempting.model_construct(**dict(scope), excepted=entry.excepted, said_at=places)


def _defaults(contents: list[PolicyFile], *, grants_cash: bool) -> PolicyDefaults:
    capacities = [content.capacity for content in contents if content.capacity]
    holds = [capacity.hold for capacity in capacities if capacity.hold]
    defaults = [content.defaults for content in contents]
    orders = [capacity.order for capacity in capacities if capacity.order]
    # Ending a machine and deleting files cannot be undone: the longest time counts.
    longest = ("end_orphans_after", "keep_checkpoints", "keep_results", "keep_logs", "keep_snapshots", "keep_prices",
               "keep_notices", "hold_quantile", "unknown_disk")  # fmt: skip
    return PolicyDefaults(
        max_duration=_limit_of(min, defaults, "max_duration") or PolicyDefaults().max_duration,
        allow_reference_prices=_all_agree(content.allow_reference_prices for content in defaults),
        allow_stale_prices=_all_agree(content.allow_stale_prices for content in defaults),
        cpu_jobs_on_gpus=_all_agree(content.cpu_jobs_on_gpus for content in defaults),
        grants_cash=grants_cash,
        capacity_order=orders[0] if orders else (),
        wait_for_paid=_limit_of(min, capacities, "wait_for_paid"),
        holding=HoldingLimits(  # the strictest of several files
            utilisation=_limit_of(max, holds, "utilisation"),
            horizon=_limit_of(min, holds, "horizon"),
            break_even=_limit_of(min, holds, "break_even"),
        ),
        value_of_time=_limit_of(min, defaults, "value_of_time"),
        max_unattended=_limit_of(min, defaults, "max_unattended"),
        overlap=_all_agree(content.moves.overlap for content in contents if content.moves),
        timezone=next((content.timezone for content in defaults if content.timezone), None),
        preempts=tuple(_preemption_rights([content.priorities for content in contents])),
        **{name: _limit_of(max, defaults, name) for name in longest},
    )


def _preemption_rights(files: Sequence[Mapping[Priority, PriorityEntry]]) -> Iterator[PreemptionRight]:
    """The right of each priority on which the files that mention it agree, with their strictest limits."""
    for priority in Priority:
        parts = [file[priority] for file in files if priority in file]
        if _all_agree(part.preempts for part in parts):
            yield PreemptionRight(priority, _limit_of(max, parts, "min_runtime"), _limit_of(min, parts, "per_day"))


def _limit_of(choose: Callable[..., Any], parts: Sequence[object], name: str) -> Any:
    """The lowest or highest value of that name in the parts that have one; None without any."""
    values = (getattr(part, name) for part in parts)
    return choose((value for value in values if value is not None), default=None)


def _all_agree(switches: Iterator[bool | None]) -> bool:
    """True if at least one file sets the switch and none sets it to false."""
    values = [switch for switch in switches if switch is not None]
    return bool(values) and all(values)


def _version(files: list[_ParsedFile]) -> str:
    """A hash of the files' meaning: comments, spaces and file names do not count, except a file name that names the
    policy.
    """
    if not files:
        return _NO_FILES
    contents = sorted(dumps([file.name, file.document.data], sort_keys=True) for file in files)
    return sha256("\n".join(contents).encode()).hexdigest()[:_DIGITS_OF_VERSION]
