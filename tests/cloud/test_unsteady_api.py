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


def test_an_interface_that_throttles_and_a_login_that_expires_in_the_middle_cost_no_machine_and_no_step(
    lab: CloudLab, desk: Callable[..., CloudDesk]
) -> None:
    throttled = [
        OrderedRefusal(action, "RequestLimitExceeded", "Request limit exceeded.", 503, left=times, to=of_the_account)
        for action, times in (("RunInstances", 2), ("DescribeInstances", 3))
    ]
    lab.aws.refusals += throttled
    job = desk(steps=20)
    job.hand_in()
    job.until("checkpoint_saved", 1)
    assert [one.left for one in throttled] == [0, 0], "each was met"
    expired = OrderedRefusal("*", "RequestExpired", "Request has expired.", 400, to=of_the_account)
    lab.aws.refusals.append(expired)
    job.until("attempt_ended")
    met = expired.met
    eventually(lambda: expired.met > met, "it is tried to end the machine")
    assert lab.alive(), "it could not be ended"
    assert not job.events("machine_gone"), "and is not taken for gone"
    ending = OrderedRefusal(
        "TerminateInstances", "RequestLimitExceeded", "Request limit exceeded.", 503, left=1, to=of_the_account
    )
    lab.aws.refusals[:] = [ending]
    assert job.ended() == "succeeded"
    assert ending.left == 0, "met, too"
    assert job.causes() == ["completed"]
    assert len(job.instances()) == 1, "a request that was refused started nothing"
    assert job.steps_done() == list(range(1, 21))
    job.verify_nothing_left()
