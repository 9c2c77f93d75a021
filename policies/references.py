"""References in a policy file and their places: teams, approvers, providers."""

from collections.abc import Iterable, Iterator
from typing import Any

from broker.core.documents import Document, Path
from broker.core.market.places import TERRITORIES
from broker.core.policy.policy import Source
from broker.core.values.provider_names import place_name, provider_name
from policies.fields import PATTERN_SIGNS

_SECTIONS = ("budgets", "guardrails")


def source_at(document: Document, path: Path) -> Source:
    """File, line and column of the path."""
    place = document.problem(path, "")
    return Source(document.file, place.line, place.column)


def entries(document: Document) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every budget and guardrail that is at least a mapping, and its place."""
    for section in _SECTIONS:
        items = document.data.get(section)
        for index, entry in enumerate(items if isinstance(items, list) else []):
            if isinstance(entry, dict):
                yield (section, index), entry


def named_approvers(document: Document) -> Iterator[tuple[Path, str]]:
    """Every approver, as a name or pattern, and its place: in an entry, or in its rule."""
    for path, entry in entries(document):
        for inner_path, value in ((path, entry), *(((*path, key), part) for key, part in entry.items())):
            if isinstance(value, dict):
                yield from _names_in((*inner_path, "approvers"), value.get("approvers"))


def named_in_scopes(document: Document) -> Iterator[tuple[Path, str, str]]:
    """Every name or pattern in a scope, and of buyers: its place, its field (``team``, ``user``, …), and the name."""
    capacity = document.data.get("capacity")
    exceptions = capacity.get("exceptions") if isinstance(capacity, dict) else None
    order_exceptions = enumerate(exceptions if isinstance(exceptions, list) else [])
    scoped = [
        *((("capacity", "exceptions", n), e) for n, e in order_exceptions if isinstance(e, dict)),
        *entries(document),
    ]
    for path, entry in scoped:
        for part, scope in (((*path, "scope"), entry.get("scope")), *excepted_scopes(path, entry)):
            for field_name, value in scope.items() if isinstance(scope, dict) else ():
                for name_path, name in _names_in((*part, field_name), value):
                    yield name_path, field_name, name
        purchases = entry.get("purchases")
        buyers = purchases.get("buyers") if isinstance(purchases, dict) else None
        yield from ((place, "user", name) for place, name in _names_in((*path, "purchases", "buyers"), buyers))


def excepted_scopes(path: Path, entry: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Each scope that an entry excepts (one, or a list), and its place."""
    value = entry.get("except")
    if isinstance(value, list):
        yield from (((*path, "except", index), scope) for index, scope in enumerate(value))
    elif value is not None:
        yield (*path, "except"), value


def named_teams(document: Document) -> Iterator[tuple[Path, str]]:
    """Every team name (no patterns) and its place: in a scope, or in a reserved quota."""
    for path, field_name, name in named_in_scopes(document):
        if field_name == "team" and not PATTERN_SIGNS.intersection(name):
            yield path, name
    for path, entry in entries(document):
        quota = entry.get("reserved_quota")
        shares = quota.get("gpus") if isinstance(quota, dict) else None
        for team in shares if isinstance(shares, dict) else ():
            yield (*path, "reserved_quota", "gpus", team), str(team)


def listed_members(documents: Iterable[Document]) -> tuple[str, ...]:
    """Every team member in these files, as names or patterns."""
    teams = (document.data.get("teams") for document in documents)
    team_entries = (
        team for mapping in teams if isinstance(mapping, dict) for team in mapping.values() if isinstance(team, dict)
    )
    return tuple(name for team in team_entries for _, name in _names_in((), team.get("members")))


def named_places(document: Document) -> Iterator[tuple[Path, str, str]]:
    """Every pattern of providers or places: its place in the file, ``provider`` or ``place`` (a region or a location),
    and the pattern as it is used."""
    for path, entry in entries(document):
        for kind, key in (
            ("allowed_locations", "providers"),
            ("allowed_locations", "regions"),
            ("data_residency", "data"),
            ("data_residency", "run_in"),
            ("purchases", "providers"),
        ):
            value = entry.get(kind)
            names = value.get(key) if isinstance(value, dict) else None
            lists = names.items() if isinstance(names, dict) else [("", names)]
            for part, patterns in lists:
                for pattern_path, name in _names_in((*path, kind, key, *([part] if part else [])), patterns):
                    place_kind = "provider" if key == "providers" else "place"
                    if kind == "data_residency" and name.lower() in TERRITORIES:
                        continue
                    yield (
                        pattern_path,
                        place_kind,
                        provider_name(name) if place_kind == "provider" else place_name(name),
                    )


def accelerator_patterns(document: Document) -> Iterator[tuple[Path, str, str]]:
    """Every pattern of accelerators (names are checked at loading), as of `named_places`."""
    for path, entry in entries(document):
        prices = entry.get("max_price_per_gpu_hour")
        names = [
            ((*path, "max_price_per_gpu_hour", name), name) for name in (prices if isinstance(prices, dict) else ())
        ]
        lists = entry.get("accelerators")
        for part, patterns in lists.items() if isinstance(lists, dict) else [("", lists)]:
            names += _names_in((*path, "accelerators", *([part] if part else [])), patterns)
        yield from ((place, "accelerator", str(name)) for place, name in names if PATTERN_SIGNS.intersection(str(name)))


def named_providers(document: Document) -> Iterator[tuple[Path, str]]:
    """Every provider name (no patterns) and its place: alone, or before a region (``aws/eu-*``)."""
    for pattern_path, kind, name in named_places(document):
        provider, slash, _ = name.partition("/")
        if (slash or kind == "provider") and provider and not PATTERN_SIGNS.intersection(provider):
            yield pattern_path, provider


def _names_in(path: Path, value: object) -> Iterator[tuple[Path, str]]:
    for index, name in enumerate(value if isinstance(value, list) else [value]):
        if isinstance(name, str):
            yield (*path, index) if isinstance(value, list) else path, name
