"""A limit on what one job may come to over all its attempts: judged before it starts, and while it runs."""

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
    """What is limited, in the words of its rule. ``figure``: its name; ``printed``: several of them as they stand in
    one sentence; ``reached`` and ``passes``: code and beginning of the sentence about a job that has come to the limit,
    and about one that might come to more; ``key``: what sets less in the job file."""

    figure: str
    printed: Callable[..., list[str]]
    reached: tuple[str, str]
    passes: tuple[str, str]
    key: str

    def judge(self, rule: Rule, action: Action, limit: T, *, so_far: T, in_all: T | None) -> Verdict:
        """``so_far``: what the job has come to; ``in_all``: what it may come to, None while that is not known."""
        if action.kind is ActionKind.CONTINUE:
            within, total, (code, says), hint = so_far < limit, so_far, self.reached, ""
        elif in_all is None:
            return allow(rule, "not_known_yet", "judges whole submissions, not single placements")
        else:
            within, total, (code, says), hint = in_all <= limit, in_all, self.passes, f"; {self.key} sets less"
        if within:
            return allow(rule, "within_limit", f"at most {self.printed(limit)[0]} a job")
        told, at_most = self.printed(total, limit)
        message = f"{says} {told}, the limit is {at_most} a job{hint}"
        return deny(rule, code, message, **{self.figure: self._shown(total), "limit": self._shown(limit)})

    def _shown(self, figure: T) -> object:
        return figure if isinstance(figure, Money) else self.printed(figure)[0]
