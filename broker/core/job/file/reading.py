"""Reads job files. Variables of `envs` in paths and addresses are substituted as SkyPilot does: ``$NAME`` and
``${NAME}``.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NoReturn

from broker.core.documents import Document, Path, read_document, read_documents
from broker.core.errors import JOB_FILE, InvalidInput, Problem, did_you_mean, unknown_team_text
from broker.core.job.file.arrays import original_texts
from broker.core.job.file.machines import NOT_SPOT, machine_requests
from broker.core.job.file.schema import JobFile, ModelSection, Repository, Resources
from broker.core.job.file.skypilot_fields import (
    REMOVED_RESOURCE_KEYS,
    STORAGE_KEYS,
    SUPPORTED_RESOURCE_KEYS,
    SUPPORTED_TASK_KEYS,
    UNSUPPORTED_RESOURCE_KEYS,
    UNSUPPORTED_TASK_KEYS,
)
from broker.core.job.jobs import Job, JobFields, MachineRequest, Model, Predecessor
from broker.core.validation import validate


@dataclass(frozen=True, slots=True)
class JobOverrides:
    """``envs`` and ``secrets`` (names only) are added to those of the file. The others replace what the file says, in
    its forms: ``name``; ``keys`` at the top, such as ``max_cost``; ``machine``: keys of ``resources``; ``constraints``.
    ``options``: by key the option that gave it, for errors: ``{"resources.cpus": "--cpus"}``. ``teams``: the teams that
    the policies list; any if empty."""

    envs: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    name: str | None = None
    keys: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    constraints: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    teams: frozenset[str] = frozenset()


_NOTHING = JobOverrides()


def parse_job(text: str | bytes, *, file: str, now: datetime, overrides: JobOverrides = _NOTHING) -> Job:
    """Parse a job file.

    ``file`` appears in errors, and its stem is the default ``name``; it is not opened. ``now`` (timezone-aware) decides
    whether a deadline has passed. ``overrides`` take precedence over the file. A job with neither ``use_spot`` nor
    ``capacity_types`` may use spot if it has a ``checkpoint:``. Pure: neither the environment nor the paths in the file
    are read. Raises `InvalidInput` with every problem, sorted by line.
    """
    return job_of(read_document(text, file=file, kind=JOB_FILE), now=now, overrides=overrides)


def job_of(document: Document, *, now: datetime, overrides: JobOverrides = _NOTHING) -> Job:
    """The job of a document; arguments and errors as of `parse_job`."""
    data, problems = _prepare(document, overrides)
    read = replace(document, data=data) if overrides.options else document  # a key that the file lacks has a path, too
    parsed, findings = validate(read, JobFile, data=data, context={"now": now}, may_be_null=_may_be_null)
    problems += findings
    resources: tuple[MachineRequest, ...] = ()
    ordered = False
    if parsed is not None:
        if parsed.model is None:
            constrained = bool(parsed.constraints.capacity_types)
            default_types = () if "checkpoint" in parsed.model_fields_set or constrained else NOT_SPOT
            resources, ordered, findings = machine_requests(
                parsed.resources or Resources(), document, default_types=default_types
            )
            problems += [*findings, *_repeated_settings(document, parsed)]
        duplicates = sorted(set(parsed.secrets) & set(parsed.envs))
        message = "is also under `secrets`; a secret must not have its value in the file"
        problems += [document.problem(("envs", name), message, at_key=True) for name in duplicates]
        problems += _repeated_variables(document, parsed)
        problems += [
            document.problem(("data", "mounts", target), "is no target under `file_mounts`", at_key=True)
            for target in parsed.data.mounts.keys() - parsed.file_mounts.keys()
        ]
        if parsed.session is not None and parsed.array is not None:
            problems.append(document.problem(("session",), "is for one job; an `array:` has none", at_key=True))
        if parsed.team is not None and overrides.teams and parsed.team not in overrides.teams:
            problems.append(document.problem(("team",), unknown_team_text(parsed.team, overrides.teams)))
    if problems or parsed is None:
        _refuse(document, [_at_option(problem, overrides) for problem in problems])
    return _job(parsed, resources, ordered, document.file)


def _repeated_settings(document: Document, parsed: JobFile) -> list[Problem]:
    """Keys of SkyPilot that repeat a key of gpubroker."""
    problems = []
    if parsed.inputs is not None and parsed.data.size is not None:
        problems.append(document.problem(("inputs",), "repeats `data.size`; give one of them", at_key=True))
    if _restart_limit(parsed.resources) is not None and "failures" in parsed.retry.model_fields_set:
        at = ("resources", "job_recovery")
        problems.append(document.problem(at, "repeats `retry.failures`; give one of them", at_key=True))
    return problems


def _repeated_variables(document: Document, parsed: JobFile) -> list[Problem]:
    """Variables of single tasks that `envs` or `secrets` also sets for all tasks."""
    if parsed.array is None:
        return []
    names = set(parsed.array.grid).union(*parsed.array.rows)
    return [
        document.problem(("array",), f"{name} is also under `{section}`; give it in one place", at_key=True)
        for section, names_elsewhere in (("envs", parsed.envs), ("secrets", parsed.secrets))
        for name in sorted(names & set(names_elsewhere))
    ]


def _restart_limit(resources: Resources | None) -> int | None:
    """How often SkyPilot would restart a task that failed."""
    if resources is None:
        return None
    machines = (resources, *(resources.any_of or ()), *(resources.ordered or ()))
    return next((machine.job_recovery for machine in machines if machine.job_recovery is not None), None)


def _job(parsed: JobFile, resources: tuple[MachineRequest, ...], ordered: bool, file: str) -> Job:
    shared = parsed.model_fields_set & JobFields.model_fields.keys()
    values: dict[str, Any] = {key: getattr(parsed, key) for key in shared}
    if parsed.setup is not None and not parsed.setup.strip():
        del values["setup"]
    if isinstance(parsed.workdir, Repository):
        values["setup"] = parsed.workdir.fetch_commands() + values.get("setup", "")
    restarts = _restart_limit(parsed.resources)
    if restarts is not None:
        values["retry"] = parsed.retry.model_copy(update={"failures": restarts})
    if parsed.inputs is not None:
        values["data"] = parsed.data.model_copy(update={"size": parsed.inputs})
    return Job(
        **values,
        name=parsed.name or name_from_file(file),
        resources=resources,
        ordered=ordered,
        model=_model(parsed.model) if parsed.model else None,
        workdir=parsed.workdir if isinstance(parsed.workdir, str) else None,
        secrets=tuple(parsed.secrets),
        optional_secrets=tuple(name for name, optional in parsed.secrets.items() if optional),
        skypilot_config=parsed.config or {},
    )


def _model(section: ModelSection) -> Model:
    fields = section.given()
    model_fields = {name: fields.pop(name) for name in list(fields) if name in Model.model_fields}
    return Model(**model_fields, extra=fields)


def name_from_file(file: str) -> str:
    """A job name made from a file name: ``runs/my train.yaml`` → ``my-train``."""
    stem = re.split(r"[/\\]", file)[-1].rpartition(".")[0] or re.split(r"[/\\]", file)[-1]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:63] or "job"


def _may_be_null(path: Path) -> bool:
    """Whether the key at ``path`` may be null: names of secrets, accelerators in SkyPilot's set form, keys that an
    entry of `any_of` unsets, and the properties of a bucket."""
    if path[0] == "resources":
        in_entry = len(path) == _ENTRY_KEY and path[1] in ("any_of", "ordered") and path[-1] in SUPPORTED_RESOURCE_KEYS
        return in_entry or path[-2] in ("accelerators", "gpus") or path[-2:] == ("job_recovery", "strategy")
    return path[:-1] == ("secrets",) or (path[0] == "file_mounts" and path[-1] in STORAGE_KEYS)


_ENTRY_KEY = 4  # resources.any_of[0].image_id


def _prepare(document: Document, overrides: JobOverrides) -> tuple[dict[str, Any], list[Problem]]:
    """The data without SkyPilot's keys that are rejected here or empty (which means "not given" there), with variables
    substituted; and the problems found."""
    data, problems = _sift(document, document.data, (), SUPPORTED_TASK_KEYS, UNSUPPORTED_TASK_KEYS)
    data, findings = merge_overrides(document, data, overrides)
    problems += findings
    secrets = overrides.secrets
    if data.get("model") is not None and data.get("resources") is not None:
        second = max(("model", "resources"), key=lambda key: document.keys.get((key,), (0, 0)))
        problems.append(
            document.problem((second,), "give either `resources` or a `model` to be sized, not both", at_key=True)
        )
    if "array" in data:
        data["array"] = original_texts(document, data["array"], ("array",))
    if isinstance(data.get("resources"), dict):
        data["resources"], findings = _sift_resources(document, data["resources"])
        problems += findings
    if isinstance(data.get("envs") or {}, dict):
        values, findings = _env_texts(document, data.get("envs") or {}, overrides.envs, secrets)
        problems += findings
        data |= {"envs": values} if values or "envs" in data else {}
        unknown = {problem.key for problem in findings}
        variables = values | {name: "" for name in document.data.get("envs") or {} if f"envs.{name}" in unknown}
        data, findings = substitute_variables(document, data, variables)
        problems += findings
    if secrets and isinstance(listed := data.get("secrets") or {}, dict | list):
        data["secrets"] = {**dict.fromkeys(listed), **dict.fromkeys(secrets)}
    return data, problems


def _sift_resources(document: Document, resources: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    top = ("resources",)
    refused = {**UNSUPPORTED_RESOURCE_KEYS, **REMOVED_RESOURCE_KEYS}
    sifted, problems = _sift(document, resources, top, SUPPORTED_RESOURCE_KEYS, refused)
    for group in ("any_of", "ordered"):
        if not isinstance(sifted.get(group), list):
            continue
        entries = []
        for index, entry in enumerate(sifted[group]):
            if isinstance(entry, dict):
                entry, findings = _sift(document, entry, (*top, group, index), frozenset(), refused)
                problems += findings
            entries.append(entry)
        sifted[group] = entries
    return sifted, problems


def _sift(
    document: Document, data: dict[str, Any], path: Path, supported: frozenset[str], unsupported: Any
) -> tuple[dict[str, Any], list[Problem]]:
    accepted, problems = {}, []
    for key, value in data.items():
        if value is None and (key in supported or key in unsupported):
            continue
        if key in unsupported:
            message = f"SkyPilot's key is not supported here: {unsupported[key]}"
            problems.append(document.problem((*path, key), message, at_key=True))
        else:
            accepted[key] = value
    return accepted, problems


def _env_texts(
    document: Document, envs: dict[str, Any], overrides: Mapping[str, str], secrets: Collection[str]
) -> tuple[dict[str, Any], list[Problem]]:
    """The variables as the file's text (``1.10`` stays ``1.10``, ``true`` stays ``true``), with overrides applied and
    without those given as secrets; and the problems found."""
    texts, problems = {}, []
    for name, value in envs.items():
        if name in overrides or name in secrets:
            continue
        if value is None:
            message = f'has no value; write one ("" for none), or give `--env {name}=VALUE` or `--secret {name}`'
            problems.append(document.problem(("envs", name), message, at_key=True))
        else:
            texts[name] = document.texts.get(("envs", name), value)
    return {**texts, **overrides}, problems


_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<plain>[A-Za-z_][A-Za-z0-9_]*))")
SUBSTITUTED_KEYS = ("workdir", "file_mounts")


def substitute_variables(
    document: Document, data: Mapping[str, Any], envs: Mapping[str, str]
) -> tuple[dict[str, Any], list[Problem]]:
    """The data with the variables in `SUBSTITUTED_KEYS` replaced by their values, keys included; and a problem for
    every variable without a value."""
    substitution = _VariableSubstitution(document, envs)
    filled = {
        key: substitution.value(value, (key,)) if key in SUBSTITUTED_KEYS else value for key, value in data.items()
    }
    return filled, substitution.problems


class _VariableSubstitution:
    def __init__(self, document: Document, envs: Mapping[str, str]) -> None:
        self.document = document
        self.envs = envs
        self.problems: list[Problem] = []

    def value(self, value: Any, path: Path) -> Any:
        if isinstance(value, str):
            return self.text(value, path)
        if isinstance(value, dict):
            return self.mapping(value, path)
        if isinstance(value, list):
            return [self.value(item, (*path, index)) for index, item in enumerate(value)]
        return value

    def mapping(self, mapping: Mapping[str, Any], path: Path) -> dict[str, Any]:
        filled: dict[str, Any] = {}
        for key, item in mapping.items():
            name = self.text(key, (*path, key))
            if name in filled:
                message = f"is the same path as another one, {name}; keep one"
                self.problems.append(self.document.problem((*path, key), message, at_key=True))
            filled[name] = self.value(item, (*path, key))
        return filled

    def text(self, text: str, path: Path) -> str:
        def substitute(match: re.Match[str]) -> str:
            name = match["braced"] or match["plain"]
            if name not in self.envs:
                message = f"{match[0]} has no value: name it under `envs`, or give `--env {name}=VALUE`"
                self.problems.append(self.document.problem(path, message))
            return self.envs.get(name, match[0])

        return _VARIABLE.sub(substitute, text)


# Keys of `resources` that say the same as a constraint, which replaces them.
_REPEATED = {
    "accelerators": ("gpus", "instance_type"),
    "providers": ("infra", "cloud", "region", "zone"),
    "regions": ("region", "zone"),
    "capacity_types": ("use_spot", "capacity_types"),
}


def merge_overrides(
    document: Document, data: dict[str, Any], overrides: JobOverrides
) -> tuple[dict[str, Any], list[Problem]]:
    """The data with the keys that override it, and the problems found."""
    named = {} if overrides.name is None else {"name": overrides.name}
    data = {**data, **named, **overrides.keys}
    resources, constraints = data.get("resources") or {}, data.get("constraints") or {}
    if not isinstance(resources, dict) or not isinstance(constraints, dict):  # the check of the file says so
        return data, []
    alternatives = [key for key in ("any_of", "ordered") if key in resources]
    if overrides.machine and (alternatives or data.get("model") is not None):
        path = ("resources", alternatives[0]) if alternatives else ("model",)
        given = ", ".join(overrides.options.get(f"resources.{key}", key) for key in overrides.machine)
        message = f"says what machines the job takes, so {given} cannot be given as well"
        return data, [document.problem(path, message, at_key=True)]
    repeated = {key for name in (*overrides.machine, *overrides.constraints) for key in _REPEATED.get(name, ())}
    rest = {key: value for key, value in resources.items() if key not in repeated}
    if "regions" in overrides.constraints and isinstance(infra := rest.get("infra"), str):
        rest["infra"] = infra.partition("/")[0]
    for section, values in (
        ("resources", {**rest, **overrides.machine}),
        ("constraints", {**constraints, **overrides.constraints}),
    ):
        if values or section in data:
            data[section] = values
    return data, []


def _refuse(document: Document, problems: Sequence[Problem]) -> NoReturn:
    """Raises `InvalidInput` with the problems: of the file, unless all are of options."""
    if any(problem.line for problem in problems) or not problems:
        document.refuse(problems)
    first, *others = [InvalidInput(problem.message, where=problem.key) for problem in sorted(set(problems))]
    first.others = tuple(others)
    raise first


def _at_option(problem: Problem, overrides: JobOverrides) -> Problem:
    """A problem of an overriding value, at its option instead of a line of the file."""
    option = overrides.options.get(problem.key.partition("[")[0])
    return problem if option is None else Problem(0, 0, option, problem.message)


MAX_TASKS_IN_FILE = 100
# What SkyPilot writes before the tasks: the name of the whole, and how they run.
_HEADER = frozenset({"name", "execution", "primary_tasks", "termination_delay", "inter_connection"})
_ORDERS = ("serial", "parallel")


def parse_jobs(text: str | bytes, *, file: str, now: datetime, overrides: JobOverrides | None = None) -> list[Job]:
    """The jobs of a file: one, or those of its documents, each of which comes after the one before it.

    Arguments and errors as of `parse_job`. ``overrides`` apply to each job; a name is only for a file of one. A task
    without a name gets the file's name and its number.
    """
    effective = overrides or JobOverrides()
    documents = read_documents(text, file=file, kind=JOB_FILE, max_documents=MAX_TASKS_IN_FILE)
    tasks = _tasks(documents)
    if len(tasks) == 1:
        return [job_of(tasks[0], now=now, overrides=effective)]
    if effective.name is not None:
        message = f"the file holds {len(tasks)} tasks, so one name cannot apply to all; write `name:` into each"
        tasks[0].refuse([tasks[0].problem((), message)])
    return _chain([(task, _task_name(task, number)) for number, task in enumerate(tasks, 1)], now, effective)


def _chain(tasks: list[tuple[Document, str]], now: datetime, overrides: JobOverrides) -> list[Job]:
    jobs: dict[str, Job] = {}
    for task, name in tasks:
        job = job_of(task, now=now, overrides=replace(overrides, name=name))
        if name in jobs:
            task.refuse([task.problem(("name",), f"two tasks are called {name}; give each a name of its own")])
        if jobs and not job.after:
            job = job.model_copy(update={"after": (Predecessor(job=list(jobs)[-1]),)})
        jobs[name] = job
    return list(jobs.values())


def _task_name(task: Document, number: int) -> str:
    """The task's own name, or one made of the file's name. An invalid name is refused later, when the task is read."""
    name = task.data.get("name")
    return name_from_file(task.file)[:58] + f"-{number}" if name is None else str(name)


def _tasks(documents: list[Document]) -> list[Document]:
    """The documents without SkyPilot's header. Raises `InvalidInput` for tasks that run side by side."""
    header, *tasks = documents
    if not tasks or not header.data.keys() <= _HEADER:
        return documents
    order = header.data.get("execution", "serial")
    if order not in _ORDERS:
        message = f"expected `serial`, got {str(order)[:40]!r}{did_you_mean(str(order), _ORDERS)}"
        header.refuse([header.problem(("execution",), message)])
    if order == "parallel":
        message = (
            "job groups (`execution: parallel`) are not supported: submit one file per job; jobs in sequence are"
            " `execution: serial`, many equal jobs an `array:`, several nodes of one job `num_nodes:`"
        )
        header.refuse([header.problem(("execution",), message, at_key=True)])
    return tasks
