"""The scope of a rule or a budget."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Literal

from pydantic import Field, field_validator

from broker.core.errors import did_you_mean
from broker.core.job.jobs import Workload
from broker.core.policy.policy import Action, LiveAttempt, RentedHours, Source
from broker.ledger.budgets import matches
from policies.approval_config import within
from policies.fields import Patterns, PolicyPart

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

    def common(self, other: Scope) -> Scope | None:
        """The intersection of both scopes; None if it is empty or unknown (a team here, a workload there)."""
        found: dict[str, tuple[str, ...]] = {}
        for key in Scope.model_fields:
            mine, theirs = getattr(self, key), getattr(other, key)
            if mine and theirs:
                shared = [a if within(a, b) else b for a in mine for b in theirs if within(a, b) or within(b, a)]
                if not shared:
                    return None
                found[key] = tuple(dict.fromkeys(shared))
            elif mine or theirs:
                found[key] = mine or theirs
        apart = not any(getattr(self, key) and getattr(other, key) for key in Scope.model_fields)
        if apart and Scope() not in (self, other):
            return None
        return Scope(**found)

    def takes_in(self, narrow: Scope) -> bool:
        """Whether this scope certainly includes ``narrow``."""
        stated = ((getattr(self, key), getattr(narrow, key)) for key in Scope.model_fields)
        return all(
            not mine or (theirs and all(any(within(name, other) for other in mine) for name in theirs))
            for mine, theirs in stated
        )

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
