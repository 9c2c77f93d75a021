"""What a submission would do first with a job that is planned."""

from __future__ import annotations

from dataclasses import dataclass

from broker.core.job.placements import Placement


@dataclass(frozen=True, slots=True)
class FirstMove:
    """``placement``: where the first attempt would be tried, None where the job waits first. ``why``: the strategy's
    words, empty where it has no say."""

    placement: Placement | None
    why: str = ""
