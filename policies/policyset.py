"""The active policies: `broker.core.ports.PolicySet` over bound rules. Pure and immutable."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import translate
from functools import cached_property
from typing import Any

from broker.core.documents import Document
from broker.core.errors import Problem
from broker.core.job.jobs import Job
from broker.core.policy.approvals import apply_grants
from broker.core.policy.policy import (
    Action,
    ActionKind,
    Answer,
    CaseResult,
    Facts,
    PolicyName,
    RentedHours,
    Source,
    SpotShare,
    Verdict,
)
from broker.core.ports import BudgetSpec, PolicyDefaults, Rule
from broker.ledger.budgets import in_scope, matches
from policies.bound_rule import OUT_OF_SCOPE
from policies.conditions import Condition, Variables
from policies.fields import PATTERN_SIGNS
from policies.references import accelerator_patterns, named_approvers, named_in_scopes, named_places, source_at
from policies.rules.always import BudgetRequired, Membership, Roster
from policies.rules.budget import Budget
from policies.rules.machines import CapacityTypes
from policies.rules.spot import Spot
from policies.scope import ApprovalConfig, Exempting, Scope, as_approval_request, restrict_to


@dataclass(frozen=True)
class ActivePolicies:
    """``version`` changes with the meaning of the files; ``rules`` are in file order, ``rosters`` list the teams. By
    rule name: ``conditions`` (``when:``) and ``asking`` (approval settings of guardrails with ``action: ask``);
    ``warning``: those with ``action: warn``.
    ``order_exceptions``: scopes with their own capacity order, and their places; ``said_at``: the place that sets each
    of the ``defaults``. ``documents``: the files as written; ``doubts``: warnings by file.
    """

    version: str
    defaults: PolicyDefaults
    rules: tuple[Rule, ...] = ()
    rosters: tuple[Roster, ...] = field(default=(), repr=False)
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    asking: Mapping[str, ApprovalConfig] = field(default_factory=dict)
    warning: frozenset[str] = frozenset()
    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    order_exceptions: tuple[tuple[Scope, tuple[str, ...], Source], ...] = ()
    said_at: Mapping[str, Source] = field(default_factory=dict)
    documents: tuple[Document, ...] = field(default=(), repr=False)
    doubts: tuple[tuple[str, Problem], ...] = field(default=(), repr=False)
    names_in_conditions: tuple[PolicyName, ...] = field(default=(), repr=False)

    @cached_property
    def every_rule(self) -> tuple[Rule, ...]:
        """The built-in rules, then those of the files."""
        specs = tuple(budget.spec for budget in self._budgets)
        return (Membership(self.rosters), BudgetRequired(specs, self.conditions), *self.rules)

    def budgets(self, job: Job, user: str) -> Sequence[BudgetSpec]:
        """The budgets that apply to a user's job, in file order; its share of those ``per`` user, team or project."""
        action = Action(ActionKind.LAUNCH, job, user)
        return [
            budget.spec.share(action.whose(budget.per))
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

    def is_spot_eligible(self, work: RentedHours) -> bool:
        """Whether such jobs could run on spot: by their own files, and no guardrail always forbids it."""
        return work.can_use_spot and not any(scope.counts(work) for scope in self._without_spot)

    @cached_property
    def _without_spot(self) -> list[Scope]:
        rules = [rule for rule in self.rules if isinstance(rule, Spot | CapacityTypes) and rule.forbids_spot]
        return [rule.scope for rule in rules if rule.name not in self.conditions and rule.name not in self.warning]

    def spot_shares(
        self, work: RentedHours, now: datetime, rented: Callable[[datetime], Iterable[RentedHours]]
    ) -> Mapping[str, SpotShare]:
        """By rule that demands a share of spot from such a job, the share so far."""
        rules = [item for item in self.rules if isinstance(item, Spot) and item.config.min_share is not None]
        return {
            rule.name: SpotShare.among(
                item
                for item in rented(rule.since(now))
                if item.simulated is work.simulated and rule.scope.counts(item) and self.is_spot_eligible(item)
            )
            for rule in rules
            if rule.scope.counts(work) and self.is_spot_eligible(work)
        }

    def capacity_order(self, job: Job) -> tuple[str, ...]:
        """The capacity types for a job, in order; the first matching exception in file order decides."""
        if not self.order_exceptions:
            return self.defaults.capacity_order
        action = Action(ActionKind.LAUNCH, job, user="")  # exceptions do not depend on users
        orders = (order for scope, order, _ in self.order_exceptions if scope.covers(action))
        return next(orders, self.defaults.capacity_order)

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        """Every rule's verdict: the built-in ones first, then in file order. All apply: the strictest decides. Granted
        approvals (`Facts.grants`) are not requested again. A running job cannot wait for an approval: a guardrail with
        ``action: ask`` stops it, unless an approver approved it.
        """
        verdicts = self._rule_verdicts(action, facts)
        if self._exempting:
            verdicts = [self._with_exception(verdict, action) for verdict in verdicts]
        if self.warning:
            verdicts = [self._as_warning(verdict) for verdict in verdicts]
        with_approvals = [self._as_question(verdict) for verdict in verdicts] if self.asking else verdicts
        if any(verdict.answer is Answer.ASK for verdict in with_approvals):
            with_approvals = [
                self._with_aspects(rule, verdict, action, facts)
                for rule, verdict in zip(self.every_rule, with_approvals, strict=True)
            ]
        if self._members and any(verdict.answer is Answer.ASK for verdict in with_approvals):
            with_approvals = [self._to_members(verdict) for verdict in with_approvals]
        results = apply_grants(with_approvals, action, facts.grants, facts.now)
        if not self.asking or action.kind is not ActionKind.CONTINUE:
            return results
        return [
            original if original.answer is Answer.DENY and result.answer is Answer.ASK else result
            for original, result in zip(verdicts, results, strict=True)
        ]

    def _as_warning(self, verdict: Verdict) -> Verdict:
        """Allow what a rule with ``action: warn`` would deny or ask for, and keep its message as a warning."""
        if verdict.answer is Answer.ALLOW or verdict.name not in self.warning:
            return verdict
        effect = "ask first" if verdict.answer is Answer.ASK else "deny"
        return replace(
            verdict, answer=Answer.ALLOW, warns=True, message=f"only warns, would {effect}: {verdict.message}"
        )

    def warns(self, rule: str) -> bool:
        """Whether the named rule only warns."""
        return rule in self.warning

    def _as_question(self, verdict: Verdict) -> Verdict:
        approval = self.asking.get(verdict.name) if verdict.answer is Answer.DENY else None
        return as_approval_request(verdict, approval) if approval else verdict

    def _with_aspects(self, rule: Rule, verdict: Verdict, action: Action, facts: Facts) -> Verdict:
        """Add the aspects that an approval covers: those the rule and its condition read."""
        if verdict.answer is not Answer.ASK:
            return verdict
        condition = self.conditions.get(rule.name)
        condition_facts = condition.looks_at(action) if condition else ()
        facts_by_aspect = {(fact.aspect, fact.of): fact for fact in (*rule.looks_at(action, facts), *condition_facts)}
        return replace(verdict, looked_at=tuple(facts_by_aspect.values()))

    def _with_exception(self, verdict: Verdict, action: Action) -> Verdict:
        """State that a verdict does not apply because the job is excepted, and where."""
        scope = self._exempting.get(verdict.name)
        place = scope.exempts(action) if scope and verdict.code == OUT_OF_SCOPE else None
        return replace(verdict, message=f"does not apply: excepted ({place})") if place else verdict

    def _to_members(self, verdict: Verdict) -> Verdict:
        """Once files list people, only they can approve, whatever a pattern matches."""
        if verdict.answer is not Answer.ASK:
            return verdict
        return replace(verdict, approvers=restrict_to(verdict.approvers, self._members))

    def _rule_verdicts(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        if not self.conditions:
            return [rule.judge(action, facts) for rule in self.every_rule]
        values = Variables(action, facts, self._groups)
        return [
            rule.judge(action, facts) if condition is None else condition.judge(rule, action, facts, values)
            for rule, condition in self._with_conditions
        ]

    def try_cases(self, file: str, text: str) -> Sequence[CaseResult]:
        """Judge every case of a file of policy cases. Raises `InvalidInput` with every problem of the file."""
        from policies.cases import judge_cases  # needs the job-file parser

        return judge_cases(self, file, text)

    @property
    def teams(self) -> frozenset[str]:
        """The listed teams; empty if any team name is accepted."""
        return frozenset(roster.team for roster in self.rosters)

    def members(self, team: str) -> tuple[str, ...]:
        """The members of a team that the files name, without patterns, in file order."""
        names = (name for roster in self.rosters if roster.team == team for name in roster.members)
        return tuple(dict.fromkeys(name for name in names if not PATTERN_SIGNS.intersection(name)))

    @property
    def names(self) -> Sequence[PolicyName]:
        """See `broker.core.ports.PolicySet.names`."""
        members = self._members
        people = [
            (document, path, kind, re.escape(name), name)
            for document in self.documents
            for path, kind, name in (
                *named_in_scopes(document),
                *((path, "approver", name) for path, name in named_approvers(document)),
            )
            if not PATTERN_SIGNS.intersection(name)
            and not (kind in ("team", "approver") and self.rosters)  # checked at loading
            and not (kind == "user" and members and matches(members, name))
        ]
        people_patterns = [
            (document, path, kind, translate(name), name)
            for document in self.documents
            for path, kind, name in named_in_scopes(document)
            if PATTERN_SIGNS.intersection(name)
            and ((kind == "team" and self.rosters) or (kind == "user" and members))
            and not (kind == "user" and restrict_to([name], members))
        ]
        patterns = [
            (document, path, kind, f"(?i:{translate(name)})", name)
            for document in self.documents
            for path, kind, name in (*named_places(document), *accelerator_patterns(document))
        ]
        return [
            *(
                PolicyName(kind, name, source_at(document, path), re.compile(expression))
                for document, path, kind, expression, name in (*people, *people_patterns, *patterns)
            ),
            *self.names_in_conditions,
        ]

    @property
    def warnings(self) -> Sequence[str]:
        """Possible mistakes in the files: conditions on optional fields, unclear working days, sole approvers."""
        doubts = [f"{Source(file, doubt.line, doubt.column)}: {doubt.message}" for file, doubt in sorted(self.doubts)]
        return [*doubts, *self._sole_approvers()]

    def _sole_approvers(self) -> Iterator[str]:
        """A warning for each rule with one approver, whose own requests nobody can approve."""
        for rule in self.rules:
            first, *others = self.approvers(rule.name) or ("*",)
            if not (others or PATTERN_SIGNS.intersection(first) or self.own_requests(rule.name)):
                yield (
                    f"{rule.source}: {first} is the only approver of {rule.name!r}, so nobody can approve {first}'s "
                    "own requests; add another approver, or `own_requests: true`"
                )

    def when(self, rule: str) -> str:
        """The condition of the named rule as written; empty without one."""
        condition = self.conditions.get(rule)
        return condition.text if condition else ""

    def written(self, rule: str) -> Mapping[str, Any]:
        """The named budget or guardrail as written in its file; empty for built-in rules."""
        return self.entries.get(rule, {})

    def approvers(self, rule: str) -> tuple[str, ...]:
        """The approvers of the named rule, as names or patterns; empty if it requires no approval. Once files list
        teams, a pattern matches only their members.
        """
        approval = self._approvals.get(rule)
        return restrict_to(approval.approvers, self._members) if approval else ()

    def own_requests(self, rule: str) -> bool:
        """Whether the approvers of the named rule may approve their own requests."""
        return rule in self._approvals and self._approvals[rule].own_requests

    @property
    def needs_usage(self) -> bool:
        """Whether some rule needs the utilization of a running job's accelerators."""
        return any(getattr(rule, "needs_usage", False) for rule in self.rules)

    @property
    def needs_anomalies(self) -> bool:
        """Whether some rule needs a running job's part in anomalies of spending."""
        return any(getattr(rule, "needs_anomalies", False) for rule in self.rules)

    @property
    def needs_holdings(self) -> bool:
        """Whether some rule needs the capacity on record as held."""
        return any(getattr(rule, "needs_holdings", False) for rule in self.rules)

    @property
    def counts_live(self) -> bool:
        """Whether some rule counts running attempts."""
        return any(getattr(rule, "counts_live", False) for rule in self.rules)

    @cached_property
    def asks(self) -> bool:
        """Whether some rule requires an approval."""
        return bool(self._approvals)

    @cached_property
    def _approvals(self) -> Mapping[str, ApprovalConfig]:
        """By rule name, for guardrails with `action: ask` and rules that always require an approval."""
        configs: Iterable[tuple[str, Any]] = ((rule.name, getattr(rule, "config", None)) for rule in self.rules)
        return {name: config for name, config in configs if getattr(config, "approvers", ())} | {**self.asking}

    @cached_property
    def _exempting(self) -> Mapping[str, Exempting]:
        """Scopes with exceptions, by rule name."""
        scopes = {rule.name: getattr(rule, "scope", None) for rule in self.rules}
        return {name: scope for name, scope in scopes.items() if isinstance(scope, Exempting)}

    @cached_property
    def _members(self) -> tuple[str, ...]:
        """Every member of a team, as names or patterns."""
        return tuple(name for roster in self.rosters for name in roster.members)

    @cached_property
    def _with_conditions(self) -> tuple[tuple[Rule, Condition | None], ...]:
        return tuple((rule, self.conditions.get(rule.name)) for rule in self.every_rule)

    @cached_property
    def _groups(self) -> frozenset[str]:
        """The groups of variables that conditions use; others are not computed."""
        return frozenset(group for condition in self.conditions.values() for group in condition.groups)

    @cached_property
    def _budgets(self) -> tuple[Budget, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Budget))
