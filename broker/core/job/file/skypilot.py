"""Every key of SkyPilot's task schema, supported or rejected by name with the reason. Plain data.

Source: skypilot 0.14.1, ``sky/utils/schemas.py`` (``get_task_schema``, ``get_resources_schema``,
``get_storage_schema``) and ``sky/resources.py`` (the alias ``gpus``). A reason names the replacement.

Honoured and without effect, because the broker does it anyway: ``job_recovery.strategy`` (placement after every
interruption), ``autostop`` (a machine is given back when its job ends), ``accelerator_args`` (no TPU is offered).

Differences: without ``use_spot``, a job uses spot if and only if it has a ``checkpoint:``; ``cpus`` and ``memory`` are
minima with and without ``+``; numbers and booleans in ``envs`` keep the text of the file (``1.10``, ``true``), where
SkyPilot writes Python's (``1.1``, ``True``); a variable without a value in a path is an error; ``outputs`` names
results to keep, not a bucket with an estimated size.

Not started here: files without `run` (a cluster to work on: `gpubroker dev`) and job groups (`execution: parallel`).
Pipelines, files of several documents, are read by `reading.py`; a Git repository as ``workdir`` by `repository.py`.
"""

from collections.abc import Mapping

SUPPORTED_TASK_KEYS = frozenset(
    {
        "name",
        "workdir",
        "num_nodes",
        "resources",
        "file_mounts",
        "setup",
        "run",
        "envs",
        "secrets",
        "inputs",
        "outputs",
        "config",
    }
)

UNSUPPORTED_TASK_KEYS: Mapping[str, str] = {
    "event_callback": "commands on the submitting machine are not run; `gpubroker status --json` gives the state",
    "service": "a service has no end to be planned or paid for; delete the section to run one server as a job, and say"
    " for how long: `max_duration: 8h` (`gpubroker advise deploy` compares ways to serve a model)",
    "pool": "there are no pools of machines; each job gets machines of its own, and many tasks from one file are an"
    " `array:`, with `parallel:` for how many at once",
    "managed_secrets": "they live in a SkyPilot server; list the names under `secrets` and export the values",
    "file_mounts_mapping": "it is written by SkyPilot's own client; delete the key",
    "volumes": "volumes outlive jobs and their cost would not be accounted for; use `file_mounts`",
    "volume_mounts": "volumes outlive jobs and their cost would not be accounted for; use `file_mounts`",
    "api_server_access": "machines never reach the broker, so there is nothing to allow; delete the key",
    "_metadata": "it is written by SkyPilot's own client; delete the key",
}

SUPPORTED_RESOURCE_KEYS = frozenset(
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
        "disk_tier",
        "network_tier",
        "image_id",
        "ports",
        "labels",
        "job_recovery",
        "autostop",
        "accelerator_args",
    }
)

_INTERNAL = "it is written by SkyPilot itself; delete the key"
UNSUPPORTED_RESOURCE_KEYS: Mapping[str, str] = {
    "volumes": "volumes outlive jobs and their cost would not be accounted for; use `file_mounts`",
    "ephemeral_storage": "SkyPilot has removed it; write `disk_size`",
    "local_disk": "offers do not list local disks, so this could not be guaranteed; use `disk_size` or `instance_type`",
    "max_hourly_cost": "money is limited for the whole job: `max_cost: $900`; a price per hour belongs in a policy",
    "priority": "it belongs at the top of the file: `priority: low`, `normal`, `high` or `urgent`",
    "priority_class": "it belongs at the top of the file: `priority: low`, `normal`, `high` or `urgent`",
    "_no_missing_accel_warnings": _INTERNAL,
    "_docker_login_config": _INTERNAL,
    "_is_image_managed": _INTERNAL,
    "_requires_fuse": _INTERNAL,
    "_cluster_config_overrides": _INTERNAL,
}

# Keys of earlier versions that SkyPilot itself no longer accepts.
REMOVED_RESOURCE_KEYS: Mapping[str, str] = {
    "candidates": "SkyPilot has removed its benchmarks, which ran on each; for a choice of machines write `any_of`",
    "spot_recovery": "SkyPilot calls it `job_recovery` now; the broker re-places a job after every interruption",
    "hooks": "commands before a machine stops are not run; put them at the end of `run`",
}

# Values of `file_mounts` that are mappings describe a storage bucket; engines receive them unchanged.
STORAGE_KEYS = frozenset({"name", "source", "store", "persistent", "mode", "type", "config"})
