"""Who ended a machine, by Compute Engine: Google's own SDK against a Compute Engine that Google's discovery documents
check."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from broker.core.errors import LoginMissing, Unreachable
from broker.engines.skypilot import machine_ends
from broker.engines.skypilot.evidence import CloudVerdict
from broker.engines.skypilot.machine_ends import ComputeEngine, gcp_end, gcp_statement
from tests.fakes.gcp_cloud import GcpCloud, refusal
from tests.fakes.server import FakeServer

ZONE = "us-central1-a"
KEY = "train-abc123-1"
NAME = "train-abc123-1-fcd1e5cf-head-1x2y3z4w-compute"


@pytest.fixture
def cloud() -> GcpCloud:
    pytest.importorskip("googleapiclient", reason="the discovery documents are not installed (the extra `dev`)")
    pytest.importorskip("google.cloud.compute_v1", reason="Google's SDKs are not installed (the extra `gcp`)")
    return GcpCloud(page=1)


@pytest.fixture
def server(cloud: GcpCloud) -> Iterator[FakeServer]:
    with FakeServer(cloud) as running:
        yield running


def asking(server: FakeServer) -> Callable[[], ComputeEngine]:
    from google.auth.credentials import AnonymousCredentials

    login = AnonymousCredentials()  # type: ignore[no-untyped-call]  # ships no types
    return partial(ComputeEngine, login, "team-ml", server.url)


def said(server: FakeServer, key: str = KEY) -> CloudVerdict:
    return gcp_statement(key, "us-central1", asking(server)).verdict


def operation(kind: str, name: str = NAME) -> dict[str, Any]:
    link = f"https://www.googleapis.com/compute/v1/projects/team-ml/zones/{ZONE}/instances/{name}"
    return {"name": f"systemevent-{kind}-{name}", "operationType": kind, "targetLink": link, "status": "DONE"}


def instance(status: str, key: str = KEY, name: str = NAME) -> dict[str, Any]:
    zone = f"https://www.googleapis.com/compute/v1/projects/team-ml/zones/{ZONE}"
    return {"name": name, "status": status, "labels": {"gpubroker": key}, "zone": zone}


def test_a_preempted_machine_was_taken_whether_it_still_stands_there_or_not(
    cloud: GcpCloud, server: FakeServer
) -> None:
    """SkyPilot has it deleted after that, which is an operation, too."""
    cloud.operations = {ZONE: [operation("delete"), operation("compute.instances.preempted")]}
    assert said(server) is CloudVerdict.TAKEN
    cloud.instances = {ZONE: [instance("TERMINATED")]}
    assert said(server) is CloudVerdict.TAKEN


def test_a_worker_that_is_taken_ends_its_gang(cloud: GcpCloud, server: FakeServer) -> None:
    worker = NAME.replace("-head-", "-worker-")
    cloud.operations = {ZONE: [operation("compute.instances.preempted", worker), operation("delete")]}
    assert said(server) is CloudVerdict.TAKEN


def test_a_machine_that_was_deleted_or_shut_itself_down_was_not_taken(cloud: GcpCloud, server: FakeServer) -> None:
    for kind in ("delete", "stop", "compute.instances.guestTerminate"):
        cloud.operations = {ZONE: [operation(kind)]}
        assert said(server) is CloudVerdict.ASKED_FOR, kind


def test_a_broken_host_is_the_clouds_fault(cloud: GcpCloud, server: FakeServer) -> None:
    cloud.operations = {ZONE: [operation("compute.instances.hostError")]}
    assert said(server) is CloudVerdict.BROKE


def test_the_end_of_another_machine_proves_nothing(cloud: GcpCloud, server: FakeServer) -> None:
    others = ("train-abc123-12-fcd1e5cf-head-1x2y3z4w-compute", "train-abc123-1-head", "x" + NAME)
    cloud.operations = {ZONE: [operation("compute.instances.preempted", name) for name in others]}
    cloud.instances = {ZONE: [instance("RUNNING", "train-abc123-12")]}
    assert said(server) is CloudVerdict.UNKNOWN


def test_a_machine_that_runs(cloud: GcpCloud, server: FakeServer) -> None:
    cloud.instances = {ZONE: [instance("RUNNING")]}
    assert said(server) is CloudVerdict.RUNS


def test_a_login_that_may_not_ask_and_a_cloud_that_does_not_answer(
    cloud: GcpCloud, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.refuse = {"compute.instances.aggregatedList": refusal(403, "forbidden", "no permission")}
    with pytest.raises(LoginMissing, match="refuses the request: 403"):
        said(server)
    monkeypatch.setattr(machine_ends, "_GCP_TIMEOUT", 0.2)
    cloud.refuse = {"compute.instances.aggregatedList": refusal(503, "backendError", "later")}
    with pytest.raises(Unreachable, match="does not answer"):
        said(server)


def test_the_machines_of_a_key_that_skypilot_lost_are_ended_and_no_other(cloud: GcpCloud, server: FakeServer) -> None:
    worker = NAME.replace("-head-", "-worker-")
    others = [instance("RUNNING", "train-abc123-12", "another"), instance("STOPPING", name="ends-already")]
    cloud.instances = {ZONE: [instance("RUNNING"), instance("TERMINATED", name=worker), *others]}
    gcp_end(KEY, "us-central1", asking(server))
    assert [one["name"] for one in cloud.instances[ZONE]] == ["another", "ends-already"]
    gcp_end(KEY, "us-central1", asking(server))  # once more does nothing


def test_a_machine_that_goes_by_itself_meanwhile_is_no_error(cloud: GcpCloud, server: FakeServer) -> None:
    cloud.instances = {ZONE: [instance("RUNNING")]}
    cloud.refuse = {"compute.instances.delete": refusal(404, "notFound", "gone")}
    gcp_end(KEY, "us-central1", asking(server))


def test_a_login_that_may_not_end_machines_is_told_which_permission_it_lacks(
    cloud: GcpCloud, server: FakeServer
) -> None:
    cloud.instances = {ZONE: [instance("RUNNING")]}
    cloud.refuse = {"compute.instances.delete": refusal(403, "forbidden", "no permission")}
    with pytest.raises(LoginMissing, match="refuses the request: 403") as refused:
        gcp_end(KEY, "us-central1", asking(server))
    assert "compute.instances.delete" in refused.value.hint
