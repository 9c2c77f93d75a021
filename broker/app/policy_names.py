"""Names in scopes of policy files that no job has ever used: misspelt, perhaps, and then the rule is about nobody."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from pwd import getpwnam

from broker.app.wiring import Broker
from broker.core.errors import StoreProblem, did_you_mean
from broker.core.policy import Source
from broker.core.ports import PolicySet


@dataclass(frozen=True, slots=True)
class Unseen:
    """A name that no job here has used. ``what`` it names: user, team, project or environment; ``meant``: the question
    after a name that is nearly the same, or nothing."""

    what: str
    name: str
    source: Source
    meant: str

    def __str__(self) -> str:
        begins = "no job here is by" if self.what == "user" else f"no job here has said {self.what}"
        return f"{self.source}: {begins} {self.name!r} so far{self.meant}"


def unseen(broker: Broker, policy: PolicySet) -> list[Unseen]:
    """What is named in scopes and nobody has heard of, in file order: no job of this store, no list of a team, and of
    users not this machine either. It may all be right. Nothing where no job has said anything of that kind yet, or the
    store cannot be read or is not there."""
    from broker.store.glance import is_missing

    named = policy.scoped_names
    if not named or is_missing(broker.settings.store_url):
        return []
    try:
        with broker.store.reading() as look:
            seen = look.names_in_jobs()
    except StoreProblem:
        return []
    return [
        Unseen(what, name, source, did_you_mean(name, seen[what]))
        for what, name, source in named
        if seen[what] and not _is_known(what, name, seen[what])
    ]


def _is_known(what: str, name: str, seen: Set[str]) -> bool:
    return name in seen or (what == "user" and _has_account(name))


def _has_account(user: str) -> bool:
    try:
        getpwnam(user)
    except (KeyError, ValueError):  # ValueError: what no account can be called
        return False
    return True
