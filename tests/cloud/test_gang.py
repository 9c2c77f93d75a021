"""A gang on two machines: one job, one claim, one bill."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cloud.desk import CloudDesk
from tests.cloud.lab import ZONES

pytestmark = [pytest.mark.system, pytest.mark.cloud, pytest.mark.timeout(1800)]


def test_a_gang_runs_on_two_machines_of_one_zone_and_both_are_billed(desk: Callable[..., CloudDesk]) -> None:
    job = desk(steps=6, nodes=2)
    job.hand_in()
    assert job.ended() == "succeeded"
    assert job.causes() == ["completed"]
    said = job.gpubroker("logs", "count")
    for rank in (0, 1):
        assert [f"[{rank}] step {number}" for number in range(1, 7) if f"[{rank}] step {number}\n" in said] == [
            f"[{rank}] step {number}" for number in range(1, 7)
        ], said
    assert {one["Placement"]["AvailabilityZone"] for one in job.instances()} == {next(iter(ZONES.values()))}
    assert len(job.instances()) == 2
    job.verify_nothing_left()
