"""How long a job may run that does not say so, and limits that it cannot keep."""

from datetime import timedelta
from typing import Any

import pytest

from broker.core.job.jobs import Work
from broker.core.market.offers import CapacityType
from broker.placement.notes import LIMIT_FACTOR, never_done, time_limit

DEFAULT = timedelta(hours=24)


@pytest.mark.parametrize("hours", [0.2, 10, 65])
def test_the_limit_follows_from_the_work(make: Any, hours: float) -> None:
    job = make.job(work=Work(duration=timedelta(hours=hours)), max_duration=None)
    offers = [make.offer(), make.offer(capacity_type=CapacityType.SPOT, zone="us-east-1b")]
    placements = make.plan(offers, job).placements
    longest = max(one.duration for one in placements)
    limit = time_limit(job, placements, DEFAULT)
    assert timedelta(0) <= limit - (longest * LIMIT_FACTOR + timedelta(hours=1)) < timedelta(minutes=1)


def test_without_known_work_the_default_applies(make: Any) -> None:
    job = make.job(work=None, max_duration=None)
    placements = make.plan([make.offer()], job).placements
    assert time_limit(job, placements, DEFAULT) == DEFAULT


def test_a_limit_that_stops_the_job_everywhere_is_found(make: Any) -> None:
    job = make.job(work=Work(duration=timedelta(hours=10)), max_duration=timedelta(hours=9))
    placements = make.plan([make.offer()], job).placements
    assert time_limit(job, placements, DEFAULT) == timedelta(hours=9)
    assert never_done(job, placements) == placements[0].duration
    assert never_done(job.model_copy(update={"max_duration": timedelta(hours=12)}), placements) is None
    assert never_done(job.model_copy(update={"max_duration": None}), placements) is None
