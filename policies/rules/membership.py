"""Checks team membership. Built in and always active."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from broker.core.errors import closest, did_you_mean
from broker.core.policy.facts import Fact
from broker.core.policy.policy import Action, Facts, Source, Verdict
from broker.ledger.budgets import matches
from policies.bound_rule import allow, deny

BUILT_IN = Source("built-in", 0)


@dataclass(frozen=True)
class Roster:
    """The members of a team (names or patterns) in one file."""

    team: str
    members: tuple[str, ...]
    source: Source


@dataclass(frozen=True, eq=False)
class Membership:
    """``team:`` in a job file is a claim: denied unless every file that lists the team lists the user.

    Once any file lists teams, unlisted teams have no members. Without lists, every claim is accepted.
    """

    kind: ClassVar[str] = "membership"

    rosters: tuple[Roster, ...]
    name: str = "membership"
    source: Source = BUILT_IN  # verdicts name the deciding list

    def judge(self, action: Action, facts: Facts) -> Verdict:
        team, user = action.job.team, action.user
        if team is None or not self.rosters:
            return allow(self, "no_claim", "the job claims no team" if team is None else "no policy lists teams")
        rosters = [roster for roster in self.rosters if roster.team == team]
        if not rosters:
            return self._unknown(team, user)
        for roster in rosters:
            if not matches(roster.members, user):
                mine = ", ".join(dict.fromkeys(one.team for one in self.rosters if self._lists(one.team, user)))
                message = f"{user} is not a member of team {team}"
                message += f"; of {mine}: name that, or be added" if mine else f"; its file has to name {user}"
                said = deny(self, "not_a_member", message, team=team, user=user, listed_in=roster.source)
                return replace(said, source=roster.source)
        return replace(allow(self, "member", f"{user} is a member of team {team}"), source=rosters[0].source)

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return ()  # no approval involved

    def _lists(self, team: str, user: str) -> bool:
        """Whether every file that lists the team lists the user in it."""
        return all(matches(roster.members, user) for roster in self.rosters if roster.team == team)

    def _unknown(self, team: str, user: str) -> Verdict:
        """The place of the probably meant team, or of the first listed one."""
        listed = {roster.team: roster.source for roster in reversed(self.rosters)}
        message = f"no policy lists a team {team!r}{did_you_mean(team, listed)}"
        place = listed.get(closest(team, listed) or "", self.rosters[0].source)
        return replace(deny(self, "unknown_team", message, team=team, user=user), source=place)
