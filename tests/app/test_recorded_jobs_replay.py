"""The jobs that a store recorded, played under other policies and with other capacity."""

from datetime import datetime, timedelta

import pytest

from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.core.events import events as ev
from broker.core.events.agent_events import CommandStarted
from broker.core.events.outcomes import Cause, JobState
from broker.core.job.file import parse_job
from broker.core.job.placements import Placement
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.money import Money
from tests.lab.simulate import WhatIf, played
from tests.lab.simulation.recorded_jobs import recorded_workload
from tests.lab.workloads import policy_of

HOUR = timedelta(hours=1)
JOB = """\
name: train
team: nlp
run: python train.py
resources: {accelerators: "H100:8"}
max_duration: 20h
"""


def offer(at: datetime, price: int = 10) -> Offer:
    return Offer(
        "cloud", "here", None, "box", "H100", 8, CapacityType.ON_DEMAND, Money.usd(price), at, "api",
        availability=Availability.AVAILABLE, engine="local",
    )  # fmt: skip


def ran(broker: Broker, number: int, at: datetime, hours: int) -> None:
    job = parse_job(JOB, file="job.yaml", now=at)
    placement = Placement(offer(at), 1, Money.usd(10), Money.usd(10), (), None, None, 1.0, 1.0, 0.0)
    began: list[tuple[int | None, ev.EventBody]] = [
        (None, ev.Submitted(job=job, user="ann", max_duration_seconds=72_000)),
        (1, ev.LaunchRequested(key=f"train-{number}-1", engine="local", placement=placement)),
        (1, ev.Launched(handle=f"h{number}")),
    ]
    ended: list[tuple[int | None, ev.EventBody]] = [
        (1, ev.AttemptEnded(cause=Cause.COMPLETED)),
        (1, ev.MachineGone(gone_at=at + (hours + 1) * HOUR)),
        (None, ev.JobEnded(state=JobState.SUCCEEDED)),
    ]
    with broker.store.writing() as tx:
        tx.append(f"train-{number}", began, at)
        tx.append(f"train-{number}", [(1, ev.MachineUp(since=at + HOUR)), (1, CommandStarted())], at + HOUR)
        if hours:
            tx.append(f"train-{number}", ended, at + (hours + 1) * HOUR)


def test_recorded_jobs_are_played(broker: Broker) -> None:
    now = broker.clock.now()
    broker.store.record_poll("cloud", started=now, finished=now, offers=[offer(now)])
    for number in range(6):
        ran(broker, number, now - timedelta(days=3) + number * HOUR, hours=2)
    ran(broker, 9, now - timedelta(days=40), hours=2)
    workload = recorded_workload(broker, timedelta(days=30))
    assert len(workload.classes) == 1, "identical jobs are one class"
    assert any("waiting as recorded: mean 1:00:00" in note for note in workload.notes)
    found = played(workload, policy_of(), WhatIf(workload.days or 1, seed=1))
    assert found.faults == []
    team = found.teams["nlp"]
    assert team.submitted == team.finished == 6
    assert sum(team.used_gpu_seconds.values()) == 6 * 8 * (2 * 3600 + 300), "start-up is billed, too"
    tight = "version: 1\npolicy: t\nbudgets: [{name: b, amount: '$250', period: month}]\n"
    refused = played(workload, policy_of(tight), WhatIf(workload.days or 1, seed=1)).teams["nlp"]
    assert refused.finished < 6
    assert refused.refused == {"b: over_budget": 6 - refused.started}


def test_a_time_without_jobs_that_ran_is_refused(broker: Broker) -> None:
    with pytest.raises(InvalidInput, match="none was submitted"):
        recorded_workload(broker, timedelta(days=30))
