"""Unknown names in policy files. They may be misspelled, so that a rule applies to no person or has no approver."""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from fnmatch import translate
from pwd import getpwnam

from broker.app.market.market import freshen
from broker.app.wiring import Broker
from broker.core.errors import StoreProblem, did_you_mean
from broker.core.policy.policy import Source
from broker.core.ports import BudgetSpec, PolicySet
from broker.core.values.provider_names import NAMES
from broker.store import is_missing

_PERSON_KINDS = ("user", "approver")


@dataclass(frozen=True, slots=True)
class UnknownPolicyName:
    """An unknown name. ``what`` it names: user, team, project, environment or approver. ``meant``: a suggestion of a
    similar known name, or empty."""

    what: str
    name: str
    source: Source
    meant: str

    def __str__(self) -> str:
        if self.what == "approver":
            reason = "has no account on this machine and no activity in this store"
            return f"{self.source}: perhaps nobody can approve: {self.name!r} {reason}{self.meant}"
        return f"{self.source}: no job of {self.what} {self.name!r} is known{self.meant}"


def unknown_names(broker: Broker, policy: PolicySet) -> list[UnknownPolicyName]:
    """The names in scopes and the approvers, in file order, that are in no job of this store and no team's list, and,
    for people, have no account on this machine. They may still be correct. Names in a scope are not reported if no job
    has a name of that kind yet, or if the store cannot be read."""
    name_uses = policy.uncertain_names
    known_names = _known_names(broker) if name_uses else {}
    return [
        UnknownPolicyName(kind, name, source, did_you_mean(name, known_names.get(kind, ())))
        for kind, name, source in name_uses
        if (known_names.get(kind) or kind == "approver")
        and not _is_known(kind, name, known_names.get(kind, frozenset()))
    ]


def unknown_place_warnings(broker: Broker, policy: PolicySet) -> list[str]:
    """A warning for each pattern of providers or regions that matches no place in any stored offer:
    a rule that denies nothing, or allows nothing. None if the store cannot be read."""
    place_uses = policy.places
    if not place_uses:
        return []
    try:
        freshen(broker)
        offers = [series.offer for series in broker.store.market.series()]
    except StoreProblem:
        return []
    providers = {*NAMES, *broker.registries.providers, *(offer.provider for offer in offers)}
    regions = {offer.region for offer in offers} | {offer.location for offer in offers}
    warnings = []
    for kind, pattern, source in place_uses:
        known_names = providers if kind == "provider" else regions
        expression = re.compile(translate(pattern), re.IGNORECASE)
        if not any(expression.match(name) for name in known_names):
            warnings.append(f"{source}: no known {kind} matches {pattern!r}{did_you_mean(pattern, known_names)}")
    return warnings


def unknown_team_warnings(
    broker: Broker, policy: PolicySet, budgets: Sequence[BudgetSpec], team: str | None
) -> list[str]:
    """A warning if a job's team is neither in a role of a person nor in a scope of the policy, although others are;
    else nothing. ``budgets``: those that the job counts against. Where policies list teams, the rule of membership
    denies it."""
    if team is None or policy.teams or any(spec.teams for spec in budgets):
        return []
    with broker.store.access.reading() as reader:
        known_teams = {name for person in reader.people() for name in person.teams}
    known_teams |= {name for kind, name, _ in policy.uncertain_names if kind == "team"}
    if not known_teams or team in known_teams:
        return []
    return [f"warning: no person has a role in team {team!r}, and no policy names it{did_you_mean(team, known_teams)}"]


def _known_names(broker: Broker) -> Mapping[str, Set[str]]:
    """Every known name, by what it names. Known approvers: people on record, and those who submitted a job, applied a
    policy or gave a standing grant."""
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


def _is_known(kind: str, name: str, known_names: Set[str]) -> bool:
    return name in known_names or (kind in _PERSON_KINDS and has_account(name))


def has_account(user: str) -> bool:
    """Whether a user of that name has an account on this machine."""
    try:
        getpwnam(user)
    except (KeyError, ValueError):  # ValueError: not a possible account name
        return False
    return True
