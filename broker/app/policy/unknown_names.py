"""Names in policy files that nobody here has heard of: misspelt, perhaps, so that a rule is about or asks nobody."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pwd import getpwnam

from broker.app.wiring import Broker
from broker.core.errors import StoreProblem, did_you_mean
from broker.core.policy.policy import Source
from broker.core.ports import PolicySet

_PEOPLE = ("user", "approver")


@dataclass(frozen=True, slots=True)
class Unseen:
    """A name that is not known here. ``what`` it names: user, team, project, environment or approver; ``meant``: the
    question after a name that is nearly the same, or nothing."""

    what: str
    name: str
    source: Source
    meant: str

    def __str__(self) -> str:
        if self.what == "approver":
            why = "has no account on this machine, and has done nothing here so far"
            return f"{self.source}: perhaps nobody can approve: {self.name!r} {why}{self.meant}"
        begins = "no job here is by" if self.what == "user" else f"no job here has said {self.what}"
        return f"{self.source}: {begins} {self.name!r} so far{self.meant}"


def unseen(broker: Broker, policy: PolicySet) -> list[Unseen]:
    """What is named in scopes, or as an approver, and nobody has heard of, in file order: no job of this store, no list
    of a team, and of people not this machine either. It may all be right. Of scopes, nothing where no job has said
    anything of that kind yet; of either, nothing of the store where it cannot be read or is not there."""
    named = policy.uncertain_names
    seen = _seen(broker) if named else {}
    return [
        Unseen(what, name, source, did_you_mean(name, seen.get(what, ())))
        for what, name, source in named
        if (seen.get(what) or what == "approver") and not _is_known(what, name, seen.get(what, frozenset()))
    ]


def _seen(broker: Broker) -> Mapping[str, Set[str]]:
    """Every name that is known here, by what it names; people who may approve are those who have done anything."""
    from broker.store.quick_queries import is_missing

    if is_missing(broker.settings.store_url):
        return {}
    try:
        with broker.store.reading() as look:
            names, active, grants = look.names_in_jobs(), look.active_policy(), look.standing_grants()
    except StoreProblem:
        return {}
    others = {grant.by for grant in grants} | ({active.by} if active else set())
    return {**names, "approver": names["user"] | others}


def _is_known(what: str, name: str, seen: Set[str]) -> bool:
    return name in seen or (what in _PEOPLE and has_account(name))


def has_account(user: str) -> bool:
    """Whether this machine knows a user of that name."""
    try:
        getpwnam(user)
    except (KeyError, ValueError):  # ValueError: what no account can be called
        return False
    return True
