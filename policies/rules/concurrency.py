"""Limits of what runs at once: GPUs and jobs."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from broker.core.market.offers import MoneyKind
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, ActionKind, Facts, LiveAttempt, Verdict
from policies.bound_rule import BoundRule, ConfigT, allow, deny, guardrail
from policies.fields import GpuCount, JobCount, PolicyValue
from policies.scope import Scope


@dataclass(frozen=True)
class RunningAttempts:
    """Running attempts of other jobs, and their totals."""

    attempts: tuple[LiveAttempt, ...]

    @cached_property
    def gpus(self) -> int:
        return sum(attempt.gpus for attempt in self.attempts)

    @cached_property
    def jobs(self) -> int:
        return len({attempt.job_id for attempt in self.attempts})


class OtherAttempts:
    """Every other job in a scope. The judged job is left out, so a job that moves does not count twice.

    Simulated machines count with simulated ones only. The last answer is cached: a plan judges hundreds of placements
    with the same facts.
    """

    def __init__(self, scope: Scope, per: str = "") -> None:
        self._scope, self._per = scope, per
        self._last: tuple[tuple[LiveAttempt, ...], tuple[object, ...], RunningAttempts] | None = None

    def beside(self, action: Action, facts: Facts) -> RunningAttempts:
        """Other running attempts in the scope."""
        simulated = action.placement is not None and action.placement.money is MoneyKind.SANDBOX
        if self._last is not None:
            live, cached_key, running = self._last
            if live is facts.live and cached_key == (action.job_id, simulated, action.whose(self._per)):
                return running
        key = action.job_id, simulated, action.whose(self._per)
        running = RunningAttempts(tuple(attempt for attempt in facts.live if self._counts(attempt, *key)))
        self._last = (facts.live, key, running)
        return running

    def _counts(self, attempt: LiveAttempt, job_id: str | None, simulated: bool, name: str | None) -> bool:
        if attempt.job_id == job_id or (attempt.money is MoneyKind.SANDBOX) is not simulated:
            return False
        return self._scope.counts(attempt) and (name is None or getattr(attempt, self._per) == name)


def starts_attempt(action: Action) -> bool:
    """Whether the action starts an attempt."""
    return action.placement is not None and action.kind not in (ActionKind.CONTINUE, ActionKind.RESERVE)


def room_hint(requested: int, running: int, limit: int) -> str:
    """The number of GPUs allowed now and later, for the end of a sentence."""
    free, parts = max(limit - running, 0), []
    if free:
        parts.append(f"{free} allowed now")
    if requested <= limit:
        parts.append(f"{requested} after {requested - free} of those in use are released")
    return f"; {', '.join(parts)}" if parts else f"; never more than {limit}"


def scope_text(scope: Scope, per: str, action: Action) -> str:
    """`` for team nlp``, or `` for user ann`` by a limit ``per`` user; empty without a scope."""
    target = f"{per} {action.whose(per)}" if per else str(scope)
    return f" for {target}" if target else ""


class AtOnce(BoundRule[ConfigT]):
    """Denies a start that would exceed the limit. Running jobs continue: none of them is the one in excess.

    Simulated machines count with simulated ones only. A job that moves does not count twice.
    """

    counts_live: ClassVar[bool] = True
    counts_per: ClassVar[bool] = True

    @cached_property
    def _others(self) -> OtherAttempts:
        return OtherAttempts(self.scope, self.per)


class Gpus(PolicyValue[GpuCount]):
    """Maximum GPUs in use at once by all jobs in the scope."""


@guardrail("max_concurrent_gpus")
class MaxConcurrentGpus(AtOnce[Gpus]):
    """Limits the GPUs in use."""

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        placement = action.placement
        if placement is None or not placement.gpus or not starts_attempt(action):
            return allow(self, "starts_none", "no GPU is started")
        running, limit = self._running(action, facts), self.config.root
        if running + placement.gpus <= limit:
            return allow(self, "within_limit", f"at most {limit} GPUs at once")
        return deny(
            self,
            "too_many_gpus",
            f"{placement.gpus} GPUs requested, {running} running{scope_text(self.scope, self.per, action)}; "
            f"the limit is {limit}{room_hint(placement.gpus, running, limit)}",
            gpus=placement.gpus,
            running=running,
            free=max(limit - running, 0),
            limit=limit,
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        gpus = action.placement.gpus if action.placement else 0
        return (Fact(aspect=Aspect.GPUS_AT_ONCE, value=self._running(action, facts) + gpus),)

    def _running(self, action: Action, facts: Facts) -> int:
        """GPUs of other jobs, and those on which the job works while its standby starts."""
        return self._others.beside(action, facts).gpus + (action.beside.gpus if action.beside else 0)


class Jobs(PolicyValue[JobCount]):
    """Maximum jobs running at once in the scope."""


@guardrail("max_concurrent_jobs")
class MaxConcurrentJobs(AtOnce[Jobs]):
    """Limits the jobs that run."""

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if not starts_attempt(action):
            return allow(self, "starts_none", "no job is started")
        running, limit = self._others.beside(action, facts).jobs, self.config.root
        if running < limit:
            return allow(self, "within_limit", f"at most {limit} jobs at once")
        excess = running + 1 - limit
        return deny(
            self,
            "too_many_jobs",
            f"{running} jobs are running{scope_text(self.scope, self.per, action)}; the limit is {limit}; one more "
            f"passes once {excess} of them {'has' if excess == 1 else 'have'} ended",
            running=running,
            must_end=excess,
            limit=limit,
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return (Fact(aspect=Aspect.JOBS_AT_ONCE, value=self._others.beside(action, facts).jobs + 1),)
