"""Rules that only warn a running job, and what is kept of its judgements."""

import logging
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import (
    Action,
    ActionKind,
    IdleLimit,
)
from broker.core.ports import PolicyDefaults
from tests.reconciler.test_enforcement_by_hand import HOUR, NOW, TEAM, OneRunGate, SameAnswerPolicy, attempted


class Idle:
    """A rule about idleness with a limit of its own, or none."""

    def __init__(self, name: str, limit: IdleLimit | None) -> None:
        self.name, self.limit = name, limit
        self.actions: list[Action] = []

    def idle_limit(self, action: Action) -> IdleLimit | None:
        self.actions.append(action)
        return self.limit


class TestWarnings:
    """What rules that only warn would have stopped is put on record once an attempt."""

    def noted(self, judge: OneRunGate) -> list[tuple[object, ...]]:
        return [
            (one.action, one.job_id, one.attempt, one.policy_version, *(v.name for v in one.verdicts if v.warns))
            for one in judge.journal.recorded
        ]

    def test_once_for_the_same_rules(self) -> None:
        judge = OneRunGate(SameAnswerPolicy(warning=("a",)))
        for _ in range(3):
            judge.look(HOUR)
        first = ActionKind.CONTINUE, "train", 1, "test", "a"
        assert self.noted(judge) == [first]
        assert judge.journal.times == 1, "nobody writes, nor reads what was written, with each look"
        judge.policy = replace(judge.policy, warning=("a", "b"))
        judge.look(HOUR)
        assert self.noted(judge) == [first, (*first, "b")]
        judge.policy = replace(judge.policy, warning=("a",))
        judge.look(HOUR)
        assert len(self.noted(judge)) == 2, "that is on record"
        judge.look(HOUR, view=attempted(judge.view, number=2))
        assert self.noted(judge)[2:] == [(ActionKind.CONTINUE, "train", 2, "test", "a")]

    def test_what_an_earlier_process_noted_stands_and_what_was_judged_before_the_start_is_something_else(self) -> None:
        judge = OneRunGate(SameAnswerPolicy(warning=("a",)))
        judge.look(HOUR)
        later = OneRunGate(SameAnswerPolicy(warning=("a",)), judge.journal)
        later.look(HOUR)
        assert len(self.noted(judge)) == 1
        judge.journal.recorded[:] = [replace(one, action=ActionKind.LAUNCH) for one in judge.journal.recorded]
        again = OneRunGate(SameAnswerPolicy(warning=("a",)), judge.journal)
        again.look(HOUR)
        assert len(self.noted(judge)) == 2

    def test_what_is_forgotten_is_looked_for_on_record(self) -> None:
        judge = OneRunGate(SameAnswerPolicy(warning=("a",)))
        judge.look(HOUR)
        judge.gate.forget("nobody")
        judge.journal.recorded.clear()
        judge.look(HOUR)
        assert self.noted(judge) == []
        judge.gate.forget("train")
        judge.look(HOUR)
        assert len(self.noted(judge)) == 1

    def test_a_rule_that_only_warns_is_not_left_to_the_node(self) -> None:
        rules = (Idle("a", TOO_IDLE), Idle("b", VERY_IDLE))
        judge = OneRunGate(SameAnswerPolicy(rules=rules, warning=("a",)))
        assert judge.gate.idle_limits(judge.view) == (VERY_IDLE,)


TOO_IDLE, VERY_IDLE = IdleLimit(5.0, HOUR, "an hour"), IdleLimit(1.0, 2 * HOUR, "two hours")


class TestWhatIsKept:
    """What nodes are granted follows the policy that could be read last."""

    def test_the_shorter_time_without_a_broker_counts(self) -> None:
        def longest(job: timedelta | None, policy: timedelta | None) -> timedelta | None:
            judge = OneRunGate(SameAnswerPolicy(defaults=PolicyDefaults(max_unattended=policy)))
            return judge.gate.max_unattended(judge.view.job.model_copy(update={"max_unattended": job}))

        assert longest(HOUR, 2 * HOUR) == longest(2 * HOUR, HOUR) == HOUR
        assert longest(HOUR, None) == longest(None, HOUR) == HOUR
        assert longest(None, None) is None

    def test_without_a_policy_what_the_job_says_counts(self) -> None:
        judge = OneRunGate()
        judge.unreadable = "of a newer version"
        assert judge.gate.max_unattended(judge.view.job.model_copy(update={"max_unattended": HOUR})) == HOUR
        assert judge.gate.idle_limits(judge.view) == ()
        assert judge.gate.future_period_edges(judge.view, MoneyKind.CASH) == ()
        assert not judge.look()

    def test_the_last_policy_counts_while_none_can_be_read(self) -> None:
        rules = (Idle("a", TOO_IDLE),)
        judge = OneRunGate(SameAnswerPolicy(rules=rules, specs=(TEAM,), defaults=PolicyDefaults(max_unattended=HOUR)))
        judge.look()
        judge.unreadable = "of a newer version"
        judge.look(HOUR)
        assert judge.times == 1, "what runs is not judged by it"
        assert judge.gate.max_unattended(judge.view.job) == HOUR
        assert judge.gate.idle_limits(judge.view) == (TOO_IDLE,)
        assert judge.gate.future_period_edges(judge.view, MoneyKind.CASH)

    def test_the_rules_without_a_condition_are_left_to_the_node(self) -> None:
        rules = (Idle("a", TOO_IDLE), Idle("b", VERY_IDLE), Idle("c", None), Idle("d", VERY_IDLE), SimpleNamespace())
        judge = OneRunGate(SameAnswerPolicy(rules=rules, conditions={"b": "job.team == 'x'"}))
        assert judge.gate.idle_limits(judge.view) == (TOO_IDLE, VERY_IDLE)
        assert rules[0].actions == [Action(ActionKind.CONTINUE, judge.view.job, "ann")]
        assert rules[1].actions == []
        judge.policy = replace(judge.policy, rules=rules[:1])
        judge.clock.advance(HOUR)
        assert judge.gate.idle_limits(judge.view) == (TOO_IDLE, VERY_IDLE), "the same version says the same"
        judge.policy = replace(judge.policy, version="2")
        judge.clock.advance(HOUR)
        assert judge.gate.idle_limits(judge.view) == (TOO_IDLE,)

    def test_the_ends_of_the_periods_of_its_budgets(self) -> None:
        judge = OneRunGate(SameAnswerPolicy(specs=(TEAM,)))
        assert judge.gate.future_period_edges(judge.view, MoneyKind.CASH) == (NOW.replace(month=4, day=1, hour=0),)
        assert judge.gate.future_period_edges(judge.view, MoneyKind.SANDBOX) == ()


def test_a_policy_that_cannot_be_read_is_logged_once_until_that_changes(caplog: pytest.LogCaptureFixture) -> None:
    judge = OneRunGate()

    def warned() -> int:
        judge.look(HOUR)
        return len(caplog.records)

    with caplog.at_level(logging.WARNING):
        judge.unreadable = "of a newer version"
        assert [warned(), warned()] == [1, 1]
        judge.unreadable = "not a policy"
        assert [warned(), warned()] == [2, 2]
        judge.unreadable = ""
        assert warned() == 2
        judge.unreadable = "not a policy"
        assert warned() == 3
