"""A demand, and the advice on it: steps with their figures, and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.app.advise.places import Places
from broker.app.advise.subject import Subject
from broker.core.errors import InvalidInput
from broker.core.job.jobs import Job
from broker.economics.kinds import Goal, Method
from broker.economics.units import at_least_one, not_negative, positive, whole


@dataclass(frozen=True, slots=True)
class DeployDemand:
    """The demand and its limits.

    ``tokens``: training tokens; None: the usual number. ``budget_usd``: for the run, or a month of serving; None: no
    limit. ``deadline_hours``: from now. ``hours_per_day`` and ``months``: the time for which capacity is needed
    (serving). ``requests_per_minute``, ``tokens_per_request`` generated, ``prompt_tokens`` of each, ``p95_s``,
    ``peak_to_baseline``: the traffic. ``sensitive``: data must stay on owned machines, or within the ``places`` if
    those are limited. ``burst_hours``: hours of a day in which demand is above its steady part. ``method``: None: the
    cheapest suitable one. Raises InvalidInput.
    """

    goal: Goal
    model: Subject
    name: str
    method: Method | None = None
    tokens: float | None = None
    context: int = 4096
    budget_usd: float | None = None
    deadline_hours: float | None = None
    hours_per_day: float = 24.0
    months: float = 36.0
    requests_per_minute: float | None = None
    tokens_per_request: float = 200.0
    prompt_tokens: float = 0.0
    p95_s: float | None = None
    peak_to_baseline: float = 1.0
    sensitive: bool = False
    location: str = "world"
    places: Places = field(default_factory=Places)
    burst_hours: float = 8.0

    @property
    def owned_only(self) -> bool:
        """Whether only owned machines are allowed: the data are sensitive, and no place is named where they may go."""
        return self.sensitive and not self.places.limited

    def __post_init__(self) -> None:
        positive("hours per day", self.hours_per_day, most=24)
        positive("months", self.months, most=600)
        at_least_one("peak to baseline", self.peak_to_baseline)
        positive("burst hours", self.burst_hours, most=24)
        whole("context", self.context, most=10**8)
        for name, value in (("budget", self.budget_usd), ("deadline", self.deadline_hours)):
            if value is not None:
                positive(name, value)
        if self.tokens is not None:
            positive("tokens", self.tokens, most=1e18)
        not_negative("tokens per request", self.tokens_per_request)
        if self.goal is Goal.SERVE and self.requests_per_minute is None:
            raise InvalidInput("the traffic is missing", hint="give --requests-per-minute and --tokens-per-request")
        if self.goal is not Goal.SERVE and self.method is Method.INFERENCE:
            raise InvalidInput(f"method: inference does not train, and the goal is to {self.goal}")


@dataclass(frozen=True, slots=True)
class PathStep:
    """One step: the applied ``rule``, its inputs and results (``numbers``), the decision."""

    step: str
    rule: str
    numbers: Mapping[str, object]
    decision: str


@dataclass(frozen=True, slots=True)
class Deployment:
    """The advice. ``verdict``: ``rent``, ``buy`` or ``hybrid``. ``job_file`` and ``policy_file``: YAML, ready to use;
    ``burst_file``: of a hybrid, the job for demand above the steady part, else empty.
    ``warnings``: limits that cannot be met. ``usd``: of the run, or of a month of serving."""

    goal: Goal
    verdict: str
    summary: str
    accelerator: str
    gpus: int
    usd: float
    fits_budget: bool
    meets_deadline: bool
    steps: tuple[PathStep, ...]
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...]
    job: Job = field(repr=False)
    job_file: str = field(repr=False)
    policy_file: str = field(repr=False)
    burst_file: str = field(default="", repr=False)
