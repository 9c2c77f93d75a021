"""A job on spot machines of a real provisioner: to its end, after a notice, after a machine that simply is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.cloud.desk import COUNT, EVERY, PACE, CloudDesk
from tests.cloud.ec2 import Parameters
from tests.cloud.lab import ZONES, CloudLab

pytestmark = [pytest.mark.system, pytest.mark.cloud, pytest.mark.timeout(1800)]
FIRST, SECOND = ZONES


def test_a_job_runs_on_a_spot_machine_to_its_end_with_a_program_beside_it_although_tags_come_late(
    lab: CloudLab, desk: Callable[..., CloudDesk]
) -> None:
    """SkyPilot looks three times within four seconds for the machine that it started, and then gives up."""
    lab.aws.tags_late = 3.0
    requests: list[Parameters] = []
    lab.aws.after.append(requests.append)
    alone = "[ -e ~/.aws/credentials ] || echo 'nobody is logged in here'\n"
    job = desk(steps=6, script=f"{COUNT}{alone}until [ -e /tmp/seen ]; do sleep 0.5; done\n")
    job.hand_in()
    job.until("checkpoint_saved", 1)
    beside = job.gpubroker(
        "exec", "count", "--", "sh", "-c", 'hostname -I; ls "$GPUBROKER_CHECKPOINT_DIR"; > /tmp/seen'
    )
    assert job.ended() == "succeeded"
    assert job.causes() == ["completed"]
    assert job.steps_done() == [1, 2, 3, 4, 5, 6]
    (machine,) = job.instances()
    (asked,) = [one for one in requests if one["Action"] == "RunInstances"]  # neither forgotten nor doubled
    assert any(name.startswith("IamInstanceProfile.") for name in asked), "an identity of the machine's own"
    assert "nobody is logged in here" in job.gpubroker("logs", "count"), "and not its user's"
    assert machine["PrivateIpAddress"] in beside, "the keys and the address are SkyPilot's own"
    assert "step-000001" in beside
    assert (machine["InstanceLifecycle"], machine["Placement"]["AvailabilityZone"]) == ("spot", ZONES[FIRST])
    job.verify_nothing_left()


def test_after_a_notice_no_step_is_lost_and_the_job_goes_on_in_another_zone(
    lab: CloudLab, desk: Callable[..., CloudDesk]
) -> None:
    job = desk(steps=40)
    job.hand_in()
    job.until("checkpoint_saved", 2)
    (machine,) = job.instances()
    lab.aws.refusals.append(lab.no_capacity(ZONES[FIRST]))  # which is why machines are taken back
    lab.announce(machine, within=timedelta(seconds=120))
    assert job.ended() == "succeeded"
    assert job.causes() == ["preempted", "no_capacity", "completed"]
    assert [one["Placement"]["AvailabilityZone"] for one in job.instances()] == [ZONES[FIRST], ZONES[SECOND]]
    assert job.steps_done() == list(range(1, 41)), "each step once: what was done before the notice is kept"
    assert job.taken_back() == [False, False, False], "it ended before it was taken, and is billed"
    job.verify_nothing_left()
    print(job.transcript())  # pytest shows it with -rP


def test_after_a_machine_is_gone_at_once_no_more_than_one_interval_is_lost(
    lab: CloudLab, desk: Callable[..., CloudDesk]
) -> None:
    job = desk(steps=40)
    job.hand_in()
    job.until("checkpoint_saved", 2)
    (machine,) = job.instances()
    lab.take_back(machine)
    assert job.ended() == "succeeded"
    assert job.causes() == ["preempted", "completed"]
    repeated = [step for step, times in Counter(job.steps_done()).items() if times > 1]
    assert len(repeated) * PACE <= EVERY + 10, f"repeated {repeated}"
    assert job.taken_back() == [True, False], "which AWS does not bill within the first hour of a spot machine"
    job.verify_nothing_left()


def test_a_job_that_ends_its_own_agent_has_failed_and_is_billed(desk: Callable[..., CloudDesk]) -> None:
    """It says nothing of its end, as machines do that are taken at once; EC2 knows better."""
    job = desk(script="sleep 2\npkill -9 -f agent.pyz\nsleep 300\n", retries=0)
    job.hand_in()
    assert job.ended() == "failed"
    assert job.taken_back() == [False]
    (gone,) = job.events("machine_gone")
    assert gone["own_end"], gone["evidence"]
    job.verify_nothing_left()
