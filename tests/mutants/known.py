"""The mutants that are known to survive, each with the reason why no test can or need tell it from the original."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

Key = tuple[str, str, str, str]
Known = Mapping[Key, str]

FILE = Path(__file__).with_name("known.toml")


def known_mutants(text: str | None = None) -> Known:
    """The reason for each, by `Mutant.key`. Raises ValueError for an entry without a reason, and for one that is there
    twice."""
    found: dict[Key, str] = {}
    for entry in tomllib.loads(FILE.read_text("utf-8") if text is None else text).get("mutant", []):
        key = (entry["module"], entry["function"], entry["before"].strip(), entry["after"].strip())
        if not entry["reason"].strip():
            raise ValueError(f"{key} has no reason")
        if key in found:
            raise ValueError(f"{key} is there twice")
        found[key] = entry["reason"]
    return found
