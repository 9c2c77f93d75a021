"""Substitutes variables of `envs` in paths and addresses as SkyPilot does: ``$NAME`` and ``${NAME}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from broker.core.documents import Document, Path
from broker.core.errors import Problem

_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<plain>[A-Za-z_][A-Za-z0-9_]*))")
FILLED_IN = ("workdir", "file_mounts")


def filled_in(
    document: Document, data: Mapping[str, Any], envs: Mapping[str, str]
) -> tuple[dict[str, Any], list[Problem]]:
    """The data with the variables in `FILLED_IN` replaced by their values, keys included; and a problem for every
    variable without a value."""
    filling = _Filling(document, envs)
    filled = {key: filling.value(value, (key,)) if key in FILLED_IN else value for key, value in data.items()}
    return filled, filling.problems


class _Filling:
    def __init__(self, document: Document, envs: Mapping[str, str]) -> None:
        self.document = document
        self.envs = envs
        self.problems: list[Problem] = []

    def value(self, value: Any, path: Path) -> Any:
        if isinstance(value, str):
            return self.text(value, path)
        if isinstance(value, dict):
            return self.mapping(value, path)
        if isinstance(value, list):
            return [self.value(item, (*path, index)) for index, item in enumerate(value)]
        return value

    def mapping(self, mapping: Mapping[str, Any], path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in mapping.items():
            name = self.text(key, (*path, key))
            if name in found:
                message = f"is the same path as another one, {name}; keep one"
                self.problems.append(self.document.problem((*path, key), message, at_key=True))
            found[name] = self.value(item, (*path, key))
        return found

    def text(self, text: str, path: Path) -> str:
        def replaced(match: re.Match[str]) -> str:
            name = match["braced"] or match["plain"]
            if name not in self.envs:
                message = f"{match[0]} has no value: name it under `envs`, or give `--env {name}=VALUE`"
                self.problems.append(self.document.problem(path, message))
            return self.envs.get(name, match[0])

        return _VARIABLE.sub(replaced, text)
