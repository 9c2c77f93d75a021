"""Every key of SkyPilot 0.14's task schema is honoured, or refused by name with a reason."""

from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from broker.core.errors import InvalidInput
from broker.core.job.file import parse_job
from broker.core.job.file.schema import JobFile, Resources
from broker.core.job.file.skypilot_fields import (
    REMOVED_RESOURCE_KEYS,
    SUPPORTED_RESOURCE_KEYS,
    SUPPORTED_TASK_KEYS,
    UNSUPPORTED_RESOURCE_KEYS,
    UNSUPPORTED_TASK_KEYS,
)

NOW = datetime(2026, 11, 21, tzinfo=UTC)

# Written down from skypilot 0.14.1: get_task_schema, get_resources_schema.
TASK_KEYS = [
    "name", "workdir", "event_callback", "num_nodes", "resources", "file_mounts", "service", "pool", "setup", "run",
    "envs", "secrets", "managed_secrets", "inputs", "outputs", "file_mounts_mapping", "config", "volumes",
    "volume_mounts", "api_server_access", "_metadata",
]  # fmt: skip
RESOURCE_KEYS = [
    "cloud", "region", "zone", "infra", "cpus", "memory", "accelerators", "instance_type", "use_spot", "job_recovery",
    "volumes", "disk_size", "ephemeral_storage", "disk_tier", "network_tier", "local_disk", "max_hourly_cost", "ports",
    "labels", "accelerator_args", "_no_missing_accel_warnings", "image_id", "autostop", "priority", "priority_class",
    "_docker_login_config", "_is_image_managed", "_requires_fuse", "_cluster_config_overrides", "any_of", "ordered",
]  # fmt: skip

TASK_VALUES: dict[str, Any] = {
    "name": "x", "workdir": ".", "num_nodes": 2, "resources": {"cpus": 4}, "file_mounts": {"/data": "s3://bucket"},
    "outputs": ["results/"],
    "setup": "pip install x", "run": "python x.py", "envs": {"A": "1"}, "secrets": ["HF_TOKEN"],
    "inputs": {"s3://bucket": 100}, "config": {"docker": {"run_options": ["--shm-size=1g"]}},
}  # fmt: skip
RESOURCE_VALUES: dict[str, Any] = {
    "cloud": "aws", "region": "us-east-1", "zone": "us-east-1a", "infra": "aws", "cpus": "4+", "memory": "16+",
    "accelerators": "H100:8", "gpus": "H100:8", "instance_type": "p5.48xlarge", "use_spot": True, "disk_size": 100,
    "disk_tier": "high", "network_tier": "best", "ports": 8080, "labels": {"a": "b"},
    "image_id": "docker:pytorch/pytorch", "any_of": [{"accelerators": "H100:8"}], "ordered": [{"accelerators": "L4"}],
}  # fmt: skip


# Honoured because the broker does it anyway, so that the job is no other one.
WITHOUT_EFFECT: dict[str, Any] = {
    "autostop": {"idle_minutes": 10, "down": True}, "job_recovery": "EAGER_NEXT_REGION",
    "accelerator_args": {"runtime_version": "tpu-vm-base"},
}  # fmt: skip


def test_the_tables_cover_the_schema_and_nothing_else() -> None:
    assert sorted(SUPPORTED_TASK_KEYS | set(UNSUPPORTED_TASK_KEYS)) == sorted(TASK_KEYS)
    # `gpus` is SkyPilot's alias, resolved before its schema is looked at.
    assert sorted(SUPPORTED_RESOURCE_KEYS | set(UNSUPPORTED_RESOURCE_KEYS)) == sorted([*RESOURCE_KEYS, "gpus"])
    assert not set(REMOVED_RESOURCE_KEYS) & (SUPPORTED_RESOURCE_KEYS | set(UNSUPPORTED_RESOURCE_KEYS))
    assert not SUPPORTED_TASK_KEYS & set(UNSUPPORTED_TASK_KEYS)
    assert not SUPPORTED_RESOURCE_KEYS & set(UNSUPPORTED_RESOURCE_KEYS)
    assert set(JobFile.model_fields) >= SUPPORTED_TASK_KEYS
    assert set(Resources.model_fields) >= SUPPORTED_RESOURCE_KEYS


def test_restarts_after_errors_are_retries() -> None:
    resources = {"any_of": [{"cpus": 4, "job_recovery": {"max_restarts_on_errors": 3}}]}
    assert job_with({"resources": resources}).retry.failures == 3
    assert job_with({"resources": resources, "retry": {"backoff": "1m"}}).retry.failures == 3
    with pytest.raises(InvalidInput, match="mistake"):
        job_with({"resources": resources, "retry": {"failures": 1}})


def test_inputs_are_the_size_of_the_data() -> None:
    assert job_with({"inputs": {"gs://bucket": 1.5}}).data.size == 1_500_000_000
    with pytest.raises(InvalidInput, match="mistake"):
        job_with({"inputs": {"gs://bucket": 1.5}, "data": {"size": "1GB"}})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"kubernetes": {"pod_config": {}}},
            "`config.kubernetes.pod_config` is not passed on: it would act with the rights",
        ),
        ({"hooks": []}, "expected lines of the form 'key: value' below `hooks`"),
    ],
)
def test_settings_that_would_act_with_the_rights_of_the_broker_are_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        job_with({"config": config})
    assert caught.value.problems[0].message.startswith(said)


def job_with(data: dict[str, Any]) -> Any:
    return parse_job(yaml.safe_dump({"run": "true"} | data), file="task.yaml", now=NOW)


@pytest.mark.parametrize("key", TASK_KEYS)
def test_each_task_key(key: str) -> None:
    if key in SUPPORTED_TASK_KEYS:
        assert job_with({key: TASK_VALUES[key]}) != job_with({"name": "task2"})
        return
    with pytest.raises(InvalidInput) as caught:
        job_with({key: {"any": "thing"}})
    (problem,) = caught.value.problems
    assert problem.key == key
    assert problem.line
    assert problem.message == f"SkyPilot's key is not supported here: {UNSUPPORTED_TASK_KEYS[key]}"


@pytest.mark.parametrize("key", [*RESOURCE_KEYS, "gpus"])
@pytest.mark.parametrize("group", [None, "any_of", "ordered"])
def test_each_resources_key(key: str, group: str | None) -> None:
    if group and key in ("any_of", "ordered"):
        return
    if key in WITHOUT_EFFECT:
        machine = {key: WITHOUT_EFFECT[key]}
        assert job_with({"resources": {group: [machine]} if group else machine}).resources == job_with({}).resources
        return
    if key in SUPPORTED_RESOURCE_KEYS:
        machine = {key: RESOURCE_VALUES[key]}
        assert job_with({"resources": {group: [machine]} if group else machine}).resources != job_with({}).resources
        return
    machine = {key: "anything"}
    with pytest.raises(InvalidInput) as caught:
        job_with({"resources": {group: [machine]} if group else machine})
    (problem,) = caught.value.problems
    assert problem.key == (f"resources.{group}[0].{key}" if group else f"resources.{key}")
    assert problem.message == f"SkyPilot's key is not supported here: {UNSUPPORTED_RESOURCE_KEYS[key]}"


@pytest.mark.parametrize("key", sorted(set(TASK_KEYS) - {"run"}))
def test_an_empty_task_key_counts_as_absent(key: str) -> None:
    assert job_with({key: None}) == job_with({})


@pytest.mark.parametrize("key", RESOURCE_KEYS)
def test_a_resources_key_left_empty_is_not_given_as_in_skypilot(key: str) -> None:
    assert job_with({"resources": {key: None}}) == job_with({})


@pytest.mark.parametrize(("text", "advice"), [
    ("resources: {cloud: gcp, region: [us-west1, asia-east1]}", "takes one; for several write `any_of`"),
    ("file_mounts: {/outputs: {name: null, mode: MOUNT}}", "names no bucket; write its `name`"),
])  # fmt: skip
def test_a_refused_value_says_what_to_write(text: str, advice: str) -> None:
    with pytest.raises(InvalidInput, match=advice):
        parse_job(f"run: echo x\n{text}\n", file="job.yaml", now=NOW)
