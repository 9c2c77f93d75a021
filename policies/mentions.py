"""Who and what is named where in a policy file, as it is written: teams, approvers, providers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.core.documents import Document, Path

_SECTIONS = ("budgets", "guardrails")
PATTERN_SIGNS = frozenset("*?[")


def entries(document: Document) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every budget and guardrail that is at least a mapping, and where it stands."""
    for section in _SECTIONS:
        listed = document.data.get(section)
        for index, entry in enumerate(listed if isinstance(listed, list) else []):
            if isinstance(entry, dict):
                yield (section, index), entry


def named_approvers(document: Document) -> Iterator[tuple[Path, str]]:
    """Every approver, by name or as a pattern, and where: in a budget or guardrail, or in the rule in it."""
    for path, entry in entries(document):
        for inside, said in ((path, entry), *(((*path, key), part) for key, part in entry.items())):
            if isinstance(said, dict):
                yield from _named((*inside, "approvers"), said.get("approvers"))


def named_teams(document: Document) -> Iterator[tuple[Path, str]]:
    """Every team that is named outright, and where: in a scope, or with its share of what is reserved."""
    capacity = document.data.get("capacity")
    exceptions = capacity.get("exceptions") if isinstance(capacity, dict) else None
    others = enumerate(exceptions if isinstance(exceptions, list) else [])
    scoped = [*entries(document), *((("capacity", "exceptions", n), e) for n, e in others if isinstance(e, dict))]
    for path, entry in scoped:
        scope, quota = entry.get("scope"), entry.get("reserved_quota")
        if isinstance(scope, dict):
            yield from _plain((*path, "scope", "team"), scope.get("team"))
        shares = quota.get("gpus") if isinstance(quota, dict) else None
        for team in shares if isinstance(shares, dict) else ():
            yield (*path, "reserved_quota", "gpus", team), str(team)


def named_providers(document: Document) -> Iterator[tuple[Path, str]]:
    """Every provider that is named outright, and where: by itself, or before a region (``aws/eu-*``)."""
    for path, entry in entries(document):
        for kind, key in (("allowed_locations", "providers"), ("allowed_locations", "regions"),
                          ("data_residency", "data"), ("data_residency", "run_in")):  # fmt: skip
            said = entry.get(kind)
            names = said.get(key) if isinstance(said, dict) else None
            lists = names.items() if isinstance(names, dict) else [("", names)]
            for part, listed in lists:
                for where, name in _named((*path, kind, key, *([part] if part else [])), listed):
                    provider, slash, _ = name.partition("/")
                    if (slash or key == "providers") and provider and not PATTERN_SIGNS.intersection(provider):
                        yield where, provider


def _plain(path: Path, said: object) -> Iterator[tuple[Path, str]]:
    """The names in one name or a list of them, and where each stands; no patterns."""
    return ((where, name) for where, name in _named(path, said) if not PATTERN_SIGNS.intersection(name))


def _named(path: Path, said: object) -> Iterator[tuple[Path, str]]:
    for index, name in enumerate(said if isinstance(said, list) else [said]):
        if isinstance(name, str):
            yield (*path, index) if isinstance(said, list) else path, name
