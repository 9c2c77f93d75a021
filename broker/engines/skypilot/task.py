"""One launch as a SkyPilot task with its placement pinned. Pure; needs no SDK.

SkyPilot chooses nothing: cloud, region, zone, instance type and spot come from the offer. The job's command, setup and
variables are not in the task but in the run folder, where the agent reads them verbatim.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from broker.core.errors import TryAnotherOffer
from broker.core.job.jobs import MachineRequest
from broker.core.job.snapshots import is_local
from broker.core.market.capacity import STORE_TAG, TAG
from broker.core.market.offers import CapacityType, Offer
from broker.core.ports import Launch
from broker.engines.runfolder.attempt_keys import TICKET_LABEL, ticket_of
from broker.engines.skypilot.node import archive_path, run_script, setup_script
from broker.engines.skypilot.places import BY_SIZE, ZoneNames, accelerators, infra, machine_type
from broker.placement.feasibility import request_served


def cluster_name(key: str) -> str:
    """The key, with a letter before it if it starts with none: SkyPilot requires a letter."""
    return key if key[:1].isalpha() else f"gpubroker-{key}"


def key_of(cluster: str) -> str:
    """The key of a cluster: the inverse of `cluster_name`."""
    rest = cluster.removeprefix("gpubroker-")
    return rest if not rest[:1].isalpha() else cluster


def has_queue(cloud: str | None) -> bool:
    """Whether launches on that cloud wait in a queue, so that a pending launch has no machine yet."""
    return cloud in BY_SIZE


def task_config(
    launch: Launch, archive: Path, secrets: Mapping[str, str], clouds: Mapping[str, str], aws_zones: ZoneNames
) -> dict[str, Any]:
    """The task in the form of SkyPilot's YAML.

    ``archive``: the path of the agent's file on this machine. ``secrets``: variables passed to the node and never
    stored. ``aws_zones``: see `places.infra`. Raises `TryAnotherOffer` for a cloud unknown to SkyPilot, and what
    `places.infra` raises.
    """
    job, key = launch.job, launch.key
    # The agent fetches the local files from the run store, not from this machine's disk.
    mounts = {target: source for target, source in job.file_mounts.items() if not is_local(source)}
    config: dict[str, Any] = {
        "name": cluster_name(key),
        "num_nodes": launch.placement.nodes,
        "resources": resources(launch, clouds, aws_zones),
        "file_mounts": {**mounts, archive_path(key): str(archive)},
        "setup": setup_script(key),
        "run": run_script(key, launch.run_folder),
    }
    if secrets:
        config["secrets"] = dict(secrets)
    if job.skypilot_config:
        config["config"] = job.skypilot_config
    return config


def resources(launch: Launch, clouds: Mapping[str, str], aws_zones: ZoneNames) -> dict[str, Any]:
    """The pinned offer, and the job's further requirements."""
    offer = launch.placement.offer
    cloud = clouds.get(offer.provider)
    if cloud is None:
        raise TryAnotherOffer(
            f"SkyPilot knows no cloud {offer.provider!r}",
            where="skypilot",
            hint="if it has another name there, set it in GPUBROKER_ENGINES__SKYPILOT__CLOUDS",
        )
    request = request_served(offer, launch.job)
    labels = dict(request.labels) if request else {}
    fields: dict[str, Any] = {
        "infra": infra(offer, cloud, aws_zones),
        "use_spot": offer.capacity_type is CapacityType.SPOT,
        "labels": {**labels, TAG: launch.key, **({STORE_TAG: launch.store} if launch.store else {}), **_ticket(launch)},
    }
    if requested := accelerators(offer, cloud):
        fields["accelerators"] = requested
    if cloud in BY_SIZE:
        fields |= _size(offer, request)
    else:
        fields["instance_type"] = machine_type(offer)
    return fields | (_extra_resources(request) if request else {})


def _ticket(launch: Launch) -> dict[str, str]:
    """The launch's ticket, which SkyPilot's admin policy can use to ask the broker about a launch."""
    ticket = ticket_of(launch.key, launch.secrets)
    return {} if ticket is None else {TICKET_LABEL: ticket}


def _extra_resources(request: MachineRequest) -> dict[str, Any]:
    """The job's requirements beyond the machine."""
    fields = {
        "disk_size": math.ceil(request.disk_gib) if request.disk_gib else None,
        "disk_tier": request.disk_tier and request.disk_tier.value,
        "network_tier": request.network_tier and request.network_tier.value,
        "image_id": request.image,
        "ports": list(request.ports),
    }
    return {name: value for name, value in fields.items() if value}


def _size(offer: Offer, request: MachineRequest | None) -> dict[str, float]:
    """CPUs and GiB of memory, always explicit, so that SkyPilot's defaults do not apply."""
    cpus = (request.cpus if request else None) or offer.cpus or 1
    memory = (request.memory_gib if request else None) or offer.memory_gib
    return {"cpus": cpus, **({"memory": memory} if memory else {})}


def _absolute(source: Any) -> Any:
    """A local path as an absolute one, independent of the broker's folder; URLs of buckets unchanged."""
    if not is_local(source):
        return source
    return str(Path(source).expanduser().absolute())
