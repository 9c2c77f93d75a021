"""What becomes of one task file: read here and by SkyPilot, compared field by field, and planned."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from broker.core.errors import InvalidInput
from broker.core.job.file import parse_jobs
from broker.core.job.file.overrides import JobOverrides
from broker.core.job.jobs import Job
from broker.core.market.offers import CapacityType, Offer
from broker.engines.skypilot.engine import Skypilot
from broker.placement.conditions import Conditions
from broker.placement.planner import explain, make_plan
from tests.skypilot_files.comparing import NOW, as_read_there, differences
from tests.skypilot_files.market import Wanted


@dataclass
class TaskFile:
    """One file. ``keys``: what it uses, resources with their section; ``values``: for variables that it leaves open;
    ``local``: files and folders that it names."""

    name: str
    text: str
    keys: list[str]
    values: dict[str, str]
    local: list[str]
    documents: list[Any]

    @classmethod
    def of(cls, name: str, text: str) -> TaskFile:
        try:
            found = [one for one in yaml.safe_load_all(text) if one is not None]
        except yaml.YAMLError:
            found = []
        tasks = [one for one in found if isinstance(one, dict)]
        values = {
            str(key): str(key).lower().replace("_", "-")
            for task in tasks
            for key, value in (task.get("envs") or {}).items()
            if value is None
        }
        keys = list(dict.fromkeys(key for task in tasks for key in _keys(task)))
        keys += ["several documents"] if len(found) > 1 else []
        return cls(name, text, keys, values, [path for task in tasks for path in _local(task, values)], found)

    def tell(self, wanted: Wanted) -> None:
        """Add what the market must have for it."""
        for one in self.documents:
            if isinstance(one, dict):
                wanted.add(one.get("resources"))


def _keys(task: Mapping[str, Any]) -> Iterator[str]:
    for key, value in task.items():
        yield str(key)
        if key == "resources" and isinstance(value, dict):
            entries = [one for group in ("any_of", "ordered") for one in value.get(group) or []]
            for entry in [value, *entries]:
                yield from (f"resources.{one}" for one in (entry if isinstance(entry, dict) else {}))
        if key == "config" and isinstance(value, dict):
            yield from (f"config.{section}.{one}" for section, of in value.items() for one in of or {})


def _local(task: Mapping[str, Any], values: Mapping[str, str]) -> Iterator[str]:
    given = {str(k): str(v) for k, v in (task.get("envs") or {}).items() if v is not None} | dict(values)
    mounts = task.get("file_mounts") or {}
    sources = [one.get("source") if isinstance(one, dict) else one for one in mounts.values()]
    for source in [task.get("workdir"), *sources]:
        for one in source if isinstance(source, list) else [source]:
            if isinstance(one, str) and "://" not in one:
                for key, value in given.items():
                    one = one.replace(f"${{{key}}}", value).replace(f"${key}", value)
                yield one


@dataclass
class FileVerdict:
    """``outcome``: `equal`, `differs` (``differing``: field → here, there), `refused` (``reason``), or `refused there`:
    by SkyPilot itself. ``planned``: the feasible offers are those that SkyPilot's resources fit, and there are any;
    ``plan``: the first of them, or what is amiss."""

    file: TaskFile
    outcome: str
    reason: str = ""
    differing: dict[str, Any] = field(default_factory=dict)
    planned: bool = False
    plan: str = ""
    kind: str = "job"

    @property
    def accepted(self) -> bool:
        return self.outcome in ("equal", "differs")

    @property
    def as_meant(self) -> bool:
        return self.outcome == "equal" and self.planned


def judge(file: TaskFile, read: Mapping[str, Any], market: Sequence[Offer]) -> FileVerdict:
    """``read``: SkyPilot's answer. ``market``: offers that SkyPilot can launch, valid at `NOW`."""
    try:
        jobs = parse_jobs(file.text, file=file.name, now=NOW, overrides=JobOverrides(envs=file.values))
    except InvalidInput as error:
        reason = "; ".join(f"{problem.key}: {problem.message}" for problem in error.problems)
        outcome = "refused there" if "refused" in read else "refused"
        return FileVerdict(file, outcome, reason, kind=_kind(file, read))
    if "refused" in read:
        reason = " ".join(str(read["refused"]).split())
        return FileVerdict(file, "refused there", f"accepted here; SkyPilot: {reason[:300]}")
    verdict = FileVerdict(file, "equal", kind=_kind(file, read))
    if len(jobs) != len(read["tasks"]):
        verdict.differing["tasks"] = (len(jobs), len(read["tasks"]))
    named = [job.name for job in jobs]
    for number, (job, task) in enumerate(zip(jobs, read["tasks"], strict=False)):
        task = task | {"name": task["name"] or job.name}
        verdict.differing |= differences(job, task)
        before = [one.job for one in job.after]
        if before != named[:number][-1:]:
            verdict.differing["after"] = (before, named[:number][-1:])
    verdict.outcome = "differs" if verdict.differing else "equal"
    plans = [_planned(job, task, market) for job, task in zip(jobs, read["tasks"], strict=False)]
    verdict.planned = all(good for good, _ in plans)
    verdict.plan = "; ".join(said for _, said in plans)
    return verdict


def _kind(file: TaskFile, read: Mapping[str, Any]) -> str:
    """What the file describes: a `job` that ends, a `service`, a `pool`, a `cluster` without a command, or jobs `side
    by side`."""
    if "service" in file.keys:
        return "service"
    if "pool" in file.keys:
        return "pool"
    if read.get("side_by_side") or "execution" in file.keys:
        return "side by side"
    if file.documents and "run" not in file.keys:
        return "cluster"
    return "job"


def _planned(job: Job, task: Mapping[str, Any], market: Sequence[Offer]) -> tuple[bool, str]:
    conditions = Conditions(engines={"skypilot": Skypilot.honours})
    plan = make_plan(job, market, now=NOW, submitted_at=NOW, conditions=conditions)
    asked = [as_read_there(one) for one in task["resources"]]
    meant = {one.id for one in market if any(_fits(one, wanted) for wanted in asked)}
    found = {one.offer.id for one in plan.placements}
    if not found:
        counted = ", ".join(f"{one.count} {one.reason}" for one in explain(plan)[:3])
        return False, f"no offer serves it: {counted}"
    if found != meant:
        return False, f"{len(found - meant)} offers serve it here alone, {len(meant - found)} there alone"
    first = plan.placements[0].offer
    return True, f"{first.machine} {first.capacity_type} at {first.provider}/{first.region}"


def _fits(offer: Offer, wanted: Mapping[str, Any]) -> bool:
    """Whether the offer is what SkyPilot was asked for; ``cpus`` and ``memory`` as minima."""
    cloud, region, zone = wanted["place"]
    places = ((cloud, offer.provider), (region, offer.region), (zone, offer.zone))
    if any(asked is not None and asked != there for asked, there in places):
        return False
    if wanted["use_spot"] != (offer.capacity_type is CapacityType.SPOT):
        return False
    if wanted["instance_type"] is not None:
        return bool(offer.instance_type == wanted["instance_type"])
    if (offer.accelerator, offer.count) != (wanted["accelerator"], wanted["count"]):
        return False
    return (offer.cpus or 0) >= (wanted["cpus"] or -math.inf) and (offer.memory_gib or 0) >= (
        wanted["memory"] or -math.inf
    )


def read_folder(folder: Path) -> list[TaskFile]:
    """The YAML files below a folder that look like tasks: mappings with a key of SkyPilot's. By name."""
    found = []
    for path in sorted([*folder.rglob("*.yaml"), *folder.rglob("*.yml")]):
        file = TaskFile.of(str(path.relative_to(folder)), path.read_text(encoding="utf-8"))
        found.append(file)
    return found
