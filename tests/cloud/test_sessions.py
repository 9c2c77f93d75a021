"""The way into a job's machine on a real cloud's provisioner: the keys and the address are SkyPilot's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cloud.desk import CloudDesk

pytestmark = [pytest.mark.system, pytest.mark.cloud, pytest.mark.timeout(1800)]


def test_a_program_runs_beside_the_job_on_each_of_its_machines(desk: Callable[..., CloudDesk]) -> None:
    job = desk(steps=1000)
    job.submit()
    job.until("checkpoint_saved", 1)
    (machine,) = job.instances()
    said = job.gpubroker("exec", "count", "--", "sh", "-c", 'hostname -I; ls "$GPUBROKER_CHECKPOINT_DIR"')
    assert machine["PrivateIpAddress"] in said
    assert "step-000001" in said
    job.gpubroker("jobs", "cancel", "count")
    assert job.ended() == "cancelled"
    job.verify_nothing_left()
