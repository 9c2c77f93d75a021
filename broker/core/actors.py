"""Who acts: the person on whose behalf a use case runs, and the account under which a process runs jobs.

Both are created once, at the entry point (`broker.cli.identity` for the command line), and passed on as arguments. No
other code asks the operating system for the user, so that a server can act for several people at once.
"""

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address, IPv6Network, ip_address


class Role(StrEnum):
    """A role that permits more than everybody may do."""

    ADMINISTRATOR = "administrator"  # may change every job and grant as its owner may
    FINOPS = "finops"  # sees the costs of all teams, answers advice
    GATE = "gate"  # asks, on behalf of SkyPilot or Slurm, whether their users may launch


class EntryPoint(StrEnum):
    """The interface through which a person reached the broker."""

    COMMAND_LINE = "command_line"
    PYTHON = "python"
    API = "api"
    PAGE = "page"


@dataclass(frozen=True, slots=True)
class Actor:
    """The person who acts. ``identity``: the person's name in events, decisions and policies. ``teams``: the person may
    change the jobs of these teams as their owners may. ``address``: the network address that the request came from, and
    ``token``: the id of its API token or session; empty without one."""

    identity: str
    roles: frozenset[Role] = frozenset()
    origin: EntryPoint = EntryPoint.PYTHON
    teams: frozenset[str] = frozenset()
    address: str = ""
    token: str = ""

    @property
    def audit_origin(self) -> str:
        """The entry point and the address, as the audit log records them."""
        return f"{self.origin} {self.address}".rstrip()

    def may_act_for(self, owner: str, team: str | None = None) -> bool:
        """Whether the person may change what ``owner`` owns: as its owner, as an administrator, or, for a job of
        ``team``, as that team's administrator."""
        return self.identity == owner or Role.ADMINISTRATOR in self.roles or team in self.teams


@dataclass(frozen=True, slots=True)
class ProcessAccount:
    """The account under which this process starts the commands of jobs on this machine. Its environment holds the
    secrets of this user's jobs and of nobody else's.

    ``for_others``: whether jobs of other users may run here, under this account. True for a service, which is started
    for that purpose; false for a command that starts a background reconciler, so that a person who approves a job does
    not run its commands under their own account.
    """

    user: str
    for_others: bool = False


def network_of(address: str) -> str:
    """What limits by address count together: the address, or for IPv6 its /64, of which one host has every address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    return str(parsed.ipv4_mapped or IPv6Network((int(parsed), 64), strict=False))
