"""The utilisation of a job's accelerators, as measured by the agents on its machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.app.jobs.runs_root import run_folders
from broker.app.wiring import Broker
from broker.core.events.views import JobView
from broker.core.policy.policy import Usage

MOST_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class AttemptSamples:
    """The samples of one attempt, oldest first: percent of the busiest accelerator of a node."""

    attempt: int
    samples: Sequence[Usage]


def gpu_use(broker: Broker, view: JobView) -> Sequence[AttemptSamples]:
    """The samples of the job's newest attempts that have any, the newest attempt first. Raises `Unreachable`."""
    folder = run_folders(broker).of(view.id)
    attempts = [one.number for one in view.attempts if one.claimed_at is not None][-MOST_ATTEMPTS:]
    found = [AttemptSamples(number, folder.usage(number)) for number in reversed(attempts)]
    return [one for one in found if one.samples]
