"""Job files into jobs."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from broker.core.documents import Document, Path, read_document
from broker.core.errors import JOB_FILE, Problem
from broker.core.job.file.machines import machine_requests
from broker.core.job.file.schema import SECTIONS, JobFile, ModelSection, Resources
from broker.core.job.file.skypilot import HONOURED_IN_RESOURCES, HONOURED_IN_TASK, REFUSED_IN_RESOURCES, REFUSED_IN_TASK
from broker.core.job.jobs import CheckpointPlan, Constraints, Data, Job, MachineRequest, Model, Retry
from broker.core.validation import validate


def parse_job(text: str | bytes, *, file: str, now: datetime) -> Job:
    """Parse a job file.

    ``file`` appears in errors, and its stem is the default ``name``; it is not opened. ``now`` (timezone-aware) decides
    whether a deadline has passed. Pure: neither the environment nor the paths in the file are read. Raises
    `InvalidInput` with every problem, sorted by line.
    """
    document = read_document(text, file=file, kind=JOB_FILE)
    data, problems = _prepared(document)
    parsed, found = validate(document, JobFile, data=data, context={"now": now}, may_be_null=_may_be_null)
    problems += found
    resources: tuple[MachineRequest, ...] = ()
    ordered = False
    if parsed is not None:
        if parsed.model is None:
            resources, ordered, found = machine_requests(parsed.resources or Resources(), document)
            problems += found
        both = sorted(set(parsed.secrets or ()) & set(parsed.envs or {}))
        message = "stands under `secrets`, too; a secret must not have its value in the file"
        problems += [document.problem(("envs", name), message, at_key=True) for name in both]
    if problems or parsed is None:
        document.refuse(problems)
    return _job(parsed, resources, ordered, file)


def _job(parsed: JobFile, resources: tuple[MachineRequest, ...], ordered: bool, file: str) -> Job:
    fields = parsed.given() | {"name": parsed.name or _named_after(file), "resources": resources, "ordered": ordered}
    if parsed.setup is not None and not parsed.setup.strip():
        del fields["setup"]
    if parsed.model:
        fields["model"] = _model(parsed.model)
    if parsed.checkpoint:
        fields["checkpoint"] = CheckpointPlan(**parsed.checkpoint.given())
    if parsed.retry:
        fields["retry"] = Retry(**parsed.retry.given())
    if parsed.data:
        fields["data"] = Data(**parsed.data.given())
    if parsed.constraints:
        fields["constraints"] = Constraints(**parsed.constraints.given())
    return Job(**fields)


def _model(section: ModelSection) -> Model:
    given = section.given()
    own = {name: given.pop(name) for name in list(given) if name in Model.model_fields}
    return Model(**own, extra=given)


def _named_after(file: str) -> str:
    """A plain name made from the file's: ``runs/my train.yaml`` → ``my-train``."""
    stem = re.split(r"[/\\]", file)[-1].rpartition(".")[0] or re.split(r"[/\\]", file)[-1]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:63] or "job"


def _may_be_null(path: Path) -> bool:
    """Keys that may be null: names of secrets, and accelerators in SkyPilot's set form."""
    return path[:-1] == ("secrets",) or (path[0] == "resources" and path[-2] in ("accelerators", "gpus"))


def _prepared(document: Document) -> tuple[dict[str, Any], list[Problem]]:
    """The data without what SkyPilot knows and we refuse, and without SkyPilot's keys that are left empty (which means
    "not given" there); and the findings about it."""
    data, problems = _sifted(document, document.data, (), HONOURED_IN_TASK, REFUSED_IN_TASK)
    if data.get("model") is not None and data.get("resources") is not None:
        later = max(("model", "resources"), key=lambda key: document.keys[(key,)])
        problems.append(
            document.problem((later,), "give either `resources` or a `model` to be sized, not both", at_key=True)
        )
    for key in [key for key in data if key not in JobFile.model_fields]:
        homes = [section for section, model in SECTIONS.items() if key in model.model_fields]
        if homes:
            problems.append(document.problem((key,), f"belongs under `{homes[0]}:`, not at the top", at_key=True))
            del data[key]
    if isinstance(data.get("resources"), dict):
        data["resources"], found = _sifted_resources(document, data["resources"])
        problems += found
    if isinstance(data.get("envs"), dict):
        data["envs"], found = _texts(document, data["envs"])
        problems += found
    return data, problems


def _sifted_resources(document: Document, resources: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    top = ("resources",)
    sifted, problems = _sifted(document, resources, top, HONOURED_IN_RESOURCES, REFUSED_IN_RESOURCES)
    for group in ("any_of", "ordered"):
        if not isinstance(sifted.get(group), list):
            continue
        entries = []
        for index, entry in enumerate(sifted[group]):
            if isinstance(entry, dict):
                entry, found = _sifted(
                    document, entry, (*top, group, index), HONOURED_IN_RESOURCES, REFUSED_IN_RESOURCES
                )
                problems += found
            entries.append(entry)
        sifted[group] = entries
    return sifted, problems


def _sifted(
    document: Document, data: dict[str, Any], path: Path, honoured: frozenset[str], refused: Any
) -> tuple[dict[str, Any], list[Problem]]:
    kept, problems = {}, []
    for key, value in data.items():
        if value is None and (key in honoured or key in refused):
            continue
        if key in refused:
            message = f"SkyPilot's key is not honoured here: {refused[key]}"
            problems.append(document.problem((*path, key), message, at_key=True))
        else:
            kept[key] = value
    return kept, problems


def _texts(document: Document, envs: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """The variables as the file's text: ``1.10`` stays ``1.10``, ``true`` stays ``true``."""
    kept, problems = {}, []
    for name, value in envs.items():
        if value is None:
            message = 'has no value; write "" for an empty one; to take it from your environment, use `secrets`'
            problems.append(document.problem(("envs", name), message, at_key=True))
        else:
            kept[name] = document.texts.get(("envs", name), value)
    return kept, problems
