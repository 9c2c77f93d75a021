"""The speed of earlier attempts of a job, from the steps of its checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from broker.app.wiring import Broker
from broker.core.events.views import AttemptView, JobView
from broker.core.job.jobs import Job
from broker.placement.pricing.pace import Machine, Pace, Paces

_JOBS = 20  # the newest jobs of the name that are read
_LEAST = timedelta(minutes=6)  # shorter runs are ignored: warm-up distorts their speed
_HOUR = timedelta(hours=1)


def paces_for(broker: Broker, job: Job) -> Paces:
    """The speed by machine of earlier attempts of jobs of this name and team, on the same number of nodes; empty for a
    job that needs no conversion."""
    if not needs_conversion(job):
        return {}
    with broker.store.reading() as look:
        # The store's filter cannot select jobs without a team.
        views = [
            view
            for view in look.jobs(name=job.name, teams=[job.team] if job.team else [], limit=_JOBS)
            if view.job.team == job.team
        ]
    return paces(views, job)


def needs_conversion(job: Job) -> bool:
    """Whether the job may run on another machine than the one that its work is stated for."""
    reference = job.work
    if reference is None or reference.accelerator is None:
        machines = {(machine.accelerator, machine.count) for machine in job.resources}
        return len(machines) > 1
    return any(
        (machine.accelerator, machine.count) != (reference.accelerator, reference.count) for machine in job.resources
    )


def paces(views: Iterable[JobView], job: Job) -> dict[Machine, Pace]:
    """Steps and hours by machine, over all attempts whose checkpoints have steps."""
    found: dict[Machine, Pace] = {}
    for view in views:
        if view.job.num_nodes != job.num_nodes:
            continue
        asked = {machine.accelerator: machine.count for machine in view.job.resources if not machine.at_least}
        for attempt in view.attempts:
            offer, pace = attempt.placement.offer, _pace(attempt)
            if pace is None or offer.accelerator is None:
                continue
            # A job uses the number of accelerators that it requested, even if the machine has more.
            machine = offer.accelerator, min(asked.get(offer.accelerator) or offer.count, offer.count)
            found[machine] = found.get(machine, Pace(0.0, 0.0)) + pace
    return found


def _pace(attempt: AttemptView) -> Pace | None:
    dated = [(saved.at, saved.step) for saved in attempt.checkpoints if saved.step is not None]
    if attempt.running_at is None or not dated:
        return None
    at, step = max(dated)
    ran, steps = at - attempt.running_at, step - (attempt.resumed_step or 0)
    return Pace(float(steps), ran / _HOUR) if ran >= _LEAST and steps > 0 else None
