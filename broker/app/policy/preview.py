"""The effects of a change of policies before it is made: on jobs, requests and budgets now, found by running the
reconciler's controllers (`broker.app.policy.rehearsal`), and on recent decisions, judged again
(`broker.app.policy.replay`)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from broker.app.billing.budget_documents import BudgetLine
from broker.app.policy.policies import difference, load_policy
from broker.app.policy.rehearsal import Effect, JobOutcome, RehearsalResult, rehearse
from broker.app.policy.replay import replay_decisions
from broker.app.policy.trial_documents import (
    AffectedJob,
    BudgetChangeResult,
    BudgetTermsResult,
    JudgedDecisions,
    PastChanges,
    PolicyPreviewResult,
)
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput

_REPLAY_PERIOD = timedelta(days=30)  # recorded decisions that are judged again


def preview(broker: Broker, files: Mapping[str, str]) -> PolicyPreviewResult:
    """The effects of these files (text by name) if they were applied now: the jobs with another outcome in the
    reconciler's next pass than under the policies in force, and changed budgets. Changes nothing. Raises
    `InvalidInput`."""
    policy, active = load_policy(broker, files), broker.store.active_policy()
    active_files = active.files if active else {}
    rehearsal, current = rehearse(broker, files), _rehearse_current(broker)
    checked_jobs = rehearsal.looked_at if current is None else rehearsal.looked_at & current.looked_at
    jobs = [
        outcome
        for outcome in changed_outcomes(current.outcomes if current else {}, rehearsal.outcomes)
        if outcome.job_id in checked_jobs
    ]
    now = broker.clock.now()
    since = now - _REPLAY_PERIOD
    return PolicyPreviewResult(
        active_version=active.number if active else 0,
        changed=dict(files) != dict(active_files) or active is None,
        difference=difference(active_files, files),
        jobs=[AffectedJob.of(outcome) for outcome in jobs],
        budgets=list(_budget_changes(current.budgets if current else (), rehearsal.budgets)),
        looked_at=len(checked_jobs),
        left_out=rehearsal.left_out + len(rehearsal.looked_at) - len(checked_jobs),
        past=PastChanges(
            since=since, until=now, decisions=JudgedDecisions.of(replay_decisions(broker, policy, since, now))
        ),
    )


def _rehearse_current(broker: Broker) -> RehearsalResult | None:
    """The outcomes of the next pass under the policies in force; None if they cannot be read."""
    try:
        broker.policy()
    except InvalidInput:
        return None
    return rehearse(broker)


def changed_outcomes(before: Mapping[str, JobOutcome], after: Mapping[str, JobOutcome]) -> Iterable[JobOutcome]:
    """The outcomes after the change that differ from those before, in the order of the next pass."""
    for job_id, outcome in after.items():
        previous = before.get(job_id)
        if previous is None or previous.same_as != outcome.same_as:
            yield outcome
    for job_id, outcome in before.items():
        if job_id in after:
            continue
        if outcome.effect in (Effect.STOPS, Effect.STOPS_LATER, Effect.MOVES, Effect.GIVES_UP_LAUNCH):
            yield replace(outcome, effect=Effect.LET_GO)
        elif outcome.effect not in (Effect.REFUSED, Effect.WARNS):
            yield replace(outcome, effect=Effect.WAITS)


def _budget_changes(before: Sequence[BudgetLine], after: Sequence[BudgetLine]) -> Iterable[BudgetChangeResult]:
    old, new = {line.spec.id: line for line in before}, {line.spec.id: line for line in after}
    for name in dict.fromkeys([*new, *old]):
        lines = old.get(name), new.get(name)
        if len({line and _terms(line) for line in lines}) > 1:
            before_terms, after_terms = (line and BudgetTermsResult.of(line) for line in lines)
            yield BudgetChangeResult(name=name, before=before_terms, after=after_terms)


def _terms(line: BudgetLine) -> tuple[object, ...]:
    return line.spec, line.limit, line.action
