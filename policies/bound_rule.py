"""The fields that every rule of a policy file has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel

from broker.core.policy.policy import Source
from policies.scope import Scope

ConfigT = TypeVar("ConfigT", bound=BaseModel)


@dataclass(frozen=True, eq=False)
class BoundRule(Generic[ConfigT]):
    """A rule (`broker.core.ports.Rule`) with its name, configuration, scope and place in the file. It equals only
    itself. A subclass defines ``kind``, ``Config``, ``judge`` and ``looks_at``."""

    name: str
    config: ConfigT
    scope: Scope
    source: Source
