"""Limits of a job over all attempts, judged before it starts and while it runs: its cost, and its machine time."""

from abc import abstractmethod
from datetime import timedelta
from typing import ClassVar, Generic, TypeVar

from broker.core.policy.approvals import max_run_time, total_of
from broker.core.policy.policy import Action, ActionKind, Facts, Verdict
from broker.core.values.money import Money, round_distinct
from broker.core.values.units import PositiveDuration
from policies.bound_rule import BoundRule, ConfigT, allow, deny, duration_text, guardrail
from policies.fields import Limit, PolicyValue

T = TypeVar("T", Money, timedelta)


class JobLimit(BoundRule[ConfigT], Generic[ConfigT, T]):
    """A limit of one figure of a job. ``figure``: its name; ``reached`` and ``passes``: code and start of the sentence
    for a job at the limit, and for one that might pass it; ``key``: the job-file key that lowers the request."""

    figure: ClassVar[str]
    reached: ClassVar[tuple[str, str]]
    passes: ClassVar[tuple[str, str]]
    key: ClassVar[str]

    @abstractmethod
    def _figures(self, action: Action) -> tuple[T, T, T | None]:
        """The limit, the job's total until now, and its largest possible total (None if unknown)."""

    @abstractmethod
    def _print_figures(self, *figures: T) -> list[str]:
        """Several values in comparable form."""

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        limit, so_far, in_all = self._figures(action)
        if action.kind is ActionKind.CONTINUE:
            within, total, (code, says), hint = so_far < limit, so_far, self.reached, ""
        elif action.kind is ActionKind.RESERVE:
            return allow(self, "no_job", "applies to jobs, not to purchases")
        elif in_all is None:
            return allow(self, "not_known_yet", "applies to submissions, not to single placements")
        else:
            within, total = in_all <= limit, in_all
            (code, says), hint = self.passes, f"; set a lower {self.key} in the job file"
        if within:
            return allow(self, "within_limit", f"at most {self._print_figures(limit)[0]} per job")
        may, at_most = self._print_figures(total, limit)
        figures = {self.figure: self._figure(total), "limit": self._figure(limit)}
        return deny(self, code, f"{says} {may}; the limit is {at_most} per job{hint}", **figures)

    def _figure(self, figure: T) -> object:
        return figure if isinstance(figure, Money) else self._print_figures(figure)[0]


class Amount(PolicyValue[Limit]):
    """Maximum hold and cost of one job, in USD. Prepaid (amortized) capacity does not count."""


@guardrail("max_job_cost")
class MaxJobCost(JobLimit[Amount, Money]):
    """Denies a job that might cost more: its hold is its maximum cost. A running job stops at the limit."""

    figure, key = "cost", "max_cost"
    reached, passes = ("job_cost_reached", "the job has cost"), ("job_too_dear", "the job may cost")

    def _figures(self, action: Action) -> tuple[Money, Money, Money | None]:
        return self.config.root, action.spent, None if action.hold is None else total_of(action)

    def _print_figures(self, *figures: Money) -> list[str]:
        return round_distinct(*figures)


class Length(PolicyValue[PositiveDuration]):
    """Maximum machine time of one job over all attempts, such as ``48h``."""


@guardrail("max_job_duration")
class MaxJobDuration(JobLimit[Length, timedelta]):
    """Denies a job whose ``max_duration`` is longer. A running job stops at the limit."""

    figure, key = "duration", "max_duration"
    reached, passes = ("job_duration_reached", "the job has run for"), ("job_too_long", "the job may run for")

    def _figures(self, action: Action) -> tuple[timedelta, timedelta, timedelta | None]:
        return self.config.root, action.elapsed, max_run_time(action)

    def _print_figures(self, *figures: timedelta) -> list[str]:
        return [duration_text(duration) for duration in figures]
