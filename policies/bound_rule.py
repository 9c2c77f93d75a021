"""The fields that every rule of a policy file has.

Builds the rules' verdicts. A rule is a `broker.core.ports.Rule` and equals only itself (``eq=False``).

A plan judges hundreds of placements and most rules allow most of them, so allowances are cached.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import ClassVar, Generic, TypeVar

from pydantic import BaseModel

from broker.core.policy.facts import Fact
from broker.core.policy.policy import Action, Answer, Facts, OpenAsk, Source, Verdict
from broker.core.ports import Rule
from broker.core.values.money import Money
from broker.core.values.units import print_duration
from policies.scope import ApprovalConfig, Scope, asks_instead


def length(duration: timedelta) -> str:
    """A duration for a sentence, to the second."""
    return print_duration(timedelta(seconds=max(round(duration.total_seconds()), 0)))


def undecided(asks: Sequence[OpenAsk], most: int = 2) -> str:
    """Money held for pending requests, for a sentence: requester, approvers, deadline. Empty without any; ``most``: how
    many are named.
    """
    if not asks:
        return ""
    total = sum((one.held for one in asks), Money.ZERO).rounded(2)
    named = [
        f"{f'{one.held.rounded(2)} for ' if len(asks) > 1 else ''}{one.user}'s {one.job_id} (to be approved by"
        f" {' or '.join(one.approvers) or 'nobody'}{f' before {one.until:%Y-%m-%d %H:%M} UTC' if one.until else ''})"
        for one in asks[:most]
    ]
    more = [f"{len(asks) - most} more"] if len(asks) > most else []
    return f", {total} of it for requests that await approval: {'; '.join([*named, *more])}"


OUT_OF_SCOPE = "out_of_scope"


def allow(rule: Rule, code: str, message: str, **figures: object) -> Verdict:
    if figures:
        return _verdict(rule, Answer.ALLOW, code, message, figures)
    return _plainly(rule, code, message)  # type: ignore[arg-type] # rules compare by identity, so they are hashable


def deny(rule: Rule, code: str, message: str, **figures: object) -> Verdict:
    return _verdict(rule, Answer.DENY, code, message, figures)


def ask(rule: Rule, asking: ApprovalConfig, code: str, message: str, **figures: object) -> Verdict:
    """Require an approval by one of these approvers."""
    return asks_instead(deny(rule, code, message, **figures), asking)


def out_of_scope(rule: Rule) -> Verdict:
    return allow(rule, OUT_OF_SCOPE, "does not apply to this job")


@lru_cache(maxsize=16_384)
def _plainly(rule: Rule, code: str, message: str) -> Verdict:
    return _verdict(rule, Answer.ALLOW, code, message, {})


def _verdict(rule: Rule, answer: Answer, code: str, message: str, figures: dict[str, object]) -> Verdict:
    return Verdict(
        answer=answer,
        rule=rule.kind,
        code=code,
        message=message,
        source=rule.source,
        name=rule.name,
        figures={name: f.as_json() if isinstance(f, Money) else str(f) for name, f in figures.items()},
    )


ConfigT = TypeVar("ConfigT", bound=BaseModel)


@dataclass(frozen=True, eq=False)
class BoundRule(ABC, Generic[ConfigT]):
    """A rule (`broker.core.ports.Rule`) with its name, configuration, scope and place in the file. ``per``: ``user``,
    ``team`` or ``project`` if it limits each of them by itself. It equals only itself. A subclass defines ``kind``,
    ``Config``, ``_judge`` and ``looks_at``."""

    name: str
    config: ConfigT
    scope: Scope
    source: Source
    per: str = ""

    kind: ClassVar[str]

    def judge(self, action: Action, facts: Facts) -> Verdict:
        """The verdict; what is outside the scope is allowed."""
        return self._judge(action, facts) if self.scope.covers(action) else out_of_scope(self)

    @abstractmethod
    def _judge(self, action: Action, facts: Facts) -> Verdict:
        """The verdict on an action within the scope."""

    @abstractmethod
    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        """The facts that an approval of it covers."""
