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
from broker.core.validation import parse_each
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
            parse_each([("action", None)], _nobody_to_ask)
        settings = {"approvers": self.approvers, "expires": self.expires, "own_requests": self.own_requests}
        check_action_keys("ask", self.action, (key for key, value in settings.items() if value))
        return self

    @property
    def asking(self) -> ApprovalConfig | None:
        """Approval settings, or None if the action is not ``ask``."""
        if self.action != "ask":
            return None
        options = {"expires": self.expires} if self.expires else {}
        return ApprovalConfig(approvers=self.approvers, own_requests=self.own_requests, **options)


def restrict_to(approvers: Iterable[str], people: Collection[str]) -> tuple[str, ...]:
    """Approvers limited to ``people`` (names or patterns that teams list).

    A pattern wider than the lists becomes the listed names it matches. Without ``people`` the approvers are returned
    unchanged.
    """
    if not people:
        return tuple(approvers)
    result: list[str] = []
    for approver in approvers:
        is_listed = any(is_subpattern(approver, person) for person in people)
        result += [approver] if is_listed else [person for person in people if is_subpattern(person, approver)]
    return tuple(dict.fromkeys(result))


def is_subpattern(inner: str, outer: str) -> bool:
    """Whether ``outer`` matches every name that ``inner`` matches. Between two patterns, True only if that is certain,
    so that nobody becomes an approver by mistake.
    """
    is_certain = not PATTERN_SIGNS.intersection(inner) or not ("[" in inner or "?" in outer or "[" in outer)
    return inner == outer or (is_certain and fnmatchcase(inner, outer))


def _nobody_to_ask(*_: object) -> None:
    raise ValueError("`ask` needs `approvers`, such as approvers: [ann, bob]")


def check_action_keys(required_action: str, action: str, keys: Iterable[str]) -> None:
    """Raises a finding for each of these keys unless the action is ``required_action``."""

    def misplaced(key: str, _: object) -> None:
        if action != required_action:
            raise ValueError(f"is for `action: {required_action}` only; the action here is {action}")

    parse_each([(key, None) for key in keys], misplaced)


def as_approval_request(verdict: Verdict, approval: ApprovalConfig) -> Verdict:
    """The verdict with `ASK` as its answer and the approvers to ask."""
    return replace(
        verdict,
        answer=Answer.ASK,
        approvers=approval.approvers,
        expires=approval.expires,
        own_requests=approval.own_requests,
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
                hint = did_you_mean(pattern, map(str, Workload))
                raise ValueError(f"expected one of {', '.join(Workload)}; got {pattern!r}{hint}")
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
        patterns_by_field = {name: getattr(self, name) for name in Scope.model_fields}
        return ", ".join(f"{name} {' or '.join(patterns)}" for name, patterns in patterns_by_field.items() if patterns)

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
        return next(
            (place for scope, place in zip(self.excepted, self.said_at, strict=True) if scope.covers(action)), None
        )

    @cached_property
    def whole(self) -> Scope:
        """The scope including its exceptions."""
        return Scope.model_construct(**{name: getattr(self, name) for name in Scope.model_fields})

    def __str__(self) -> str:
        return f"{str(self.whole) or 'everybody'} except {'; '.join(map(str, self.excepted))}"

    def _matches_all(
        self, user: str, team: str | None, project: str | None, workload: str, environment: str | None
    ) -> bool:
        values = (user, team, project, workload, environment)
        return super()._matches_all(*values) and not any(scope._includes(*values) for scope in self.excepted)
