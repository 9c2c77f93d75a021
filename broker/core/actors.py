"""Who acts: the person on whose behalf a use case runs, and the account under which a process runs jobs.

Both are made once, at the edge (`broker.cli.identity` for the command line), and passed on as arguments. Nothing below
the edge asks the operating system, so that a server can act for several people at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a person may do beyond what everybody may."""

    ADMINISTRATOR = "administrator"  # acts on every job and grant as its owner does
    FINOPS = "finops"  # sees the money of all teams, changes nothing


class EntryPoint(StrEnum):
    """Through what a person reached the broker."""

    COMMAND_LINE = "command_line"
    PYTHON = "python"
    API = "api"
    PAGE = "page"


@dataclass(frozen=True, slots=True)
class Actor:
    """The person who acts. ``identity``: the name that events, decisions and policies know the person by. ``teams``:
    those whose jobs the person may change as their owners do."""

    identity: str
    roles: frozenset[Role] = frozenset()
    origin: EntryPoint = EntryPoint.PYTHON
    teams: frozenset[str] = frozenset()

    def may_act_for(self, owner: str, team: str | None = None) -> bool:
        """Whether the person may change what ``owner`` owns: the owner, every administrator, and of a job of ``team``
        that team's administrator."""
        return self.identity == owner or Role.ADMINISTRATOR in self.roles or team in self.teams


@dataclass(frozen=True, slots=True)
class ProcessAccount:
    """The account under which this process starts the commands of jobs on this machine. Its environment holds the
    secrets of this user's jobs and of nobody else's.

    ``for_others``: whether jobs of other users may run here, under this account. A service is started for that purpose.
    A command that starts a background reconciler is not: whoever approves a job does not run its commands as
    themselves.
    """

    user: str
    for_others: bool = False
