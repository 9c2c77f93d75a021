"""The scope of a rule or a budget.

Approval settings shared by every rule that can require an approval: the approvers and the expiry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import Literal

from pydantic import Field, StrictBool, field_validator, model_validator

from broker.core.errors import did_you_mean
from broker.core.job.jobs import Workload
from broker.core.policy.policy import Action, Answer, LiveAttempt, RentedHours, Source, Verdict
from broker.core.validation import each
from broker.core.values.units import PositiveDuration
from broker.ledger.budgets import matches
from policies.fields import PATTERN_SIGNS, Patterns, PolicyPart


class ApprovalConfig(PolicyPart):
    """``approvers``: operating-system user names or patterns; any one of them decides. A request without a decision
    ends after ``expires``. ``own_requests``: whether approvers may approve their own requests.
    """

    approvers: Patterns
    expires: PositiveDuration = timedelta(hours=24)
    own_requests: StrictBool = False


class MayAsk(PolicyPart):
    """A budget or a guardrail. ``approvers``, ``expires`` and ``own_requests`` are those of `ApprovalConfig` and apply
    to ``action: ask`` only.
    """

    action: str = "deny"
    approvers: Patterns = ()
    expires: PositiveDuration | None = None
    own_requests: StrictBool = False

    @model_validator(mode="after")
    def _somebody_to_ask(self) -> MayAsk:
        if self.action == "ask" and not self.approvers:
            each([("action", None)], _nobody_to_ask)
        said = {"approvers": self.approvers, "expires": self.expires, "own_requests": self.own_requests}
        only_for("ask", self.action, (key for key, value in said.items() if value))
        return self

    @property
    def asking(self) -> ApprovalConfig | None:
        """Approval settings, or None if the action is not ``ask``."""
        if self.action != "ask":
            return None
        more = {"expires": self.expires} if self.expires else {}
        return ApprovalConfig(approvers=self.approvers, own_requests=self.own_requests, **more)


def among(approvers: Iterable[str], people: Collection[str]) -> tuple[str, ...]:
    """Approvers limited to ``people`` (names or patterns that teams list).

    A pattern wider than the lists becomes the listed names it matches. Without ``people`` the approvers are returned
    unchanged.
    """
    if not people:
        return tuple(approvers)
    found: list[str] = []
    for approver in approvers:
        listed = any(within(approver, one) for one in people)
        found += [approver] if listed else [one for one in people if within(one, approver)]
    return tuple(dict.fromkeys(found))


def within(inner: str, outer: str) -> bool:
    """Whether ``outer`` matches every name that ``inner`` matches. Between two patterns, True only if that is certain,
    so that nobody becomes an approver by mistake.
    """
    told = not PATTERN_SIGNS.intersection(inner) or not ("[" in inner or "?" in outer or "[" in outer)
    return inner == outer or (told and fnmatchcase(inner, outer))


def _nobody_to_ask(*_: object) -> None:
    raise ValueError("`ask` needs `approvers`, such as approvers: [ann, bob]")


def only_for(meant: str, action: str, keys: Iterable[str]) -> None:
    """Raises a finding for each of these keys unless the action is ``meant``."""

    def misplaced(key: str, _: object) -> None:
        if action != meant:
            raise ValueError(f"is for `action: {meant}` only; the action here is {action}")

    each([(key, None) for key in keys], misplaced)


def asks_instead(verdict: Verdict, asking: ApprovalConfig) -> Verdict:
    """The verdict with `ASK` as its answer and the approvers to ask."""
    return replace(
        verdict, answer=Answer.ASK, approvers=asking.approvers, expires=asking.expires, own_requests=asking.own_requests
    )


Per = Literal["user", "team", "project"]
"""A limit ``per`` user, team or project applies to each one in the scope by itself."""


class Scope(PolicyPart):
    """Names or shell-style patterns, case-sensitive. Fields left out do not restrict; all given fields must match. A
    job without a project is in no project.
    """

    team: Patterns = ()
    project: Patterns = ()
    workload: Patterns = ()
    user: Patterns = ()
    environment: Patterns = ()

    @field_validator("workload")
    @classmethod
    def _known(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if not any(matches((pattern,), workload) for workload in Workload):
                meant = did_you_mean(pattern, map(str, Workload))
                raise ValueError(f"expected one of {', '.join(Workload)}; got {pattern!r}{meant}")
        return patterns

    def covers(self, action: Action) -> bool:
        """Whether the action's job and user are in the scope."""
        job = action.job
        return self._includes(action.user, job.team, job.project, job.workload, job.environment)

    def counts(self, live: LiveAttempt | RentedHours) -> bool:
        """Whether a running attempt, or what jobs rented, is in the scope."""
        return self._includes(live.user, live.team, live.project, live.workload, live.environment)

    def __str__(self) -> str:
        """``team nlp, workload training or batch``; empty without restrictions."""
        said = {name: getattr(self, name) for name in Scope.model_fields}
        return ", ".join(f"{name} {' or '.join(patterns)}" for name, patterns in said.items() if patterns)

    @cached_property
    def _includes(self) -> Callable[[str, str | None, str | None, str, str | None], bool]:
        """Cached: the same few users' jobs are matched repeatedly."""
        return lru_cache(maxsize=1024)(self._matches_all)

    def _matches_all(
        self, user: str, team: str | None, project: str | None, workload: str, environment: str | None
    ) -> bool:
        return (
            matches(self.team, team)
            and matches(self.project, project)
            and matches(self.workload, workload)
            and matches(self.user, user)
            and matches(self.environment, environment)
        )


class Exempting(Scope):
    """A scope without its ``excepted`` scopes; ``said_at``: their places."""

    excepted: tuple[Scope, ...]
    said_at: tuple[Source, ...] = Field(repr=False)

    def exempts(self, action: Action) -> Source | None:
        """The place of the exception that applies to the action's job and user, who are in the scope."""
        if not self.whole.covers(action):
            return None
        return next((at for one, at in zip(self.excepted, self.said_at, strict=True) if one.covers(action)), None)

    @cached_property
    def whole(self) -> Scope:
        """The scope including its exceptions."""
        return Scope.model_construct(**{name: getattr(self, name) for name in Scope.model_fields})

    def __str__(self) -> str:
        return f"{str(self.whole) or 'everybody'} except {'; '.join(map(str, self.excepted))}"

    def _matches_all(
        self, user: str, team: str | None, project: str | None, workload: str, environment: str | None
    ) -> bool:
        said = (user, team, project, workload, environment)
        return super()._matches_all(*said) and not any(one._includes(*said) for one in self.excepted)
