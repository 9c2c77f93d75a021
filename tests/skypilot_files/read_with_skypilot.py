"""Reads task files with the installed SkyPilot: a JSON list of [text, variables] in, a JSON list of answers out. A
process of its own, because SkyPilot writes into its home and takes seconds to import."""

import json
import sys
from typing import Any

from sky.utils import dag_utils


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


def task_of(task: Any) -> dict[str, Any]:
    stores = {
        place: {
            "name": store.name,
            "source": store.source,
            "mode": store.mode.value,
            "store": next((kind.value for kind in store.stores), None),
        }
        for place, store in task.storage_mounts.items()
    }
    return {
        "name": task.name,
        "run": task.run,
        "setup": task.setup,
        "num_nodes": task.num_nodes,
        "workdir": task.workdir,
        "envs": task.envs,
        # There is no public way to the references.
        "secrets": sorted({*task.secrets, *(ref.name for ref in task._managed_secret_refs)}),
        "file_mounts": task.file_mounts or {},
        "stores": stores,
        "inputs_gb": task.estimated_inputs_size_gigabytes,
        "ordered": isinstance(task.resources, list),
        "resources": [one for resources in task.resources for one in fields_of(resources)],
        "serves": task.service is not None,
    }


def read(text: str, envs: dict[str, str]) -> dict[str, Any]:
    """The tasks of a file, in their order, and whether they run side by side; or why SkyPilot refuses it."""
    try:
        given = list(envs.items()) or None
        if dag_utils.is_job_group_yaml_str(text):
            dag = dag_utils.load_job_group_from_yaml_str(text, given)
        else:
            dag = dag_utils.load_chain_dag_from_yaml_str(text, given)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever it refuses a file with
        return {"refused": f"{type(error).__name__}: {error}"}
    return {"tasks": [task_of(task) for task in dag.tasks], "side_by_side": dag.is_job_group()}


if __name__ == "__main__":
    json.dump([read(*case) for case in json.load(sys.stdin)], sys.stdout)
