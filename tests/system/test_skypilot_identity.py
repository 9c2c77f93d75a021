"""The real SkyPilot's own settings during a launch: no credential files of the user's go to a node."""

from importlib.util import find_spec
from typing import Any

import pytest

from broker.engines.skypilot.reservations import reservation_settings
from broker.engines.skypilot.sdk import (
    Sdk,
    clouds_without_identity,
    identity_settings,
    launch_settings,
    power_off_settings,
)
from broker.engines.skypilot.task import power_off_commands

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(find_spec("sky") is None, reason="SkyPilot is not installed (the extra `skypilot`)"),
]
if find_spec("sky") is not None:  # the module is collected without it, too
    from sky import skypilot_config
    from sky.clouds.utils import aws_utils
    from sky.server.requests import payloads
    from sky.skylet import constants
    from sky.utils import annotations as sky_annotations
    from sky.utils import common_utils, registry, schemas


@pytest.fixture(autouse=True)
def as_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sky_annotations, "is_on_api_server", False)


def sent_with(infra: str) -> dict[str, Any]:
    """The settings that a launch there sends to the API server."""
    with launch_settings({"resources": {"infra": infra}}):
        return dict(payloads.get_override_skypilot_config_from_client())


@pytest.mark.parametrize(("infra", "own"), [("aws/us-east-1/us-east-1a", "SERVICE_ACCOUNT"), ("oci/x", "NO_UPLOAD")])
def test_a_machine_gets_an_identity_of_its_own_or_none_and_no_files_of_other_clouds(infra: str, own: str) -> None:
    cloud = infra.partition("/")[0]
    sent = sent_with(infra)
    assert sent.pop(cloud)["remote_identity"] == own
    assert {name: section["remote_identity"] for name, section in sent.items()} == dict.fromkeys(sent, "NO_UPLOAD")
    assert {*sent, cloud, *clouds_without_identity()} == set(registry.CLOUD_REGISTRY), "all of them are looked at"
    assert {"aws", "gcp", "azure"} <= {*sent, cloud}
    assert payloads.get_override_skypilot_config_from_client() == {}, "only for that launch"


def test_skypilot_itself_accepts_the_settings() -> None:
    schema: Any = schemas
    validate: Any = common_utils.validate_schema
    for cloud in registry.CLOUD_REGISTRY:
        validate({**identity_settings(cloud), **power_off_settings(cloud)}, schema.get_config_schema(), "invalid: ")


def test_what_the_user_chose_stays_unless_it_copies_files() -> None:
    with skypilot_config.override_skypilot_config({"aws": {"remote_identity": "my-role"}}):
        assert sent_with("aws/us-east-1")["aws"]["remote_identity"] == "my-role"
        assert sent_with("gcp/us-central1")["aws"] == {"remote_identity": "my-role"}
    for name in ("LOCAL_CREDENTIALS", "local_credentials"):
        with skypilot_config.override_skypilot_config({"gcp": {"remote_identity": name}}):
            assert sent_with("gcp/us-central1")["gcp"] == {"remote_identity": "SERVICE_ACCOUNT"}
            assert sent_with("aws/us-east-1")["gcp"] == {"remote_identity": "NO_UPLOAD"}


def test_a_launch_is_sent_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []

    def launch(task: object, cluster_name: str, down: bool) -> str:
        sent.append(payloads.get_override_skypilot_config_from_client())
        return "request"

    monkeypatch.setattr("sky.launch", launch)
    config = {"name": "j-1", "run": "true", "resources": {"infra": "aws/us-east-1"}}
    assert Sdk().launch(config, "j-1") == "request"
    assert sent[0]["aws"]["remote_identity"] == "SERVICE_ACCOUNT"
    assert sent[0]["gcp"] == {"remote_identity": "NO_UPLOAD"}


@pytest.mark.timeout(120)
def test_the_first_use_may_be_the_question_which_clouds_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sky.client.sdk.check", lambda clouds, verbose: clouds)
    monkeypatch.setattr("sky.get", lambda clouds: {"default": {name.upper(): ["compute"] for name in clouds}})
    assert Sdk().may_use("aws")


def test_a_machine_on_aws_powers_off_unless_it_is_set_up_and_what_the_user_set_is_done_too() -> None:
    with skypilot_config.override_skypilot_config({"aws": {"post_provision_runcmd": ["echo mine"]}}):
        commands = sent_with("aws/us-east-1")["aws"]["post_provision_runcmd"]
    assert commands == ["echo mine", *power_off_commands(180)]
    assert "post_provision_runcmd" not in sent_with("gcp/us-central1")["gcp"]
    with launch_settings({"resources": {"infra": "aws/us-east-1", "image_id": "docker:torch"}}):
        assert "post_provision_runcmd" not in payloads.get_override_skypilot_config_from_client()["aws"]


def test_a_launch_into_a_reservation_names_it_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the client sends it, as the server reads it, and as its AWS provisioner asks for it."""
    bought = ["cr-0123456789abcdef0"]
    sent: list[dict[str, Any]] = []

    def launch(task: object, cluster_name: str, down: bool) -> str:
        sent.append(payloads.get_override_skypilot_config_from_client())
        return "request"

    monkeypatch.setattr("sky.launch", launch)
    config = {"name": "j-1", "run": "true", "resources": {"infra": "aws/us-east-1"}}
    Sdk().launch(config, "j-1", reservation_settings(bought))
    Sdk().launch(config, "j-2")
    assert sent[0]["aws"] == sent[1]["aws"] | {"specific_reservations": bought}
    assert "specific_reservations" not in sent[1]["aws"], "of that launch alone"
    untyped: tuple[Any, Any] = (common_utils, schemas)
    untyped[0].validate_schema(sent[0], untyped[1].get_config_schema(), "invalid: ")
    monkeypatch.setattr(sky_annotations, "is_on_api_server", True)
    with skypilot_config.override_skypilot_config(sent[0]):
        where: dict[str, Any] = {"cloud": "aws", "region": "us-east-1", "keys": ("specific_reservations",)}
        assert skypilot_config.get_effective_region_config(**where, default_value=[]) == bought
        assert aws_utils.use_reservations()


def test_flex_start_is_a_managed_instance_group_for_a_stated_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the client sends it and the server reads it; and what SkyPilot's provisioner asks for, by Google's model."""
    sent: list[dict[str, Any]] = []

    def launch(task: object, cluster_name: str, down: bool) -> str:
        sent.append(payloads.get_override_skypilot_config_from_client())
        return "request"

    monkeypatch.setattr("sky.launch", launch)
    wanted = {"run_duration": 7200, "provision_timeout": 900}
    config = {"name": "j-1", "run": "true", "resources": {"infra": "gcp/us-central1", "instance_type": "a3-highgpu-8g"}}
    Sdk().launch(config, "j-1", {"gcp": {"managed_instance_group": wanted}})
    untyped: tuple[Any, Any] = (common_utils, schemas)
    untyped[0].validate_schema(sent[0], untyped[1].get_config_schema(), "invalid: ")
    monkeypatch.setattr(sky_annotations, "is_on_api_server", True)
    with skypilot_config.override_skypilot_config(sent[0]):
        where: dict[str, Any] = {"cloud": "gcp", "region": "us-central1", "keys": ("managed_instance_group",)}
        assert skypilot_config.get_effective_region_config(**where, default_value=None) == wanted
    from google.cloud import compute_v1
    from google.protobuf import json_format

    body = {"name": "g", "resizeBy": 2, "requestedRunDuration": {"seconds": wanted["run_duration"]}}  # of its mig_utils
    asked = json_format.ParseDict(body, compute_v1.InstanceGroupManagerResizeRequest.pb()())
    assert (asked.resize_by, asked.requested_run_duration.seconds) == (2, 7200)
    assert "FLEX_START" in compute_v1.Scheduling.ProvisioningModel.__members__


def test_the_task_itself_could_not_name_it() -> None:
    """Why it is a setting of the launch: SkyPilot does not let a task override this one."""
    keys = {key[0] for key in constants.OVERRIDEABLE_CONFIG_KEYS_IN_TASK}
    assert "aws" not in keys
