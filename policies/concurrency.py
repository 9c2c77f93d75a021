"""Attempts that run beside the judged job, for rules that limit concurrency."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Action, ActionKind, Facts, LiveAttempt
from policies.scope import Scope


@dataclass(frozen=True)
class RunningAttempts:
    """Running attempts of other jobs, and their totals."""

    attempts: tuple[LiveAttempt, ...]

    @cached_property
    def gpus(self) -> int:
        return sum(one.gpus for one in self.attempts)

    @cached_property
    def jobs(self) -> int:
        return len({one.job_id for one in self.attempts})


class Others:
    """Every other job in a scope. The judged job is left out, so a job that moves does not count twice.

    Simulated machines count with simulated ones only. The last answer is cached: a plan judges hundreds of placements
    with the same facts.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._last: tuple[tuple[LiveAttempt, ...], str | None, bool, RunningAttempts] | None = None

    def beside(self, action: Action, facts: Facts) -> RunningAttempts:
        """Attempts that run beside the one to start."""
        simulated = action.placement is not None and action.placement.money is MoneyKind.SANDBOX
        if self._last is not None:
            live, job_id, of_these, found = self._last
            if live is facts.live and job_id == action.job_id and of_these is simulated:
                return found
        found = RunningAttempts(tuple(one for one in facts.live if self._counts(one, action.job_id, simulated)))
        self._last = (facts.live, action.job_id, simulated, found)
        return found

    def _counts(self, one: LiveAttempt, job_id: str | None, simulated: bool) -> bool:
        return one.job_id != job_id and (one.money is MoneyKind.SANDBOX) is simulated and self._scope.counts(one)


def starts(action: Action) -> bool:
    """Whether the action starts an attempt."""
    return action.placement is not None and action.kind not in (ActionKind.CONTINUE, ActionKind.RESERVE)


def room(wanted: int, running: int, limit: int) -> str:
    """The number of GPUs that would pass now and later, for the end of a sentence."""
    free, most = max(limit - running, 0), []
    if free:
        most.append(f"{free} would pass now")
    if wanted <= limit:
        most.append(f"{wanted} once {wanted - free} of those running are free")
    return f"; {', '.join(most)}" if most else f"; at most {limit} ever would pass"


def whose(scope: Scope) -> str:
    """`` for team nlp``; empty without a scope."""
    return f" for {scope}" if str(scope) else ""
