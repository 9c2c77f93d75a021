"""The speed of earlier attempts of a job, from the steps of its checkpoints."""

from collections.abc import Iterable
from datetime import timedelta

from broker.app.wiring import Broker
from broker.core.events.views import AttemptView, JobView
from broker.core.job.jobs import Job
from broker.placement.pricing.conditions import Machine, Pace, Paces

_MAX_JOBS = 20  # the newest jobs of the name that are read
_MIN_RUN = timedelta(minutes=6)  # shorter runs are ignored: warm-up distorts their speed
_HOUR = timedelta(hours=1)


def paces_for(broker: Broker, job: Job) -> Paces:
    """The speed by machine of earlier attempts of jobs of this name and team, on the same number of nodes; empty for a
    job that needs no conversion."""
    if not needs_conversion(job):
        return {}
    with broker.store.reading() as reader:
        # The store's filter cannot select jobs without a team.
        views = [
            view
            for view in reader.jobs(name=job.name, teams=[job.team] if job.team else [], limit=_MAX_JOBS)
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
    pace_by_machine: dict[Machine, Pace] = {}
    for view in views:
        if view.job.num_nodes != job.num_nodes:
            continue
        requested_counts = {
            machine.accelerator: machine.count for machine in view.job.resources if not machine.at_least
        }
        for attempt in view.attempts:
            offer, pace = attempt.placement.offer, _pace(attempt)
            if pace is None or offer.accelerator is None:
                continue
            # A job uses the number of accelerators that it requested, even if the machine has more.
            machine = offer.accelerator, min(requested_counts.get(offer.accelerator) or offer.count, offer.count)
            pace_by_machine[machine] = pace_by_machine.get(machine, Pace(0.0, 0.0)) + pace
    return pace_by_machine


def _pace(attempt: AttemptView) -> Pace | None:
    dated_steps = [
        (checkpoint.at, checkpoint.step) for checkpoint in attempt.checkpoints if checkpoint.step is not None
    ]
    if attempt.running_at is None or not dated_steps:
        return None
    at, step = max(dated_steps)
    run_time, steps = at - attempt.running_at, step - (attempt.resumed_step or 0)
    return Pace(float(steps), run_time / _HOUR) if run_time >= _MIN_RUN and steps > 0 else None
