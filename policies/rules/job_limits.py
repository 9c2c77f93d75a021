"""Limits of a job over all attempts, judged before it starts and while it runs: its cost, and its billed time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, RootModel

from broker.core.policy.approvals import lasts, total_of
from broker.core.policy.facts import Fact
from broker.core.policy.policy import Action, ActionKind, Facts, Verdict
from broker.core.ports import Rule
from broker.core.values.money import Money, alike
from broker.core.values.units import PositiveDuration
from policies.bound_rule import BoundRule, allow, deny, length
from policies.fields import Limit

T = TypeVar("T", Money, timedelta)


@dataclass(frozen=True)
class JobLimit(Generic[T]):
    """The limited quantity and the words of its rule. ``figure``: its name; ``printed``: several values in comparable
    form; ``reached`` and ``passes``: code and start of the sentence for a job at the limit, and for one that might pass
    it; ``key``: the job-file key that lowers the request.
    """

    figure: str
    printed: Callable[..., list[str]]
    reached: tuple[str, str]
    passes: tuple[str, str]
    key: str

    def judge(self, rule: Rule, action: Action, limit: T, *, so_far: T, in_all: T | None) -> Verdict:
        """``so_far``: the job's total until now; ``in_all``: its largest possible total, None if unknown."""
        if action.kind is ActionKind.CONTINUE:
            within, total, (code, says), hint = so_far < limit, so_far, self.reached, ""
        elif action.kind is ActionKind.RESERVE:
            return allow(rule, "no_job", "applies to jobs, not to purchases")
        elif in_all is None:
            return allow(rule, "not_known_yet", "applies to whole submissions, not to single placements")
        else:
            within, total, (code, says), hint = in_all <= limit, in_all, self.passes, f"; set a lower {self.key}"
        if within:
            return allow(rule, "within_limit", f"at most {self.printed(limit)[0]} per job")
        told, at_most = self.printed(total, limit)
        message = f"{says} {told}; the limit is {at_most} per job{hint}"
        return deny(rule, code, message, **{self.figure: self._shown(total), "limit": self._shown(limit)})

    def _shown(self, figure: T) -> object:
        return figure if isinstance(figure, Money) else self.printed(figure)[0]


class Amount(RootModel[Limit]):
    """Maximum hold and cost of one job, in USD. Prepaid (amortised) capacity does not count."""

    model_config = ConfigDict(frozen=True)


_COST = JobLimit[Money](
    "cost",
    alike,
    reached=("job_cost_reached", "the job has cost"),
    passes=("job_too_dear", "the job may cost"),
    key="max_cost in the job file",
)


class MaxJobCost(BoundRule[Amount]):
    """Denies a job that might cost more: its hold is its maximum cost. A running job stops at the limit."""

    kind: ClassVar[str] = "max_job_cost"
    Config: ClassVar[type[BaseModel]] = Amount

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        in_all = None if action.hold is None else total_of(action)
        return _COST.judge(self, action, self.config.root, so_far=action.spent, in_all=in_all)

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return ()  # every request covers the amount


class Length(RootModel[PositiveDuration]):
    """Maximum billed time of one job over all attempts, such as ``48h``."""

    model_config = ConfigDict(frozen=True)


_DURATION = JobLimit[timedelta](
    "duration",
    lambda *durations: [length(duration) for duration in durations],
    reached=("job_duration_reached", "the job has run for"),
    passes=("job_too_long", "the job may run for"),
    key="max_duration in the job file",
)


class MaxJobDuration(BoundRule[Length]):
    """Denies a job whose ``max_duration`` is longer. A running job stops at the limit."""

    kind: ClassVar[str] = "max_job_duration"
    Config: ClassVar[type[BaseModel]] = Length

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        return _DURATION.judge(self, action, self.config.root, so_far=action.elapsed, in_all=lasts(action))

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return ()  # every request covers the time
