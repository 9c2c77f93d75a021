"""Interruption notices from the clouds' metadata services: from the first word to a checkpoint that verifies."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.agent import metadata
from broker.agent.supervise import INTERRUPTED
from broker.core.events.agent_events import NoticeReceived
from broker.core.events.outcomes import Cause
from tests.agent.node import SAVE, Node
from tests.fakes.metadata_services import AwsMetadata, AzureMetadata, GcpMetadata
from tests.fakes.server import FakeServer, Fault

SAVES_WHEN_TOLD = f"{SAVE} trap 'save step_9; exit 0' TERM; echo up; while :; do sleep 0.02; done"
AT = datetime(2026, 11, 21, 12, 2, tzinfo=UTC)
NOWHERE = Path("/nonexistent")


def now() -> datetime:
    return datetime.now(UTC)


def variables(cloud: str, server: FakeServer) -> dict[str, str]:
    return {
        "AWS": {"AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url},
        "Google Cloud": {"GCE_METADATA_HOST": server.url.removeprefix("http://")},
        "Azure": {"GPUBROKER_AZURE_METADATA_URL": server.url},
    }[cloud]


CLOUDS: dict[str, Callable[[], AwsMetadata | GcpMetadata | AzureMetadata]] = {
    "AWS": AwsMetadata,
    "Google Cloud": GcpMetadata,
    "Azure": AzureMetadata,
}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_from_notice_to_checkpoint_within_the_time_that_is_left(cloud: str, node: Node) -> None:
    service = CLOUDS[cloud]()
    node.spec(SAVES_WHEN_TOLD, grace=60.0)
    with FakeServer(service) as server:
        agent = node.start(env=variables(cloud, server))
        node.until_said("up")
        service.taken = now() + timedelta(seconds=600)
        assert agent.wait(240) == INTERRUPTED
    (notice,) = [body for body in node.events() if isinstance(body, NoticeReceived)]
    assert notice.source == cloud
    assert notice.terminates_at is not None
    ending = node.ending()
    assert ending.cause is Cause.PREEMPTED
    assert ending.at < notice.terminates_at
    if cloud != "Google Cloud":  # whose machines end 30 s after they are told
        assert abs(notice.terminates_at - service.taken) < timedelta(seconds=3)
    assert node.saved() == [9]
    assert [node.runs.verify(one.id) for one in node.runs.checkpoints()] == [None]


def test_a_rebalance_recommendation_is_passed_on_and_ends_nothing(node: Node) -> None:
    service = AwsMetadata()
    service.rebalance = True
    node.spec(f"{SAVE} echo up; sleep 0.5; save step_1")
    with FakeServer(service) as server:
        assert node.start(env=variables("AWS", server)).wait(240) == 0
    (notice,) = [body for body in node.events() if isinstance(body, NoticeReceived)]
    assert (notice.source, notice.terminates_at) == ("AWS rebalance recommendation", None)
    assert node.ending().cause is Cause.COMPLETED


def test_a_token_that_is_refused_is_fetched_anew() -> None:
    service = AwsMetadata()
    with FakeServer(service) as server:
        look = metadata.from_aws(server.url)
        assert look() is None
        service.token = "AQAE-two"
        service.taken = AT
        assert look() is None
        notice = look()
    assert notice is not None
    assert notice.terminates_at == AT


def test_another_machines_event_is_not_ours() -> None:
    service = AzureMetadata()
    service.taken, service.whose = AT, "trainer_1"
    with FakeServer(service) as server:
        look = metadata.from_azure(server.url)
        assert look() is None
        service.whose, service.event = "trainer_0", "Freeze"
        assert look() is None, "a pause of seconds is no interruption"
        service.event, service.whose = "Preempt", "TRAINER_0"
        notice = look()
    assert notice is not None
    assert notice.terminates_at == AT


@pytest.mark.parametrize("fault", [one for one in Fault if one is not Fault.HANG])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_service_in_trouble_is_no_notice_and_asked_again(cloud: str, fault: Fault) -> None:
    service = CLOUDS[cloud]()
    service.taken = AT
    with FakeServer(service) as server:
        (look,) = metadata.sources(lambda: AT, variables(cloud, server), NOWHERE)
        server.order(fault, fault)
        looks = [look() for _ in range(5)]
    assert looks[0] is None
    assert looks[-1] is not None


def test_who_made_the_machine_says_whom_to_ask(tmp_path: Path) -> None:
    for vendor, expected in {"Amazon EC2": 1, "Google": 1, "Microsoft Corporation": 1, "Dell Inc.": 0}.items():
        (tmp_path / "sys_vendor").write_text(vendor + "\n")
        assert len(metadata.sources(lambda: AT, {}, tmp_path)) == expected, vendor
    assert metadata.sources(lambda: AT, {}, NOWHERE) == []


@pytest.mark.parametrize(
    ("vendor", "bios", "uuid", "expected"),
    [
        ("Xen", "4.11.amazon", None, 1),
        ("Xen", "4.2.amazon", "ec2e1916-9099-7caf-fd21-012345abcdef", 1),
        ("Xen", None, "EC2E1916-9099-7caf-fd21-012345abcdef", 1),
        ("Xen", "4.13", "0f1e1916-9099-7caf-fd21-012345abcdef", 0),
        ("Xen", None, None, 0),
        ("Dell Inc.", None, "ec2e1916-9099-7caf-fd21-012345abcdef", 0),
    ],
)
def test_a_machine_of_aws_on_xen_is_one_of_aws(
    vendor: str, bios: str | None, uuid: str | None, expected: int, tmp_path: Path
) -> None:
    """As p3 (V100): its firmware is Xen's."""
    for name, content in (("sys_vendor", vendor), ("bios_version", bios), ("uuid", uuid)):
        if content is not None:
            (tmp_path / name).write_text(content + "\n")
    found = metadata.sources(lambda: AT, {}, tmp_path, tmp_path / "uuid")
    assert [one.name for one in found] == ["AWS"] * expected


def test_a_proxy_is_not_asked_for_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    service = GcpMetadata()
    service.taken = AT
    with FakeServer(service) as server:
        assert metadata.from_gcp(server.url, lambda: AT)() is not None
