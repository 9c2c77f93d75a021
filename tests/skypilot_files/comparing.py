"""A task as SkyPilot read it beside the job that was read here: the same terms for both, and where they differ."""

import json
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from broker.core.job.file import parse_job
from broker.core.job.file.machines import NOT_SPOT, SPOT
from broker.core.job.jobs import Job, MachineRequest

NOW = datetime(2026, 11, 21, tzinfo=UTC)
# A Git repository that the machine fetches, as the job's setup begins here.
_FETCHED = re.compile(r"# workdir: .*\n.* fetch .* -- (?P<url>\S+) (?P<ref>\S+) && git checkout .*\n")
DEFAULT_DISK = 256  # GiB; SkyPilot's, where a file says nothing


def differences(job: Job, read: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The fields that mean something else here, each with what is read here and what SkyPilot reads. ``read``: a task
    of `read_with_skypilot`."""
    several = len(read["resources"]) > 1 and read["ordered"]
    here, there = _fields_here(job, several), _fields_there(read, several)
    for place, store in there["storage"].items():  # it names a bucket after its source, where the file does not
        if here["storage"].get(place, {}).get("name", "") is None and store["source"]:
            store["name"] = None
    return {field: (here[field], there[field]) for field in here if here[field] != there[field]}


def _fields_here(job: Job, ordered: bool) -> dict[str, Any]:
    texts = {place: source for place, source in job.file_mounts.items() if isinstance(source, str)}
    stores = {place: source for place, source in job.file_mounts.items() if isinstance(source, dict)}
    fetched = _FETCHED.match(job.setup or "")
    repository = {"url": fetched["url"], "ref": fetched["ref"]} if fetched else None
    return {
        "name": job.name,
        "run": job.run,
        "setup": (job.setup[fetched.end() :] or None) if fetched and job.setup else job.setup,
        "num_nodes": job.num_nodes,
        "workdir": job.workdir or repository,
        "envs": job.envs,
        "secrets": sorted(job.secrets),
        "file_mounts": texts,
        "storage": {
            place: {
                "name": store.get("name"),
                "source": store.get("source"),
                "mode": str(store.get("mode") or "MOUNT").upper(),
                "store": store.get("store") and str(store["store"]).upper(),
            }
            for place, store in stores.items()
        },
        "inputs": job.data.size,
        "resources": _in_order(map(as_read_here, job.resources), ordered),
        "ordered": job.ordered and len(job.resources) > 1,
        "job_recovery": job.retry.failures,
    }


def _fields_there(read: dict[str, Any], ordered: bool) -> dict[str, Any]:
    restarts = [(one["job_recovery"] or {}).get("max_restarts_on_errors") or 0 for one in read["resources"]]
    return {
        "name": read["name"],
        "run": read["run"],
        "setup": read["setup"],
        "num_nodes": read["num_nodes"],
        "workdir": {"ref": "HEAD"} | read["workdir"] if isinstance(read["workdir"], dict) else read["workdir"],
        "envs": read["envs"],
        "secrets": sorted(read["secrets"]),
        "file_mounts": read["file_mounts"],
        "storage": {place: dict(store) for place, store in read["stores"].items()},
        "inputs": None if read["inputs_gb"] is None else read["inputs_gb"] * 10**9,
        "resources": _in_order(map(as_read_there, read["resources"]), ordered),
        "ordered": ordered,
        "job_recovery": max(restarts),
    }


def as_read_there(resources: dict[str, Any]) -> dict[str, Any]:
    """SkyPilot's resources in our terms."""
    name, count = next(iter((resources["accelerators"] or {}).items()), (None, 0))
    found_in_catalogue = resources["instance_type"] is not None  # as here the offers say it
    if found_in_catalogue:
        name, count = None, 0
    wanted = parse_job(f"run: x\nresources: {{accelerators: {name}}}", file="x", now=NOW).resources[0] if name else None
    tpu = bool(name and name.startswith("tpu"))  # it puts the cloud there that offers them
    disk, image = resources["disk_size"], resources["image"]
    if resources["cloud"] == "kubernetes" and image:
        image = image.removeprefix("docker:")  # it writes that before every image of a cluster
    ports = resources["ports"] or []
    return {
        "accelerator": wanted.accelerator if wanted else None,
        "count": math.ceil(count),
        "cpus": None if found_in_catalogue else _said(resources["cpus"]),
        "memory": None if found_in_catalogue else _said(resources["memory"]),
        "instance_type": resources["instance_type"],
        "place": (None if tpu else resources["cloud"], resources["region"], resources["zone"]),
        "use_spot": resources["use_spot"],
        "disk_size": None if disk == DEFAULT_DISK else float(disk),
        "disk_tier": resources["disk_tier"],
        "network_tier": resources["network_tier"],
        "ports": sorted(ports),
        "labels": resources["labels"] or {},
        "image": image,
    }


def as_read_here(request: MachineRequest) -> dict[str, Any]:
    """A machine of a job, in the same terms."""
    place = [None if part == "*" else part for part in (request.infra or "*").split("/")]
    if place[0] == "kubernetes":
        place = ["kubernetes", "/".join(map(str, place[1:])) or None]
    image = request.image
    if place[0] == "kubernetes" and image:
        image = image.removeprefix("docker:")
    return {
        "accelerator": request.accelerator,
        "count": request.count,
        "cpus": request.cpus,
        "memory": request.memory_gib,
        "instance_type": request.instance_type,
        "place": tuple([*place, None, None][:3]),
        "use_spot": {SPOT: True, NOT_SPOT: False}[request.capacity_types],
        "disk_size": request.disk_gib,
        "disk_tier": request.disk_tier and request.disk_tier.value,
        "network_tier": request.network_tier and request.network_tier.value,
        "ports": sorted(request.ports),
        "labels": dict(request.labels),
        "image": image,
    }


def _said(number: str | None) -> float | None:
    return None if number is None else float(number.rstrip("+"))


def _in_order(entries: Iterable[dict[str, Any]], ordered: bool) -> list[str]:
    texts = [json.dumps(entry, sort_keys=True, default=str) for entry in entries]
    return texts if ordered else sorted(texts)
