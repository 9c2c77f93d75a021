"""A limit on a job's total over all attempts, judged before it starts and while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from broker.core.policy.policy import Action, ActionKind, Verdict
from broker.core.ports import Rule
from broker.core.values.money import Money
from policies.verdicts import allow, deny

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
