"""The effects of a change of policies before it is made: on jobs, requests and budgets now, found by running the
reconciler's controllers (`broker.app.policy.rehearsal`), and on recent decisions, judged again
(`broker.app.policy.replay`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.app.billing.budgets import BudgetLine
from broker.app.policy.policies import difference, loaded
from broker.app.policy.rehearsal import Effect, JobOutcome, Rehearsed, rehearse
from broker.app.policy.replay import PolicyReplay, replay_decisions
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput

_BACK = timedelta(days=30)  # recorded decisions that are judged again


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """One budget before and after; None if there is none of that name."""

    before: BudgetLine | None
    after: BudgetLine | None

    @property
    def name(self) -> str:
        return (self.after or self.before or _nothing()).spec.id


@dataclass(frozen=True, slots=True)
class Past:
    """The decisions from ``since`` to ``until`` (UTC), judged again."""

    since: datetime
    until: datetime
    found: PolicyReplay


@dataclass(frozen=True, slots=True)
class PolicyPreview:
    """The effects of these files if they were applied now. ``before``: the version in force, 0 without any;
    ``changed``: whether the files differ from it. ``jobs``: those with another outcome in the reconciler's next pass
    than under the policies in force. ``looked_at``: the number of open jobs that were checked; ``left_out``: the number
    of those that were not, the last in the queue."""

    before: int
    changed: bool
    difference: str
    jobs: Sequence[JobOutcome]
    budgets: Sequence[BudgetChange]
    looked_at: int
    left_out: int
    past: Past


def preview(broker: Broker, files: Mapping[str, str]) -> PolicyPreview:
    """The effects of these files (text by name) if they were applied now. Changes nothing. Raises `InvalidInput` for
    invalid files."""
    policy, active = loaded(broker, files), broker.store.active_policy()
    now_ = active.files if active else {}
    would, does = rehearse(broker, files), _as_it_is(broker)
    looked_at = would.looked_at if does is None else would.looked_at & does.looked_at
    jobs = [one for one in changed_outcomes(does.outcomes if does else {}, would.outcomes) if one.job_id in looked_at]
    now = broker.clock.now()
    return PolicyPreview(
        before=active.number if active else 0,
        changed=dict(files) != dict(now_) or active is None,
        difference=difference(now_, files),
        jobs=jobs,
        budgets=tuple(_budget_changes(does.budgets if does else (), would.budgets)),
        looked_at=len(looked_at),
        left_out=would.left_out + len(would.looked_at) - len(looked_at),
        past=Past(now - _BACK, now, replay_decisions(broker, policy, now - _BACK, now)),
    )


def _as_it_is(broker: Broker) -> Rehearsed | None:
    """The outcomes of the next pass under the policies in force; None if they cannot be read."""
    try:
        broker.policy()
    except InvalidInput:
        return None
    return rehearse(broker)


def changed_outcomes(before: Mapping[str, JobOutcome], after: Mapping[str, JobOutcome]) -> Iterable[JobOutcome]:
    """The outcomes after the change that differ from those before, in the order of the next pass."""
    for job_id, outcome in after.items():
        known = before.get(job_id)
        if known is None or known.same_as != outcome.same_as:
            yield outcome
    for job_id, outcome in before.items():
        if job_id in after:
            continue
        if outcome.effect in (Effect.STOPS, Effect.STOPS_LATER, Effect.MOVES, Effect.GIVES_UP_LAUNCH):
            yield replace(outcome, effect=Effect.LET_GO)
        elif outcome.effect not in (Effect.REFUSED, Effect.WARNS):
            yield replace(outcome, effect=Effect.WAITS)


def _budget_changes(before: Sequence[BudgetLine], after: Sequence[BudgetLine]) -> Iterable[BudgetChange]:
    old, new = {line.spec.id: line for line in before}, {line.spec.id: line for line in after}
    for name in dict.fromkeys([*new, *old]):
        change = BudgetChange(old.get(name), new.get(name))
        if change.before is None or change.after is None or _terms(change.before) != _terms(change.after):
            yield change


def _terms(line: BudgetLine) -> tuple[object, ...]:
    return line.spec, line.limit, line.action


def _nothing() -> BudgetLine:
    raise ValueError("a budget change needs a budget before or after")
