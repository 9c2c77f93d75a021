"""Policies on trial as results: recorded decisions, test cases, and the replay of decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from broker.app.policy.policies import Tried
from broker.app.policy.replay import DecisionTotals, PolicyReplay, ReplayedDecision
from broker.app.policy.replayed_job import ReplayBasis
from broker.app.results.values import Facts, Moment, Result
from broker.app.results.verdicts import VerdictResult
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, Answer, CaseResult
from broker.core.values.money import Money


class RecordedDecision(Result):
    """A decision on record. ``facts_hash``: SHA-256 of everything that the rules saw; ``seen``: what of it is kept."""

    at: Moment
    action: ActionKind
    answer: Answer
    attempt: int | None
    pool: str | None
    policy_version: str
    facts_hash: str
    verdicts: list[VerdictResult]
    seen: Facts


class RecordedDecisions(Result):
    """The recorded decisions about a job, oldest first."""

    decisions: list[RecordedDecision]

    @classmethod
    def of(cls, decisions: Sequence[Decision]) -> Self:
        return cls(decisions=[RecordedDecision.from_parts(one) for one in decisions])


class TriedCase(Result):
    """A test case. ``wrong``: the difference from the expected verdict; empty if it passed."""

    name: str
    source: str
    passed: bool
    expected: Answer
    answer: Answer
    wrong: str
    verdicts: list[VerdictResult]

    @classmethod
    def of(cls, result: CaseResult) -> Self:
        return cls.from_parts(result, source=str(result.source), passed=not result.wrong)


class PolicyTestResult(Result):
    """The test cases of policy files."""

    passed: int
    failed: int
    cases: list[TriedCase]

    @classmethod
    def of(cls, files: Sequence[Tried]) -> Self:
        cases = [TriedCase.of(result) for one in files for result in one.results]
        return cls(passed=sum(one.passed for one in cases), failed=sum(not one.passed for one in cases), cases=cases)


class DecisionDifference(Result):
    """A decision that these policies would change. ``after``: null where it would not be made, because the job was
    denied earlier. Costs in USD; ``cost_after_by``: how the new cost is known."""

    at: Moment
    job_id: str | None
    job_name: str
    user: str
    action: ActionKind
    before: Answer
    after: Answer | None
    pool_before: str | None
    pool_after: str | None
    money: MoneyKind
    cost_before: Money
    cost_after: Money
    money_after: MoneyKind
    cost_after_by: ReplayBasis
    late_before: bool
    late_after: bool
    objections: list[VerdictResult]

    @classmethod
    def of(cls, one: ReplayedDecision) -> Self:
        return cls.from_parts(
            one.decision,
            one,
            before=one.decision.answer,
            after=one.answer,
            pool_before=one.decision.pool,
            pool_after=one.pool,
            cost_after_by=one.basis,
            objections=[VerdictResult.of(v) for v in one.verdicts if v.answer is not Answer.ALLOW or v.warns],
        )


class JudgedDecisions(Result):
    """Recorded decisions judged again. ``unknown``: decisions whose facts were not recorded; ``not_placed``:
    submissions judged by the places that the recorded plan named alone; ``warned``: those that rules are against which
    only warn."""

    decisions: int
    same: int
    unknown: int
    not_placed: int
    before: DecisionTotals
    after: DecisionTotals
    differences: list[DecisionDifference]
    warned: list[DecisionDifference]

    @classmethod
    def of(cls, found: PolicyReplay) -> Self:
        return cls.from_parts(found, decisions=len(found.outcomes), same=len(found.outcomes) - len(found.differences))
