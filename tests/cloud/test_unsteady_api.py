"""A cloud whose interface answers late, too much, or not any more: one machine, found again, ended, billed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cloud.desk import CloudDesk
from tests.cloud.ec2 import CALLER, OrderedRefusal, Parameters
from tests.cloud.lab import KEYS, CloudLab
from tests.program import eventually

pytestmark = [pytest.mark.system, pytest.mark.cloud, pytest.mark.timeout(1800)]


def of_the_account(parameters: Parameters) -> bool:
    return parameters[CALLER] == KEYS["AWS_ACCESS_KEY_ID"]


def test_a_throttled_interface_starts_one_machine(lab: CloudLab, desk: Callable[..., CloudDesk]) -> None:
    refusals = [
        OrderedRefusal(action, "RequestLimitExceeded", "Request limit exceeded.", 503, left=times, to=of_the_account)
        for action, times in (("RunInstances", 2), ("DescribeInstances", 3), ("TerminateInstances", 1))
    ]
    lab.aws.refusals += refusals
    job = desk(steps=6)
    job.submit()
    assert job.ended() == "succeeded"
    assert [one.left for one in refusals] == [0, 0, 0], "each was met"
    assert job.causes()[-1] == "completed"
    assert len(job.instances()) == 1, "a request that was refused started nothing"
    job.verify_nothing_left()


def test_a_machine_whose_tags_come_late_is_neither_forgotten_nor_doubled(
    lab: CloudLab, desk: Callable[..., CloudDesk]
) -> None:
    lab.aws.tags_late = 3.0  # SkyPilot looks three times within four seconds, and then gives up
    job = desk(steps=6)
    job.submit()
    assert job.ended() == "succeeded"
    job.verify_nothing_left()


def test_a_login_that_expires_in_the_middle_costs_no_step_and_its_machine_is_ended_once_it_is_back(
    lab: CloudLab, desk: Callable[..., CloudDesk]
) -> None:
    job = desk(steps=20)
    job.submit()
    job.until("checkpoint_saved", 1)
    expired = OrderedRefusal("*", "RequestExpired", "Request has expired.", 400, to=of_the_account)
    lab.aws.refusals.append(expired)
    job.until("attempt_ended")
    met = expired.met
    eventually(lambda: expired.met > met, "it is tried to end the machine")
    assert lab.alive(), "it could not be ended"
    assert not job.events("machine_gone"), "and is not taken for gone"
    lab.aws.refusals.clear()
    assert job.ended() == "succeeded"
    assert job.causes() == ["completed"]
    assert job.steps_done() == list(range(1, 21))
    job.verify_nothing_left()
