"""Options of a submission that take precedence over its job file: variables, secrets, name, accelerators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.core.documents import Document
from broker.core.errors import Problem


@dataclass(frozen=True, slots=True)
class JobOverrides:
    """``envs`` and ``secrets`` (names only) are added to those of the file; ``name`` and ``accelerators`` (in the
    file's form, such as ``H100:8``) replace the file's."""

    envs: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    name: str | None = None
    accelerators: str | None = None


def with_machines(
    document: Document, data: dict[str, Any], overrides: JobOverrides
) -> tuple[dict[str, Any], list[Problem]]:
    """The data with the overriding name and accelerators, and the problems found."""
    named: dict[str, Any] = {} if overrides.name is None else {"name": overrides.name}
    if overrides.accelerators is None:
        return data | named, []
    resources = data.get("resources") or {}
    alternatives = [key for key in ("any_of", "ordered") if isinstance(resources, dict) and key in resources]
    if alternatives or data.get("model") is not None:
        path = ("resources", alternatives[0]) if alternatives else ("model",)
        message = "lists its own machines, so accelerators cannot be given with --gpu"
        return data | named, [document.problem(path, message, at_key=True)]
    if isinstance(resources, dict):
        resources = {key: value for key, value in resources.items() if key not in ("gpus", "instance_type")}
        named["resources"] = resources | {"accelerators": overrides.accelerators}
    return data | named, []
