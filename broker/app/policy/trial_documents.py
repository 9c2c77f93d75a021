"""Policy previews, tests and replays as results: recorded decisions, test cases, replayed decisions, and the effects of
a change."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Self

from broker.app.billing.budget_documents import BudgetLine, BudgetScope, MoneyByKind
from broker.app.documents import Facts, Moment, Result, VerdictResult
from broker.app.policy.policies import difference, load_policy
from broker.app.policy.rehearsal import AffectedJob, Effect, RehearsalResult, rehearse
from broker.app.policy.replay import DecisionTotals, PolicyReplay, ReplayedDecision, replay_decisions
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import Decision, inputs_of
from broker.core.policy.policy import ActionKind, Answer, CaseResult
from broker.core.values.money import Money


class RecordedDecision(Result):
    """A decision on record. ``job_id``: null for a refused submission; ``money``: to be held, in USD, null where none
    was requested; ``facts_hash``: SHA-256 of everything that the rules saw; ``seen``: what of it is kept; empty in the
    list of all jobs."""

    at: Moment
    user: str
    job_id: str | None
    job_name: str
    team: str | None
    money: MoneyByKind | None
    action: ActionKind
    answer: Answer
    attempt: int | None
    pool: str | None
    policy_version: str
    facts_hash: str
    verdicts: list[VerdictResult]
    seen: Facts

    @classmethod
    def of(cls, decision: Decision) -> Self:
        try:
            inputs = inputs_of(decision)
        except ValueError:  # altered, or of another version; `doctor --rebuild` says which
            inputs = None
        action = None if inputs is None else inputs.action
        hold = MoneyByKind.of(action.hold) if action is not None and action.hold else None
        return cls.from_parts(decision, team=action.job.team if action else None, money=hold)


class RecordedDecisions(Result):
    """Recorded decisions: of one job, oldest first; of all jobs, newest first."""

    decisions: list[RecordedDecision]


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
    def of(cls, results: Sequence[CaseResult]) -> Self:
        cases = [TriedCase.of(result) for result in results]
        return cls(
            passed=sum(item.passed for item in cases), failed=sum(not item.passed for item in cases), cases=cases
        )


class DecisionDifference(Result):
    """A decision that these policies would change. ``after``: null where it would not be made, because the job was
    denied earlier. Costs in USD; the new one of a job that was refused or elsewhere is the expected one."""

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
    objections: list[VerdictResult]

    @classmethod
    def of(cls, replayed: ReplayedDecision) -> Self:
        return cls.from_parts(
            replayed.decision,
            replayed,
            before=replayed.decision.answer,
            after=replayed.answer,
            pool_before=replayed.decision.pool,
            pool_after=replayed.pool,
            objections=[VerdictResult.of(v) for v in replayed.verdicts if v.answer is not Answer.ALLOW or v.warns],
        )


class JudgedDecisions(Result):
    """Recorded decisions judged again. ``unknown``: decisions whose facts were not recorded; ``warned``: those that
    rules are against which only warn."""

    decisions: int
    same: int
    unknown: int
    before: DecisionTotals
    after: DecisionTotals
    differences: list[DecisionDifference]
    warned: list[DecisionDifference]

    @classmethod
    def of(cls, policy_replay: PolicyReplay) -> Self:
        return cls.from_parts(
            policy_replay,
            decisions=len(policy_replay.outcomes),
            same=len(policy_replay.outcomes) - len(policy_replay.differences),
        )


class BudgetTermsResult(Result):
    """The terms and the state of a budget. Amounts in USD; ``left`` may be negative."""

    amount: Money
    period: str
    timezone: str
    counts: list[str]
    action: str
    scope: BudgetScope
    spent: Money
    held: Money
    left: Money
    source: str

    @classmethod
    def of(cls, line: BudgetLine) -> Self:
        spec = line.spec
        sources = (spec, line.use, line)
        return cls.from_parts(
            *sources, amount=line.limit, counts=sorted(spec.counts), scope=spec, source=str(line.source)
        )


class BudgetChangeResult(Result):
    """A budget that is new (``before`` is null), gone (``after`` is null) or changed."""

    name: str
    before: BudgetTermsResult | None
    after: BudgetTermsResult | None


class PastChanges(Result):
    """The decisions from ``since`` to ``until``, judged again."""

    since: Moment
    until: Moment
    decisions: JudgedDecisions


class PolicyPreviewResult(Result):
    """The effects of policy files if they were applied now. ``active_version``: of those in force, 0 without any;
    ``looked_at``: how many open jobs were, and ``left_out`` how many that wait were not."""

    active_version: int
    changed: bool
    difference: str
    jobs: list[AffectedJob]
    budgets: list[BudgetChangeResult]
    looked_at: int
    left_out: int
    past: PastChanges


_REPLAY_PERIOD = timedelta(days=30)  # recorded decisions that are judged again


PREVIEW_STEPS = ("Jobs under these files", "Jobs under the policies in force", "Decisions of the last 30 days")


def preview(
    broker: Broker, files: Mapping[str, str], report: Callable[[int], None] = lambda done: None
) -> PolicyPreviewResult:
    """The effects of these files (text by name) if they were applied now: the jobs with another outcome in the
    reconciler's next pass than under the policies in force, and changed budgets. Changes nothing. ``report``: told how
    many of `PREVIEW_STEPS` are done. Raises `InvalidInput`."""
    policy, active = load_policy(broker, files), broker.store.active_policy()
    active_files = active.files if active else {}
    rehearsal = rehearse(broker, files)
    report(1)
    current = _rehearse_current(broker)
    report(2)
    checked_jobs = rehearsal.looked_at if current is None else rehearsal.looked_at & current.looked_at
    jobs = [
        outcome
        for outcome in changed_outcomes(current.outcomes if current else {}, rehearsal.outcomes)
        if outcome.job_id in checked_jobs
    ]
    now = broker.clock.now()
    since = now - _REPLAY_PERIOD
    past = JudgedDecisions.of(replay_decisions(broker, policy, since, now))
    report(3)
    return PolicyPreviewResult(
        active_version=active.number if active else 0,
        changed=dict(files) != dict(active_files) or active is None,
        difference=difference(active_files, files),
        jobs=jobs,
        budgets=list(_budget_changes(current.budgets if current else (), rehearsal.budgets)),
        looked_at=len(checked_jobs),
        left_out=rehearsal.left_out + len(rehearsal.looked_at) - len(checked_jobs),
        past=PastChanges(since=since, until=now, decisions=past),
    )


def _rehearse_current(broker: Broker) -> RehearsalResult | None:
    """The outcomes of the next pass under the policies in force; None if they cannot be read."""
    try:
        broker.policy()
    except InvalidInput:
        return None
    return rehearse(broker)


def changed_outcomes(before: Mapping[str, AffectedJob], after: Mapping[str, AffectedJob]) -> Iterable[AffectedJob]:
    """The outcomes after the change that differ from those before, in the order of the next pass."""
    for job_id, outcome in after.items():
        previous = before.get(job_id)
        if previous is None or previous.comparison_key != outcome.comparison_key:
            yield outcome
    for job_id, outcome in before.items():
        if job_id in after:
            continue
        if outcome.effect in (Effect.STOPS, Effect.STOPS_LATER, Effect.MOVES, Effect.GIVES_UP_LAUNCH):
            yield outcome.model_copy(update={"effect": Effect.LET_GO})
        elif outcome.effect not in (Effect.REFUSED, Effect.WARNS):
            yield outcome.model_copy(update={"effect": Effect.WAITS})


def _budget_changes(before: Sequence[BudgetLine], after: Sequence[BudgetLine]) -> Iterable[BudgetChangeResult]:
    old, new = {line.spec.id: line for line in before}, {line.spec.id: line for line in after}
    for name in dict.fromkeys([*new, *old]):
        lines = old.get(name), new.get(name)
        if len({line and _terms(line) for line in lines}) > 1:
            before_terms, after_terms = (line and BudgetTermsResult.of(line) for line in lines)
            yield BudgetChangeResult(name=name, before=before_terms, after=after_terms)


def _terms(line: BudgetLine) -> tuple[object, ...]:
    return line.spec, line.limit, line.action
