"""Launches into bought capacity: inside the named reservations, or not at all. On the stand-in of the SDK; EC2's
answers have the form of its API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]  # ships no types
from botocore.stub import ANY, Stubber  # type: ignore[import-untyped]  # ships no types

from broker.core.errors import NoCapacity, TryAnotherOffer
from broker.core.market.capacity import MachineOutside
from broker.core.market.offers import CapacityType
from broker.core.ports import EngineState, Launch
from broker.core.values.clock import SystemClock
from broker.engines.detached import Slot
from broker.engines.skypilot.engine import SkypilotSettings
from broker.engines.skypilot.reservations import check_outside, check_room, machines_outside, reservation_settings
from tests.contracts.engine_bench import Bench
from tests.engines.skypilot_bench import made, offer, placed
from tests.fakes import skypilot as fake

MINE = "cr-0123456789abcdef0"
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


class ReservingAccount:
    """EC2 with reservations and machines; its requests and answers are held to the service's model."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reservations: list[dict[str, Any]] = []
        self.machines: list[dict[str, Any]] = []
        self.trouble = ""
        self.client = boto3.client(
            "ec2", region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing"
        )
        account = self

        class AskedSession:
            def client(self, service: str, region_name: str, config: object) -> AskedSession:
                assert (service, region_name) == ("ec2", "us-east-1")
                return self

            def describe_capacity_reservations(self, **asked: Any) -> Mapping[str, Any]:
                [named] = asked["Filters"]
                assert named["Name"] == "capacity-reservation-id"
                rows = [one for one in account.reservations if one["CapacityReservationId"] in named["Values"]]
                return account.answered("describe_capacity_reservations", {"CapacityReservations": rows}, asked)

            def describe_instances(self, **asked: Any) -> Mapping[str, Any]:
                parts = [{"Instances": account.machines}] if account.machines else []
                return account.answered("describe_instances", {"Reservations": parts}, asked)

        monkeypatch.setattr(boto3, "Session", AskedSession)

    def answered(self, operation: str, answer: dict[str, Any], asked: dict[str, Any]) -> Mapping[str, Any]:
        if self.trouble:
            raise ClientError({"Error": {"Code": self.trouble, "Message": "x"}}, operation)
        with Stubber(self.client) as stubber:
            stubber.add_response(operation, answer, dict.fromkeys(asked, ANY))
            found: Mapping[str, Any] = getattr(self.client, operation)(**asked)
        return found

    def hold(self, free: int, state: str = "active", id: str = MINE) -> None:
        self.reservations.append({"CapacityReservationId": id, "State": state, "AvailableInstanceCount": free})

    def machine(
        self, id: str, reservation: str | None, state: str = "running", launched: datetime | None = None
    ) -> None:
        inside = {"CapacityReservationId": reservation} if reservation else {}
        since = {"LaunchTime": launched} if launched else {}
        self.machines.append({"InstanceId": id, "State": {"Name": state}, **inside, **since})


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> ReservingAccount:
    return ReservingAccount(monkeypatch)


def test_room_is_asked_for_before_a_launch(account: ReservingAccount) -> None:
    account.hold(2)
    account.hold(9, state="expired", id="cr-old")
    check_room("aws", "us-east-1", [MINE], 2)
    with pytest.raises(NoCapacity, match=f"2 free machines, 3 are needed \\({MINE} is active"):
        check_room("aws", "us-east-1", [MINE, "cr-old"], 3)
    with pytest.raises(NoCapacity, match="none is known"):
        check_room("aws", "us-east-1", ["cr-unknown"], 1)
    with pytest.raises(TryAnotherOffer, match="cannot pass reservations to SkyPilot on gcp"):
        check_room("gcp", "us-central1", [MINE], 1)


def test_machines_outside_are_found(account: ReservingAccount) -> None:
    account.machine("i-1", MINE)
    account.machine("i-2", None, launched=NOON)
    account.machine("i-3", "cr-other", "pending")
    account.machine("i-4", None, "terminated")
    account.machine("i-5", None, "pending")
    seen_at = NOON + timedelta(minutes=3)
    astray = [MachineOutside("i-2", NOON), MachineOutside("i-5", seen_at)]
    assert machines_outside("train-1", "us-east-1", seen_at) == (astray, 2)


def test_settings_are_for_such_launches_alone() -> None:
    assert reservation_settings([MINE]) == {"aws": {"specific_reservations": [MINE]}}
    assert reservation_settings(()) == {}


@pytest.fixture
def bench(tmp_path: Path, sky: fake.Sky) -> Bench:
    place = placed(offer(capacity_type=CapacityType.RESERVED))
    return Bench(
        make=lambda: made(tmp_path / "home", sky, SkypilotSettings(shared_disk=True, look=0.0, refresh=0.1)),
        placement=place, clock=SystemClock(), folder=tmp_path, doomed=place, take_away=sky.take_away,
    )  # fmt: skip


def into(bench: Bench) -> Launch:
    return replace(bench.launch("exec sleep 30"), reservations=(MINE,))


def test_without_room_nothing_is_launched(bench: Bench, sky: fake.Sky, account: ReservingAccount) -> None:
    account.hold(0)
    with pytest.raises(NoCapacity, match="0 free machines, 1 are needed") as caught:
        bench.engine.submit(into(bench))
    assert "nothing is launched outside of it" in caught.value.hint
    assert sky.tasks == []


def test_machines_inside_stay_and_ec2_is_not_asked_again(bench: Bench, account: ReservingAccount) -> None:
    account.hold(1)
    handle = bench.engine.submit(into(bench))
    account.machine("i-1", MINE)
    bench.until(handle, EngineState.UP)
    account.machines.clear()
    account.machine("i-1", None)
    assert bench.look(handle).state is EngineState.UP


def test_machines_that_came_outside_are_ended_and_told(bench: Bench, account: ReservingAccount) -> None:
    account.hold(1)
    handle = bench.engine.submit(into(bench))
    account.machine("i-1", None, launched=NOON)
    seen = bench.until(handle, EngineState.GONE)
    assert "i-1 came outside of the bought capacity" in seen.evidence
    assert seen.outside == (MachineOutside("i-1", NOON),)


def test_machines_that_come_outside_while_others_are_ended_are_told_too(
    tmp_path: Path, account: ReservingAccount
) -> None:
    slot = Slot.of(tmp_path, "train-1")
    slot.folder.mkdir()
    slot.write("launch.json", {"reservations": [MINE], "region": "us-east-1", "nodes": 2})
    account.machine("i-1", None, launched=NOON)
    assert "i-1 came outside" in check_outside(slot, "train-1", NOON)
    account.trouble = "RequestLimitExceeded"
    assert "i-1 came outside" in check_outside(slot, "train-1", NOON), "it is not forgotten"
    account.trouble = ""
    account.machines[0]["State"] = {"Name": "shutting-down"}
    account.machine("i-2", None, launched=NOON)
    assert "i-1, i-2 came outside" in check_outside(slot, "train-1", NOON)


def test_as_long_as_ec2_does_not_tell_the_machine_stays(bench: Bench, account: ReservingAccount) -> None:
    account.hold(1)
    handle = bench.engine.submit(into(bench))
    account.trouble = "RequestLimitExceeded"
    bench.until(handle, EngineState.UP)
    account.trouble = ""
    account.machine("i-1", None)
    assert "outside" in bench.until(handle, EngineState.GONE).evidence
