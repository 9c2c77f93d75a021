"""The policies in force: `broker.core.ports.PolicySet` over bound rules. Pure and immutable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from broker.core.documents import Document
from broker.core.errors import Problem
from broker.core.job.jobs import Job
from broker.core.policy.approvals import with_grants
from broker.core.policy.policy import Action, ActionKind, Answer, CaseResult, Facts, Source, Verdict
from broker.core.ports import BudgetSpec, PolicyDefaults, Rule
from broker.ledger.budgets import in_scope, matches
from policies.approval_config import Asking, among, asks_instead
from policies.conditions import Condition, Variables
from policies.references import PATTERN_SIGNS, at, entries, named_approvers, named_in_scopes
from policies.rules.budget import Budget
from policies.rules.budget_required import BudgetRequired
from policies.rules.membership import Membership, Roster
from policies.scope import Exempting, Scope
from policies.verdicts import OUT_OF_SCOPE


@dataclass(frozen=True)
class ActivePolicies:
    """``version`` changes when anything is said differently; ``rules`` are in file order, ``rosters`` the teams;
    ``conditions``: what stands after ``when:``, by the name of its rule; ``asking``: whom a guardrail asks instead of
    denying, by its name; ``order_exceptions``: whose capacity has an order of its own, and where that stands;
    ``said_at``: where the file says it that decides each of the ``defaults``. ``documents``: the files as they are
    written; ``doubts``: what in which file may not be meant."""

    version: str
    defaults: PolicyDefaults
    rules: tuple[Rule, ...] = ()
    rosters: tuple[Roster, ...] = field(default=(), repr=False)
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    asking: Mapping[str, Asking] = field(default_factory=dict)
    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    order_exceptions: tuple[tuple[Scope, tuple[str, ...], Source], ...] = ()
    said_at: Mapping[str, Source] = field(default_factory=dict)
    documents: tuple[Document, ...] = field(default=(), repr=False)
    doubts: tuple[tuple[str, Problem], ...] = field(default=(), repr=False)

    @cached_property
    def every_rule(self) -> tuple[Rule, ...]:
        """The built-in rules, then those of the files."""
        specs = tuple(budget.spec for budget in self._budgets)
        return (Membership(self.rosters), BudgetRequired(specs, self.conditions), *self.rules)

    def budgets(self, job: Job, user: str) -> Sequence[BudgetSpec]:
        """The budgets that a job of that user falls under, in file order."""
        return [
            budget.spec
            for budget in self._budgets
            if in_scope(
                budget.spec,
                user=user,
                team=job.team,
                project=job.project,
                workload=job.workload,
                environment=job.environment,
            )
        ]

    def capacity_order(self, job: Job) -> tuple[str, ...]:
        """Which capacity types come first for a job; of several exceptions the first in file order."""
        if not self.order_exceptions:
            return self.defaults.capacity_order
        action = Action(ActionKind.LAUNCH, job, user="")  # no exception is about users
        mine = (order for scope, order, _ in self.order_exceptions if scope.covers(action))
        return next(mine, self.defaults.capacity_order)

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        """Every rule's verdict: the built-in ones first, then in file order. All apply: the strictest decides. What was
        approved (`Facts.grants`) is not asked again. What runs cannot be asked about first: it is stopped by a
        guardrail that asks, too, unless it was approved."""
        said = self._said(action, facts)
        if self._exempting:
            said = [self._with_exception(verdict, action) for verdict in said]
        asked = [self._as_question(verdict) for verdict in said] if self.asking else said
        if any(verdict.answer is Answer.ASK for verdict in asked):
            asked = [
                self._with_what_it_looked_at(rule, verdict, action, facts)
                for rule, verdict in zip(self.every_rule, asked, strict=True)
            ]
        if self._members and any(verdict.answer is Answer.ASK for verdict in asked):
            asked = [self._to_members(verdict) for verdict in asked]
        judged = with_grants(asked, action, facts.grants, facts.now)
        if not self.asking or action.kind is not ActionKind.CONTINUE:
            return judged
        return [
            was if was.answer is Answer.DENY and now.answer is Answer.ASK else now
            for was, now in zip(said, judged, strict=True)
        ]

    def _as_question(self, verdict: Verdict) -> Verdict:
        asking = self.asking.get(verdict.name) if verdict.answer is Answer.DENY else None
        return asks_instead(verdict, asking) if asking else verdict

    def _with_what_it_looked_at(self, rule: Rule, verdict: Verdict, action: Action, facts: Facts) -> Verdict:
        """A question with what a yes covers: what the rule and its condition look at."""
        if verdict.answer is not Answer.ASK:
            return verdict
        condition = self.conditions.get(rule.name)
        also = condition.looks_at(action) if condition else ()
        looked_at = {(fact.aspect, fact.of): fact for fact in (*rule.looks_at(action, facts), *also)}
        return replace(verdict, looked_at=tuple(looked_at.values()))

    def _with_exception(self, verdict: Verdict, action: Action) -> Verdict:
        """Of what is not about a job because it is excepted, where that is said."""
        scope = self._exempting.get(verdict.name)
        at = scope.exempts(action) if scope and verdict.code == OUT_OF_SCOPE else None
        return replace(verdict, message=f"does not apply: excepted ({at})") if at else verdict

    def _to_members(self, verdict: Verdict) -> Verdict:
        """Once files list people, only they can approve, whomever else a pattern matches."""
        if verdict.answer is not Answer.ASK:
            return verdict
        return replace(verdict, approvers=among(verdict.approvers, self._members))

    def _said(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        if not self.conditions:
            return [rule.judge(action, facts) for rule in self.every_rule]
        seen = Variables(action, facts, self._groups)
        return [
            rule.judge(action, facts) if condition is None else condition.judge(rule, action, facts, seen)
            for rule, condition in self._with_conditions
        ]

    def try_cases(self, file: str, text: str) -> Sequence[CaseResult]:
        """What is said to every case of a file of policy cases. Raises `InvalidInput` with every mistake in it."""
        from policies.cases import judge_cases  # needs the reader of job files

        return judge_cases(self, file, text)

    @property
    def teams(self) -> frozenset[str]:
        """The teams that files list; where there are none, any name may be one."""
        return frozenset(roster.team for roster in self.rosters)

    @property
    def uncertain_names(self) -> Sequence[tuple[str, str, Source]]:
        """Names in scopes and of approvers, as they are written, that no file lists; no patterns."""
        members = self._members
        return [
            (what, name, at(document, path))
            for document in self.documents
            for path, what, name in (
                *named_in_scopes(document),
                *((path, "approver", name) for path, name in named_approvers(document)),
            )
            if what != "workload"
            and not PATTERN_SIGNS.intersection(name)
            and not (what in ("team", "approver") and self.rosters)  # known when they were loaded
            and not (what == "user" and members and matches(members, name))
        ]

    @property
    def warnings(self) -> Sequence[str]:
        """What may not be meant: guardrails about the same jobs that allow nothing together (of those that are always
        in force for all in their scope, and ask nobody), rules of one file that are about some of the same jobs, and
        conditions on what may be absent."""
        from policies.contradictions import dead_ends, nobodys, too_short  # only checking and applying ask
        from policies.overlaps import overlaps

        sometimes = {*self.conditions, *self.asking, *self._exempting}
        always = [one for one in self.rules if one.name not in sometimes]
        rules = {rule.name: rule for rule in self.rules}
        located = [*self.doubts, *((one.file, found) for one in self.documents for found in overlaps(one, rules))]
        told = (f"{Source(file, one.line, one.column)}: {one.message}" for file, one in sorted(located))
        entry_at = {e["name"]: (one, path) for one in self.documents for path, e in entries(one)}
        written = {one.file: one for one in self.documents}

        def rule_at(rule: Rule) -> Source:
            document, path = entry_at[rule.name]
            return at(document, (*path, rule.kind))

        def roster_at(roster: Roster) -> Source:
            return at(written[roster.source.file], ("teams", roster.team, "members"))

        empty = [f"{rule_at(one.rules[0])}: {one.told(rule_at, of=0)}" for one in dead_ends(always)]
        default = self.said_at.get("max_duration")
        short = too_short(always, self.defaults.max_duration, default, rule_at) if default else ()
        return [*empty, *short, *nobodys(self.rosters, roster_at), *told]

    def when(self, rule: str) -> str:
        """The condition of the rule of that name, as it is written; empty without one."""
        condition = self.conditions.get(rule)
        return condition.text if condition else ""

    def written(self, rule: str) -> Mapping[str, Any]:
        """The budget or guardrail of that name as it stands in its file; empty for what no file says."""
        return self.entries.get(rule, {})

    def approvers(self, rule: str) -> tuple[str, ...]:
        """Whom the rule of that name asks, names or patterns; nobody where it does not ask. Of those whom a pattern
        matches, only members of teams, once files list any."""
        return among(self._approvers.get(rule, ()), self._members)

    @property
    def needs_usage(self) -> bool:
        """Whether some rule must know what the accelerators of a running job do."""
        return any(getattr(rule, "needs_usage", False) for rule in self.rules)

    @property
    def counts_live(self) -> bool:
        """Whether some rule counts what runs."""
        return any(getattr(rule, "counts_live", False) for rule in self.rules)

    @cached_property
    def asks(self) -> bool:
        """Whether some rule asks somebody first."""
        return bool(self._approvers)

    @cached_property
    def _approvers(self) -> Mapping[str, tuple[str, ...]]:
        """By rule: of guardrails with `action: ask`, and of rules that ask by themselves."""
        own = {rule.name: getattr(getattr(rule, "config", None), "approvers", ()) for rule in self.rules}
        return {name: who for name, who in own.items() if who} | {n: a.approvers for n, a in self.asking.items()}

    @cached_property
    def _exempting(self) -> Mapping[str, Exempting]:
        """The scopes with exceptions, by the name of their rule."""
        scopes = {rule.name: getattr(rule, "scope", None) for rule in self.rules}
        return {name: scope for name, scope in scopes.items() if isinstance(scope, Exempting)}

    @cached_property
    def _members(self) -> tuple[str, ...]:
        """Everybody whom some team lists, names or patterns."""
        return tuple(name for roster in self.rosters for name in roster.members)

    @cached_property
    def _with_conditions(self) -> tuple[tuple[Rule, Condition | None], ...]:
        return tuple((rule, self.conditions.get(rule.name)) for rule in self.every_rule)

    @cached_property
    def _groups(self) -> frozenset[str]:
        """The groups of variables that some condition asks about; the others need not be made."""
        return frozenset(group for condition in self.conditions.values() for group in condition.groups)

    @cached_property
    def _budgets(self) -> tuple[Budget, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Budget))
