"""Reads task files with the installed SkyPilot, for `test_skypilot_contract`: JSON in, JSON out. A process of its own,
because SkyPilot writes into its home and takes seconds to import."""

from __future__ import annotations

import json
import sys
from typing import Any

import sky
import yaml


def fields_of(resources: Any) -> list[dict[str, Any]]:
    """One entry a region where the image depends on it."""
    images = resources.image_id or {None: None}
    found = {
        "accelerators": resources.accelerators,
        "cpus": resources.cpus,
        "memory": resources.memory,
        "instance_type": resources.instance_type,
        "cloud": str(resources.cloud).lower() if resources.cloud else None,
        "region": resources.region,
        "zone": resources.zone,
        "use_spot": resources.use_spot,
        "disk_size": resources.disk_size,
        "disk_tier": resources.disk_tier.value if resources.disk_tier else None,
        "network_tier": resources.network_tier.value if resources.network_tier else None,
        "ports": resources.ports,
        "labels": resources.labels,
        "job_recovery": resources.job_recovery,
    }
    return [found | {"image": image, "region": region or found["region"]} for region, image in images.items()]


def read(text: str, envs: dict[str, str]) -> dict[str, Any]:
    try:
        task = sky.Task.from_yaml_config(yaml.safe_load(text), env_overrides=list(envs.items()) or None)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever it refuses a file with
        return {"refused": f"{type(error).__name__}: {error}"}
    stores = {
        place: {"name": store.name, "source": store.source, "mode": store.mode.value}
        for place, store in task.storage_mounts.items()
    }
    return {
        "name": task.name,
        "run": task.run,
        "setup": task.setup,
        "num_nodes": task.num_nodes,
        "workdir": task.workdir,
        "envs": task.envs,
        "secrets": sorted(ref.name for ref in task._managed_secret_refs),  # no public way to them
        "file_mounts": task.file_mounts or {},
        "stores": stores,
        "inputs_gb": task.estimated_inputs_size_gigabytes,
        "ordered": isinstance(task.resources, list),
        "resources": [one for resources in task.resources for one in fields_of(resources)],
    }


json.dump([read(*case) for case in json.load(sys.stdin)], sys.stdout)
