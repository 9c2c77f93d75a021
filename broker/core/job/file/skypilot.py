"""Every key of SkyPilot's task schema, supported or rejected by name with the reason. Plain data.

Source: skypilot 0.14.1, ``sky/utils/schemas.py`` (``get_task_schema``, ``get_resources_schema``,
``get_storage_schema``) and ``sky/resources.py`` (the alias ``gpus``). A reason names the replacement.

Differences: ``cpus`` and ``memory`` are minima with and without ``+``; numbers and booleans in ``envs`` keep the text
of the file (``1.10``, ``true``), where SkyPilot writes Python's (``1.1``, ``True``).
"""

from __future__ import annotations

from collections.abc import Mapping

HONOURED_IN_TASK = frozenset(
    {"name", "workdir", "num_nodes", "resources", "file_mounts", "setup", "run", "envs", "secrets"}
)

REFUSED_IN_TASK: Mapping[str, str] = {
    "event_callback": "commands on the submitting machine are not run; `gpubroker jobs show --json` gives the state",
    "service": "a service has no end to be planned or paid for; submit the work as a job",
    "pool": "there are no pools of machines; each job gets machines of its own",
    "managed_secrets": "they live in a SkyPilot server; list the names under `secrets` and export the values",
    "inputs": "give the location and size of the data: `data: {location: aws/us-east-1, size: 500GB}`",
    "outputs": "results leave the machine as checkpoints or by the program itself; delete the key",
    "file_mounts_mapping": "it is written by SkyPilot's own client; delete the key",
    "config": "settings of SkyPilot belong in its own configuration; what limits placement goes under `constraints`",
    "volumes": "volumes outlive jobs and their cost would not be accounted for; use `file_mounts`",
    "volume_mounts": "volumes outlive jobs and their cost would not be accounted for; use `file_mounts`",
    "api_server_access": "machines never reach the broker, so there is nothing to allow; delete the key",
    "_metadata": "it is written by SkyPilot's own client; delete the key",
}

HONOURED_IN_RESOURCES = frozenset(
    {
        "accelerators",
        "gpus",
        "any_of",
        "ordered",
        "cpus",
        "memory",
        "infra",
        "cloud",
        "region",
        "zone",
        "instance_type",
        "use_spot",
        "disk_size",
        "image_id",
    }
)

_INTERNAL = "it is written by SkyPilot itself; delete the key"
REFUSED_IN_RESOURCES: Mapping[str, str] = {
    "job_recovery": "the broker re-places by deadline, budget and price; for failures write `retry: {failures: 2}`",
    "volumes": "volumes outlive jobs and their cost would not be accounted for; use `file_mounts`",
    "ephemeral_storage": "SkyPilot gave it up; write `disk_size`",
    "disk_tier": "offers do not give disk speeds, so this could not be guaranteed; delete the key",
    "network_tier": "offers do not give network speeds; for GPUs write `constraints: {interconnect: nvlink}`",
    "local_disk": "offers do not list local disks, so this could not be guaranteed; use `disk_size` or `instance_type`",
    "max_hourly_cost": "money is limited for the whole job: `max_cost: $900`; a price per hour belongs in a policy",
    "ports": "jobs serve no requests, so no port is opened; delete the key",
    "labels": "machines are tagged with job, team and project by the broker; set `team`, `project` or `workload`",
    "accelerator_args": "settings of TPU runtimes are not passed on; delete the key",
    "autostop": "a machine is given back as soon as its job ends; delete the key",
    "priority": "it stands at the top of the file: `priority: low`, `normal`, `high` or `urgent`",
    "priority_class": "it stands at the top of the file: `priority: low`, `normal`, `high` or `urgent`",
    "_no_missing_accel_warnings": _INTERNAL,
    "_docker_login_config": _INTERNAL,
    "_is_image_managed": _INTERNAL,
    "_requires_fuse": _INTERNAL,
    "_cluster_config_overrides": _INTERNAL,
}

# Values of `file_mounts` that are mappings describe a storage bucket; engines get them as they stand.
STORAGE_KEYS = frozenset({"name", "source", "store", "persistent", "mode", "type", "config"})
