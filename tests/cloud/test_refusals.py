"""What a cloud refuses and what fails on the way to a machine: the job goes on, or waits, and nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from broker.core.market.capacity import STORE_TAG, TAG
from tests.cloud.desk import CloudDesk
from tests.cloud.ec2 import OrderedRefusal
from tests.cloud.lab import ZONES, CloudLab
from tests.program import eventually, kill, processes

pytestmark = [pytest.mark.system, pytest.mark.cloud, pytest.mark.timeout(1800)]
FIRST, SECOND = ZONES


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit of 0 allows"),
        ("InvalidKeyPair.NotFound", "The key pair 'sky-key' does not exist"),
    ],
)
def test_what_the_account_may_not_do_is_tried_once_in_each_zone_and_bills_nothing(
    lab: CloudLab, desk: Callable[..., CloudDesk], code: str, text: str
) -> None:
    lab.aws.refusals.append(OrderedRefusal("RunInstances", code, text))
    job = desk()
    job.hand_in()
    job.until("attempt_ended", 2)
    zones = [one["placement"]["offer"]["zone"] for one in job.events("launch_requested")]
    assert zones == [FIRST, SECOND]
    assert set(job.causes()) == {"no_capacity"}, "SkyPilot does not say which refusal it was"
    job.gpubroker("cancel", "count")
    assert job.ended() == "cancelled"
    job.verify_nothing_left()


def test_a_machine_without_an_attempt_is_found_by_its_tags_and_ended(
    lab: CloudLab, desk: Callable[..., CloudDesk]
) -> None:
    job = desk()
    # As after a store was put back from a copy: it asked for the machine, and knows nothing of it.
    orphan = lab.start_untold({TAG: "count-abc123-1", STORE_TAG: job.store_id()}, before=timedelta(days=1))
    found = job.sweep()
    assert [(one["kind"], one["standing"]) for one in found] == [("machine_without_attempt", "orphan")]
    assert orphan in found[0]["id"]
    assert job.sweep("--end", "--yes")[0]["ended"]
    eventually(lambda: not lab.alive(), "the machine is ended")
    assert job.sweep() == []


def test_a_broker_that_dies_between_the_request_and_the_machine_takes_up_the_same_one(
    lab: CloudLab, desk: Callable[..., CloudDesk]
) -> None:
    job = desk(steps=6)
    job.hand_in()
    job.while_it_gets_on(lambda: job.events("launch_requested") and job.instances(), "the machine is requested")
    assert kill(processes(job.home))
    job.follow()
    assert job.ended() == "succeeded"
    assert job.causes() == ["completed"]
    assert len(job.instances()) == 1
    job.verify_nothing_left()


def test_a_machine_that_nobody_sets_up_powers_off_by_itself(lab: CloudLab, desk: Callable[..., CloudDesk]) -> None:
    """As after a closed laptop: it was asked for, and nobody ever logs in to it."""
    lab.nodes.deaf, lab.nodes.minute = True, 0.1
    job = desk(steps=6)
    job.hand_in()
    job.while_it_gets_on(job.instances, "the machine is requested")
    eventually(lambda: not lab.alive(), "it is off after its three hours, of a tenth of a second a minute")
    (machine, *_) = job.instances()
    assert machine["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    job.gpubroker("cancel", "count")
    assert job.ended() == "cancelled"
    job.verify_nothing_left()
