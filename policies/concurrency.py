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

    def __init__(self, scope: Scope, per: str = "") -> None:
        self._scope, self._per = scope, per
        self._last: tuple[tuple[LiveAttempt, ...], tuple[object, ...], RunningAttempts] | None = None

    def beside(self, action: Action, facts: Facts) -> RunningAttempts:
        """Attempts that run beside the one to start."""
        simulated = action.placement is not None and action.placement.money is MoneyKind.SANDBOX
        if self._last is not None:
            live, before, found = self._last
            if live is facts.live and before == (action.job_id, simulated, action.whose(self._per)):
                return found
        key = action.job_id, simulated, action.whose(self._per)
        found = RunningAttempts(tuple(one for one in facts.live if self._counts(one, *key)))
        self._last = (facts.live, key, found)
        return found

    def _counts(self, one: LiveAttempt, job_id: str | None, simulated: bool, name: str | None) -> bool:
        if one.job_id == job_id or (one.money is MoneyKind.SANDBOX) is not simulated:
            return False
        return self._scope.counts(one) and (name is None or getattr(one, self._per) == name)


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


def whose(scope: Scope, per: str, action: Action) -> str:
    """`` for team nlp``, or `` for user ann`` by a limit ``per`` user; empty without a scope."""
    whom = f"{per} {action.whose(per)}" if per else str(scope)
    return f" for {whom}" if whom else ""
