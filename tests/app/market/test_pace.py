"""Paces from the steps that checkpoints of earlier attempts tell of."""

from datetime import UTC, datetime, timedelta
from typing import Any

from broker.app.market.experience import needs_conversion, paces
from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved, Claimed, CommandStarted, Restored
from broker.core.events.events import Event
from broker.core.events.lifecycle import advance
from broker.core.events.outcomes import Cause
from broker.core.events.views import JobView
from broker.core.job.jobs import Job, MachineRequest, Work
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.money import Money
from broker.placement.pricing.conditions import Pace

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def job(*cards: str, **changed: Any) -> Job:
    machines = tuple(MachineRequest(accelerator=card, count=4) for card in cards)
    return Job(name="train", run="x", resources=machines, **changed)


def ran(card: str, hours: float, step: int | None, resumed: int | None = None, wanted: Job | None = None) -> JobView:
    offer = Offer("aws", "r", "z", "t", card, 8, CapacityType.SPOT, Money.usd("1"), NOW, "s", engine="cloud")
    placement = Placement(offer, 1, Money.usd("1"), Money.usd("2"), (), None, None, 0.9, 1.0, 0.1)
    bodies: list[ev.EventBody] = [
        ev.LaunchRequested(key="k", engine="cloud", placement=placement), ev.Launched(handle="h"),
        ev.MachineUp(since=NOW), Claimed(), Restored(checkpoint=None, step=resumed), CommandStarted(),
    ]  # fmt: skip
    submitted = ev.Submitted(job=wanted or job(card), user="ann", max_duration_seconds=86_400)
    view = advance(None, Event("j", 1, NOW, None, submitted))
    for body in bodies:
        view = advance(view, Event("j", view.seq + 1, NOW, 1, body))
    saved = CheckpointSaved(checkpoint="00000001", step=step, size=1)
    view = advance(view, Event("j", view.seq + 1, NOW + hours * HOUR, 1, saved))
    return advance(view, Event("j", view.seq + 1, NOW + hours * HOUR, 1, ev.AttemptEnded(cause=Cause.PREEMPTED)))


def test_steps_since_the_start_over_hours_by_cards_used() -> None:
    views = [ran("H100", 2, 200), ran("H100", 1, 190, resumed=100), ran("A100", 1, 50)]
    assert paces(views, job("H100")) == {("H100", 4): Pace(290, 3), ("A100", 4): Pace(50, 1)}


def test_what_says_nothing() -> None:
    assert paces([ran("H100", 2, None), ran("H100", 0.05, 10)], job("H100")) == {}
    assert paces([ran("H100", 2, 10)], job("H100", num_nodes=2)) == {}


def test_only_jobs_that_may_run_elsewhere_ask() -> None:
    work = Work(duration=HOUR, accelerator="H100", count=4)
    assert not needs_conversion(job("H100", work=work))
    assert needs_conversion(job("H100", "A100", work=work))
    assert needs_conversion(job("H100", "A100"))
    assert not needs_conversion(job("H100"))
