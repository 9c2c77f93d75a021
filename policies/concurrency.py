"""Who runs beside the job that is judged: what the rules count with that limit how much runs at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Action, ActionKind, Facts, LiveAttempt
from policies.scope import Scope


@dataclass(frozen=True)
class Running:
    """What others run, and what it comes to."""

    attempts: tuple[LiveAttempt, ...]

    @cached_property
    def gpus(self) -> int:
        return sum(one.gpus for one in self.attempts)

    @cached_property
    def jobs(self) -> int:
        return len({one.job_id for one in self.attempts})


class Others:
    """Everybody in a scope but the job itself, so that one that moves does not count twice.

    Simulated machines are counted with simulated ones only, real ones with real ones. The last answer is kept: a plan
    asks about hundreds of placements with the same facts.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._last: tuple[tuple[LiveAttempt, ...], str | None, bool, Running] | None = None

    def beside(self, action: Action, facts: Facts) -> Running:
        """What runs beside that which is to be started."""
        simulated = action.placement is not None and action.placement.money is MoneyKind.SANDBOX
        if self._last is not None:
            live, job_id, of_these, found = self._last
            if live is facts.live and job_id == action.job_id and of_these is simulated:
                return found
        found = Running(tuple(one for one in facts.live if self._counts(one, action.job_id, simulated)))
        self._last = (facts.live, action.job_id, simulated, found)
        return found

    def _counts(self, one: LiveAttempt, job_id: str | None, simulated: bool) -> bool:
        return one.job_id != job_id and (one.money is MoneyKind.SANDBOX) is simulated and self._scope.counts(one)


def starts(action: Action) -> bool:
    """Whether something is started that would run beside the others."""
    return action.placement is not None and action.kind not in (ActionKind.CONTINUE, ActionKind.RESERVE)


def whose(scope: Scope) -> str:
    """`` for team nlp``; nothing where it is about everybody."""
    return f" for {scope}" if str(scope) else ""
