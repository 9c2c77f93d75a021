"""Unknown names in policy files. They may be misspelled, so that a rule applies to no person or has no approver."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from fnmatch import translate
from itertools import chain
from pwd import getpwnam

from broker.app.market.market import freshen
from broker.app.wiring import Broker
from broker.core.errors import StoreProblem, closest, did_you_mean
from broker.core.job.jobs import Job, Priority, Workload
from broker.core.market.accelerators import accelerator_names
from broker.core.market.offers import CapacityType, Interconnect, MoneyKind
from broker.core.policy.policy import ActionKind, PolicyName
from broker.core.ports import BudgetSpec, PolicySet
from broker.core.values.provider_names import NAMES, provider_name
from broker.store import is_missing

_PERSON_KINDS = ("user", "approver")
_CLOSED: Mapping[str, Iterable[str]] = {
    "action": ActionKind,
    "workload": Workload,
    "priority": Priority,
    "capacity type": CapacityType,
    "kind of money": MoneyKind,
    "interconnect": Interconnect,
    "weekday": ("mon", "tue", "wed", "thu", "fri", "sat", "sun"),
}
_SIMILAR = 0.75  # a suggestion for a place or a value that is less similar misleads


def unknown_names(broker: Broker, policy: PolicySet) -> list[str]:
    """A warning for each name or pattern in a policy file that matches no known name, so that its rule may apply to
    nothing or have no approver. Known are the people and teams of this store's jobs and of the files, people with an
    account on this machine, and the places and machines of stored offers. Other names may still be correct. There is no
    warning where no name of that kind is known, or if the store cannot be read."""
    if not policy.names:
        return []
    found_names = {**_names_in_offers(broker), **_names_in_jobs(broker)}
    known_names: dict[str, Set[str]] = {
        kind: {"", *map(str, names)} for kind, names in (*_CLOSED.items(), *found_names.items())
    }
    if policy.teams:
        known_names["team"] = {"", *policy.teams}
        members = (name for team in policy.teams for name in policy.members(team))
        known_names["user"] = {*known_names.get("user", ()), *members}
    return [
        f"{name.source}: {warning}"
        for name in policy.names
        if (known := known_names.get(name.kind, frozenset[str]())) - {""} or name.kind == "approver"
        if (warning := _warning(name, known, known_names))
    ]


def _warning(name: PolicyName, known: Set[str], known_names: Mapping[str, Set[str]]) -> str:
    """Why the name probably means nothing, with a suggestion; empty if it matches a ``known`` one of its kind."""
    kind, text = name.kind, name.text
    if any(map(name.pattern.fullmatch, known)) or (kind in _PERSON_KINDS and has_account(text)):
        variants = [other for other in known if kind == "accelerator" and other.startswith(f"{text}-")]
        if not variants or any(map(name.pattern.fullmatch, variants)):
            return ""
        return f"{text!r} is that card alone, not {min(variants)}; for all, write .startsWith({text!r})"
    if kind == "approver":
        reason = "has no account on this machine and no activity in this store"
        return f"perhaps nobody can approve: {text!r} {reason}{did_you_mean(text, known)}"
    if kind in ("user", "team", "project", "environment"):
        if set("*?[") & set(text) and kind in ("user", "team"):
            return f"no listed {kind} matches {text!r}{did_you_mean(text, known)}"
        return f"no job of {kind} {text!r} is known{did_you_mean(text, known)}"
    if kind == "provider":
        return _unknown_provider(text, known)
    if kind in ("region", "location", "place"):
        return _unknown_place(kind, text, known, known_names.get("provider", frozenset()))
    return f"no known {kind} matches {text!r}{did_you_mean(text, known, _SIMILAR)}"


def _unknown_provider(text: str, known: Set[str]) -> str:
    alias = closest(text, {*known, *chain(*NAMES.values())}, _SIMILAR)
    return f"no known provider matches {text!r}" + (f"; did you mean {provider_name(alias)!r}?" if alias else "")


def _unknown_place(kind: str, text: str, known: Set[str], providers: Set[str]) -> str:
    """``kind``: ``region`` (``us-east-1``), ``location`` (``aws/us-east-1``) or ``place``, which may be either."""
    provider, separator, _ = text.partition("/")
    if kind == "region" and separator:
        return f"no known region matches {text!r}: offer.region has no provider; compare offer.provider, too"
    if kind == "location" and (full_names := [place for place in known if place.endswith(f"/{text}")]):
        return f"no known location matches {text!r}; did you mean {min(full_names)!r}?"
    if kind == "place" and separator:
        pattern = re.compile(translate(provider), re.IGNORECASE)
        if not any(map(pattern.match, providers)):
            return _unknown_provider(provider, providers)
    # A region with other digits, such as us-east-2 for us-east-3, is another place, not a misspelling.
    digits = re.sub(r"\D", "", text)
    candidates = [place for place in known if re.sub(r"\D", "", place) == digits]
    shown_kind = "region" if kind == "place" else kind
    return f"no known {shown_kind} matches {text!r}{did_you_mean(text, candidates, _SIMILAR)}"


def _names_in_offers(broker: Broker) -> dict[str, Set[str]]:
    """The known names of places and machines; none if the store cannot be read."""
    try:
        freshen(broker)
        offers = [series.offer for series in broker.store.market.series()]
    except StoreProblem:
        return {}
    return {
        "provider": {*NAMES, *broker.registries.providers, *(offer.provider for offer in offers)},
        "region": {offer.region for offer in offers},
        "location": {offer.location for offer in offers},
        "place": {name for offer in offers for name in (offer.region, offer.location)},
        "zone": {offer.zone for offer in offers if offer.zone},
        "instance type": {offer.instance_type for offer in offers},
        "accelerator": {*accelerator_names(), *(offer.accelerator for offer in offers if offer.accelerator)},
        "source": {*broker.registries.providers, *(offer.source for offer in offers)},
    }


def unknown_name_warnings(broker: Broker, policy: PolicySet, budgets: Sequence[BudgetSpec], job: Job) -> Iterator[str]:
    """A warning if a job's team is neither in a role of a person nor in a scope of the policy, although others are; and
    if scopes name no such project, but a similar one. ``budgets``: those that the job counts against."""
    projects = [name for name in policy.names if name.kind == "project"]
    similar = did_you_mean(job.project or "", [name.text for name in projects])
    if similar and not any(name.pattern.fullmatch(job.project or "") for name in projects):
        yield f"warning: no policy names project {job.project!r}{similar}"
    if job.team is None or policy.teams or any(spec.teams for spec in budgets):
        return
    with broker.store.access.reading() as reader:
        teams = {name for person in reader.people() for name in person.teams}
    teams |= {name.text for name in policy.names if name.kind == "team"}
    if teams and job.team not in teams:
        similar = did_you_mean(job.team, teams)
        yield f"warning: no person has a role in team {job.team!r}, and no policy names it{similar}"


def _names_in_jobs(broker: Broker) -> dict[str, Set[str]]:
    """Every known name of people and of what they work for. Known approvers: people on record, and those who submitted
    a job, applied a policy or gave a standing grant."""
    if is_missing(broker.settings.store_url):
        return {}
    try:
        with broker.store.reading() as reader:
            names, active, grants = reader.names_in_jobs(), reader.active_policy(), reader.standing_grants()
        with broker.store.access.reading() as people:
            other_people = {person.name for person in people.people()}
    except StoreProblem:
        return {}
    other_people |= {grant.by for grant in grants} | ({active.by} if active else set())
    return {**names, "approver": names["user"] | other_people}


def has_account(user: str) -> bool:
    """Whether a user of that name has an account on this machine."""
    try:
        getpwnam(user)
    except (KeyError, ValueError):  # ValueError: not a possible account name
        return False
    return True
