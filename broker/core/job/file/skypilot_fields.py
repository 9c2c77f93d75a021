"""The values of keys that only SkyPilot defines: ports, tiers, images by region, labels, recovery, autostop, config.

Every key of SkyPilot's task schema, supported or rejected by name with the reason. Plain data.

Source: skypilot 0.14.1, ``sky/utils/schemas.py`` (``get_task_schema``, ``get_resources_schema``,
``get_storage_schema``) and ``sky/resources.py`` (the alias ``gpus``). A reason names the replacement.

Honoured and without effect, because the broker does it anyway: ``job_recovery.strategy`` (placement after every
interruption), ``autostop`` (a machine is given back when its job ends), ``accelerator_args`` (no TPU is offered).

Differences: without ``use_spot``, a job uses spot if and only if it has a ``checkpoint:``; ``cpus`` and ``memory`` are
minima with and without ``+``; numbers and booleans in ``envs`` keep the text of the file (``1.10``, ``true``), where
SkyPilot writes Python's (``1.1``, ``True``); a variable without a value in a path is an error; ``outputs`` names
results to keep, not a bucket with an estimated size.

Not started here: files without `run` (a cluster to work on: `gpubroker dev`) and job groups (`execution: parallel`).
Pipelines, files of several documents, are read by `reading.py`; a Git repository as ``workdir`` by `schema.py`.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, PlainValidator, WithJsonSchema

from broker.core.errors import did_you_mean
from broker.core.job.jobs import DiskTier, NetworkTier
from broker.core.market.capacity import STORE_TAG, TAG
from broker.core.validation import parse_each

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


_Tier = TypeVar("_Tier", bound=StrEnum)

_PORT = re.compile(r"(\d{1,5})(?:\s*-\s*(\d{1,5}))?")
_LAST_PORT = 65535
_STRATEGIES = frozenset({"FAILOVER", "EAGER_FAILOVER", "EAGER_NEXT_REGION"})
_AUTOSTOP_KEYS = frozenset({"idle_minutes", "down", "wait_for", "hook", "hook_timeout"})
_TPU_KEYS = frozenset({"runtime_version", "tpu_name", "tpu_vm", "gcp_queued_resource"})

# The parts of SkyPilot's configuration that a job may set: those that affect only the job's own machine. The others
# (identities, networks, pods, batch options) would act with the rights of whoever runs the broker.
ALLOWED_CONFIG_KEYS: Mapping[str, frozenset[str]] = {
    "docker": frozenset({"run_options"}),
    "nvidia_gpus": frozenset({"disable_ecc"}),
    "kubernetes": frozenset({"provision_timeout", "set_pod_resource_limits"}),
    "ssh": frozenset({"provision_timeout"}),
    "gcp": frozenset({"enable_gvnic", "enable_gpu_direct"}),
    "vast": frozenset({"datacenter_only"}),
}


def _ports(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [value]
    return tuple(dict.fromkeys(parse_each(enumerate(items), lambda _, item: _port(item))))


def _port(value: object) -> str:
    match = _PORT.fullmatch(str(value).strip()) if isinstance(value, int | str) else None
    if match is None or isinstance(value, bool):
        raise ValueError(f"expected a port such as 8080, or a range such as 8000-8010; got {str(value)[:40]!r}")
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= last <= _LAST_PORT:
        raise ValueError(f"ports go from 1 to {_LAST_PORT}, the lower one first; got {str(value)[:40]!r}")
    return str(first) if first == last else f"{first}-{last}"


def _disk_tier(value: object) -> DiskTier:
    return _tier(value, DiskTier)


def _network_tier(value: object) -> NetworkTier:
    return _tier(value, NetworkTier)


def _tier(value: object, tiers: type[_Tier]) -> _Tier:
    names = [tier.value for tier in tiers]
    if isinstance(value, str) and value.strip().lower() in names:
        return tiers(value.strip().lower())
    raise ValueError(f"expected one of {', '.join(names)}; got {str(value)[:40]!r}")


def _labels(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        raise ValueError("expected lines of the form 'name: text'")
    return tuple(sorted(parse_each(value.items(), _label)))


def _label(name: str, value: object) -> tuple[str, str]:
    if name in (TAG, STORE_TAG):
        raise ValueError(f"the label {name!r} is set by gpubroker itself, which finds its machines by it")
    if not isinstance(value, str):
        raise ValueError('expected text; put it in quotes, such as "1"')
    return name, value


def _image(value: object) -> str | dict[str, str]:
    """One image for all places, or one per region."""
    if isinstance(value, dict):
        if not value:
            raise ValueError("is empty; write `region: image` below it")
        return dict(parse_each(value.items(), lambda region, image: (region, _single_image(image))))
    return _single_image(value)


def _single_image(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError("expected an image, such as docker:pytorch/pytorch, or a mapping of regions to images")
    return value


def _recovery(value: object) -> int | None:
    """How often a failure of the job is retried; None if the key does not set it."""
    if value is None or isinstance(value, str):
        _strategy(value)
        return None
    if not isinstance(value, dict):
        raise ValueError("expected a mapping such as {max_restarts_on_errors: 2}")
    for key in value:
        if key == "recover_on_exit_codes":
            raise ValueError(
                "`recover_on_exit_codes` is not supported: every failure counts alike; write `retry: {failures: 2}`"
            )
        if key == "min_nodes":
            raise ValueError("`min_nodes` is not supported here: a job has all of its `num_nodes`, or waits for them")
        if key not in ("strategy", "max_restarts_on_errors"):
            known_keys = ("max_restarts_on_errors", "strategy")
            raise ValueError(f"unknown key {key!r}{did_you_mean(key, known_keys)}; known here: {', '.join(known_keys)}")
    _strategy(value.get("strategy"))
    restarts = value.get("max_restarts_on_errors")
    if restarts is not None and (isinstance(restarts, bool) or not isinstance(restarts, int) or restarts < 0):
        raise ValueError("expected a whole number of restarts, such as {max_restarts_on_errors: 2}")
    return restarts


def _strategy(value: object) -> None:
    """Validated and ignored: the broker places by price, deadline and budget after every interruption."""
    if value is None or (isinstance(value, str) and value.strip().upper() in _STRATEGIES | {"NONE"}):
        return
    known_names = sorted(_STRATEGIES)
    raise ValueError(
        f"unknown strategy {str(value)[:40]!r}{did_you_mean(str(value), known_names)}; known: {', '.join(known_names)}"
    )


def _autostop(value: object) -> object:
    """Validated and ignored: a machine is returned as soon as its job ends."""
    if isinstance(value, dict):
        for key in value:
            if key not in _AUTOSTOP_KEYS:
                raise ValueError(f"unknown key {key!r}{did_you_mean(key, _AUTOSTOP_KEYS)}")
            if key in ("hook", "hook_timeout"):
                raise ValueError("a hook before the machine stops is not run here; put the command at the end of `run`")
    elif not isinstance(value, bool | int | str):
        raise ValueError("expected minutes such as 10, true, false or a mapping such as {idle_minutes: 10}")
    return value


def _tpu(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError("expected lines of the form 'key: value'")
    for key in value:
        if key not in _TPU_KEYS:
            raise ValueError(
                f"unknown key {key!r}{did_you_mean(key, _TPU_KEYS)}; known: {', '.join(sorted(_TPU_KEYS))}"
            )
    return value


def _config(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("expected lines of the form 'key: value'")
    for section, settings in value.items():
        if not isinstance(settings, dict):
            raise ValueError(f"expected lines of the form 'key: value' below `{section}`")
        for name in settings or [""]:
            if name not in ALLOWED_CONFIG_KEYS.get(section, ()):
                where = ".".join(filter(None, ("config", section, str(name))))
                raise ValueError(f"`{where}` is not passed on: {_NOT_FOR_JOBS}; passed on are {_allowed_config()}")
    return value


_NOT_FOR_JOBS = "it would act with the rights of whoever runs the broker, who can set it in ~/.sky/config.yaml"


def _allowed_config() -> str:
    return ", ".join(f"{section}.{name}" for section, names in ALLOWED_CONFIG_KEYS.items() for name in sorted(names))


def _inputs(value: object) -> int:
    """The size of the data in bytes."""
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError("expected one address with its size in GB, such as {s3://my-bucket: 150}")
    ((_, size),) = value.items()
    if isinstance(size, bool) or not isinstance(size, int | float) or not 0 < size <= 10**9:
        raise ValueError("expected the size of the data in GB, such as {s3://my-bucket: 150}")
    return round(size * 10**9)


_PORT_SCHEMA = {"type": ["integer", "string"]}
_MAPPING = {"type": "object"}

Ports = Annotated[
    tuple[str, ...],
    PlainValidator(_ports),
    WithJsonSchema({"anyOf": [_PORT_SCHEMA, {"type": "array", "items": _PORT_SCHEMA}]}),
]
DiskTierField = Annotated[
    DiskTier, PlainValidator(_disk_tier), WithJsonSchema({"enum": [tier.value for tier in DiskTier]})
]
NetworkTierField = Annotated[
    NetworkTier, PlainValidator(_network_tier), WithJsonSchema({"enum": [tier.value for tier in NetworkTier]})
]
Labels = Annotated[
    tuple[tuple[str, str], ...],
    PlainValidator(_labels),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}}),
]
Image = Annotated[
    str | dict[str, str],
    PlainValidator(_image),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}]}),
]
JobRecovery = Annotated[
    int | None, PlainValidator(_recovery), WithJsonSchema({"anyOf": [{"type": "string"}, _MAPPING]})
]
Autostop = Annotated[
    Any, BeforeValidator(_autostop), WithJsonSchema({"type": ["boolean", "integer", "string", "object"]})
]
TpuArguments = Annotated[Any, BeforeValidator(_tpu), WithJsonSchema(_MAPPING)]
SkyPilotConfig = Annotated[dict[str, Any], PlainValidator(_config), WithJsonSchema(_MAPPING)]
Inputs = Annotated[
    int,
    PlainValidator(_inputs),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "number"}, "maxProperties": 1}),
]
