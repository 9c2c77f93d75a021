"""Rules that are always active: whose jobs may name a team, and that money needs a budget."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import ClassVar

from broker.core.errors import closest, unknown_team_text
from broker.core.market.offers import MoneyKind
from broker.core.policy.facts import Fact
from broker.core.policy.policy import Action, ActionKind, Facts, Source, Verdict
from broker.core.ports import BudgetSpec
from broker.core.values.money import Money
from broker.ledger.budgets import in_scope, matches
from policies.bound_rule import allow, deny
from policies.conditions import Condition, Variables

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
            return allow(self, "no_claim", "the job names no team" if team is None else "no policy lists teams")
        rosters = [roster for roster in self.rosters if roster.team == team]
        if not rosters:
            return self._unknown(team, user)
        for roster in rosters:
            if not matches(roster.members, user):
                own_teams = ", ".join(
                    dict.fromkeys(
                        other_roster.team for other_roster in self.rosters if self._lists(other_roster.team, user)
                    )
                )
                message = f"{user} is not a member of team {team}"
                message += (
                    f" but of {own_teams}: name that, or ask to be added"
                    if own_teams
                    else f"; its file has to name {user}"
                )
                verdict = deny(self, "not_a_member", message, team=team, user=user, listed_in=roster.source)
                return replace(verdict, source=roster.source)
        return replace(allow(self, "member", f"{user} is a member of team {team}"), source=rosters[0].source)

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return ()  # no approval involved

    def _lists(self, team: str, user: str) -> bool:
        """Whether every file that lists the team lists the user in it."""
        return all(matches(roster.members, user) for roster in self.rosters if roster.team == team)

    def _unknown(self, team: str, user: str) -> Verdict:
        """The place of the probably meant team, or of the first listed one."""
        sources = {roster.team: roster.source for roster in reversed(self.rosters)}
        message = unknown_team_text(team, sources)
        place = sources.get(closest(team, sources) or "", self.rosters[0].source)
        return replace(deny(self, "unknown_team", message, team=team, user=user), source=place)


@dataclass(frozen=True, eq=False)
class BudgetRequired:
    """Denies capacity that a provider bills unless a policy grants the job a cash budget.

    Owned, prepaid and sandbox capacity passes. Running jobs continue within their holds.
    """

    kind: ClassVar[str] = "budget_required"

    budgets: tuple[BudgetSpec, ...]
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    name: str = "budget-required"
    source: Source = BUILT_IN

    def judge(self, action: Action, facts: Facts) -> Verdict:
        requested = (action.hold or {}).get(MoneyKind.CASH, Money.ZERO)
        costs_cash = action.placement is not None and action.placement.money is MoneyKind.CASH
        if requested <= Money.ZERO and (not costs_cash or action.kind is ActionKind.CONTINUE):
            return allow(self, "no_cash", "costs no cash")
        job = action.job
        budget_id = self._granted(action.user, job.team, job.project, job.workload, job.environment)
        if budget_id is None and self._conditional:
            budget_id = self._by_condition(action, facts)
        if budget_id is not None:
            return allow(self, "budget_granted", f"budget {budget_id} grants cash")
        claims = ", ".join(
            f"{word} {name}"
            for word, name in (("team", job.team), ("project", job.project), ("environment", job.environment))
            if name
        )
        return deny(
            self,
            "no_budget",
            f"{f'{requested} in cash' if requested else 'capacity that costs cash'} is requested, and no policy "
            f"grants {action.user}{f' ({claims})' if claims else ''} a cash budget for {job.workload} jobs"
            f"{f'; a budget with {requested} left would allow it' if requested else ''}",
            asked=requested,
            user=action.user,
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return ()  # no approval involved

    @cached_property
    def _granted(self) -> Callable[[str, str | None, str | None, str, str | None], str | None]:
        """The first cash budget of a job, cached: a plan judges every placement."""
        return lru_cache(maxsize=1024)(self._first_budget)

    def _first_budget(
        self, user: str, team: str | None, project: str | None, workload: str, environment: str | None
    ) -> str | None:
        for budget in self.budgets:
            if (
                budget.id not in self.conditions
                and MoneyKind.CASH in budget.counts
                and in_scope(budget, user=user, team=team, project=project, workload=workload, environment=environment)
            ):
                return budget.id
        return None

    @cached_property
    def _conditional(self) -> tuple[BudgetSpec, ...]:
        return tuple(b for b in self.budgets if b.id in self.conditions and MoneyKind.CASH in b.counts)

    def _by_condition(self, action: Action, facts: Facts) -> str | None:
        """The first cash budget whose condition is met."""
        job = action.job
        for budget in self._conditional:
            condition = self.conditions[budget.id]
            applies = in_scope(
                budget,
                user=action.user,
                team=job.team,
                project=job.project,
                workload=job.workload,
                environment=job.environment,
            )
            if applies and condition.holds(Variables(action, facts, condition.groups)):
                return budget.id
        return None
