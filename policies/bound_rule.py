"""The fields that every rule of a policy file has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from pydantic import BaseModel

from broker.core.policy.facts import Fact
from broker.core.policy.policy import Action, Facts, Source, Verdict
from policies.scope import Scope
from policies.verdicts import out_of_scope

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
