"""References in a policy file and their places: teams, approvers, providers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from broker.core.documents import Document, Path
from broker.core.market.places import TERRITORIES
from broker.core.policy.policy import Source
from broker.core.values.provider_names import place_name, provider_name
from policies.fields import PATTERN_SIGNS

_SECTIONS = ("budgets", "guardrails")


def at(document: Document, path: Path) -> Source:
    """File, line and column of the path."""
    place = document.problem(path, "")
    return Source(document.file, place.line, place.column)


def entries(document: Document) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every budget and guardrail that is at least a mapping, and its place."""
    for section in _SECTIONS:
        listed = document.data.get(section)
        for index, entry in enumerate(listed if isinstance(listed, list) else []):
            if isinstance(entry, dict):
                yield (section, index), entry


def named_approvers(document: Document) -> Iterator[tuple[Path, str]]:
    """Every approver, as a name or pattern, and its place: in an entry, or in its rule."""
    for path, entry in entries(document):
        for inside, said in ((path, entry), *(((*path, key), part) for key, part in entry.items())):
            if isinstance(said, dict):
                yield from _named((*inside, "approvers"), said.get("approvers"))


def named_in_scopes(document: Document) -> Iterator[tuple[Path, str, str]]:
    """Every name (no patterns) in a scope: its place, its field (``team``, ``user``, …), and the name."""
    capacity = document.data.get("capacity")
    exceptions = capacity.get("exceptions") if isinstance(capacity, dict) else None
    others = enumerate(exceptions if isinstance(exceptions, list) else [])
    scoped = [*((("capacity", "exceptions", n), e) for n, e in others if isinstance(e, dict)), *entries(document)]
    for path, entry in scoped:
        for part, scope in (((*path, "scope"), entry.get("scope")), *excepted(path, entry)):
            for what, said in scope.items() if isinstance(scope, dict) else ():
                for where, name in _plain((*part, what), said):
                    yield where, what, name


def excepted(path: Path, entry: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Each scope that an entry excepts (one, or a list), and its place."""
    said = entry.get("except")
    if isinstance(said, list):
        yield from (((*path, "except", index), one) for index, one in enumerate(said))
    elif said is not None:
        yield (*path, "except"), said


def named_teams(document: Document) -> Iterator[tuple[Path, str]]:
    """Every team name (no patterns) and its place: in a scope, or in a reserved quota."""
    yield from ((path, name) for path, what, name in named_in_scopes(document) if what == "team")
    for path, entry in entries(document):
        quota = entry.get("reserved_quota")
        shares = quota.get("gpus") if isinstance(quota, dict) else None
        for team in shares if isinstance(shares, dict) else ():
            yield (*path, "reserved_quota", "gpus", team), str(team)


def listed_members(documents: Iterable[Document]) -> tuple[str, ...]:
    """Every team member in these files, as names or patterns."""
    teams = (document.data.get("teams") for document in documents)
    listed = (team for one in teams if isinstance(one, dict) for team in one.values() if isinstance(team, dict))
    return tuple(name for team in listed for _, name in _named((), team.get("members")))


def named_places(document: Document) -> Iterator[tuple[Path, str, str]]:
    """Every pattern of providers or places: its place in the file, ``provider`` or ``region``, and the pattern as it is
    used."""
    for path, entry in entries(document):
        for kind, key in (("allowed_locations", "providers"), ("allowed_locations", "regions"),
                          ("data_residency", "data"), ("data_residency", "run_in")):  # fmt: skip
            said = entry.get(kind)
            names = said.get(key) if isinstance(said, dict) else None
            lists = names.items() if isinstance(names, dict) else [("", names)]
            for part, listed in lists:
                for where, name in _named((*path, kind, key, *([part] if part else [])), listed):
                    what = "provider" if key == "providers" else "region"
                    if kind == "data_residency" and name.lower() in TERRITORIES:
                        continue
                    yield where, what, provider_name(name) if what == "provider" else place_name(name)


def named_providers(document: Document) -> Iterator[tuple[Path, str]]:
    """Every provider name (no patterns) and its place: alone, or before a region (``aws/eu-*``)."""
    for where, what, name in named_places(document):
        provider, slash, _ = name.partition("/")
        if (slash or what == "provider") and provider and not PATTERN_SIGNS.intersection(provider):
            yield where, provider


def _plain(path: Path, said: object) -> Iterator[tuple[Path, str]]:
    """The names, without patterns, in one name or a list, and their places."""
    return ((where, name) for where, name in _named(path, said) if not PATTERN_SIGNS.intersection(name))


def _named(path: Path, said: object) -> Iterator[tuple[Path, str]]:
    for index, name in enumerate(said if isinstance(said, list) else [said]):
        if isinstance(name, str):
            yield (*path, index) if isinstance(said, list) else path, name
