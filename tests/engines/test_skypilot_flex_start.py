"""Google's flex start: which machines SkyPilot is asked for, and for how long."""

from __future__ import annotations

from datetime import timedelta

import pytest

from broker.core.job.jobs import Job
from broker.core.market.offers import CapacityType
from broker.engines.skypilot.flex_start import flex_settings
from broker.engines.skypilot.places import CLOUDS
from broker.engines.skypilot.task import resources
from tests.engines.skypilot_bench import launch, offer

FLEX = offer("gcp", instance_type="a3-highgpu-8g+flex-start", capacity_type=CapacityType.ON_DEMAND)


@pytest.mark.parametrize(
    ("longest", "seconds"), [(None, 604_800), (timedelta(hours=5), 19_200), (timedelta(days=7), 604_800)]
)
def test_machines_are_asked_for_while_the_job_may_run_start_and_end_included(
    longest: timedelta | None, seconds: int
) -> None:
    asked = launch(FLEX, Job(name="train", run="true", max_duration=longest))
    group = {"run_duration": seconds, "provision_timeout": 900}
    assert flex_settings(asked) == {"gcp": {"managed_instance_group": group}}
    wanted = resources(asked, CLOUDS, lambda region: {})
    assert (wanted["instance_type"], wanted["use_spot"]) == ("a3-highgpu-8g", False)


def test_other_machines_are_not_asked_for_in_that_way() -> None:
    assert flex_settings(launch(offer("gcp", instance_type="a3-highgpu-8g"))) == {}
