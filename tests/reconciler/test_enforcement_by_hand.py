"""When what runs is judged, by what, and what is kept where the policy cannot be read."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from broker.core.errors import InvalidInput, Unreachable
from broker.core.events.outcomes import AttemptState, Cause
from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import inputs_of
from broker.core.policy.policy import (
    Action,
    ActionKind,
    Answer,
    BudgetUse,
    Facts,
    Grant,
    Source,
    Usage,
    Verdict,
)
from broker.core.ports import BudgetSpec
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Balance
from broker.ledger.journal import StaleJobView
from broker.reconciler.controllers.enforcement import Enforcement, judge_running
from tests.controllers import Asking
from tests.reconciler.rehearsal import OpenPolicy
from tests.reconciler.settlement.test_charges import UP, life

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
NOW = UP + 3 * HOUR
TEAM = BudgetSpec("team", "month", "UTC", frozenset({"cash"}))
OTHER = replace(TEAM, id="other")
PAID = {
    MoneyKind.CASH: Balance(held=Money.usd(7), spent=Money.usd(2)),
    MoneyKind.SANDBOX: Balance(held=Money.usd(40), spent=Money.usd(20)),
    MoneyKind.AMORTISED: Balance(held=Money.usd(500), spent=Money.usd(300)),
}


@dataclass
class SameAnswerPolicy(OpenPolicy):
    """Answers the same to everything, and keeps what it was asked. ``warning``: rules that only warn, which do."""

    answers: tuple[Answer, ...] = (Answer.ALLOW,)
    asked: list[tuple[Action, Facts]] = field(default_factory=list)
    specs: tuple[BudgetSpec, ...] = ()
    rules: tuple[Any, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    warning: tuple[str, ...] = ()

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        self.asked.append((action, facts))
        return [
            Verdict(answer, "limit", f"rule {number}", f"reason {number}", Source("team.yaml", number))
            for number, answer in enumerate(self.answers, 1)
        ] + [
            Verdict(Answer.ALLOW, "limit", "warns", "only warns", Source("team.yaml", 9), name, warns=True)
            for name in self.warning
        ]

    def budgets(self, job: Job, user: str) -> Sequence[BudgetSpec]:
        assert (job.name, user) == ("train", "ann")
        return self.specs

    def warns(self, rule: str) -> bool:
        return rule in self.warning

    def when(self, name: str) -> str:
        return self.conditions.get(name, "")


@dataclass
class OneJobJournal:
    """One job, and what is written about it."""

    job_now: JobView | None
    recorded: list[Any] = field(default_factory=list)
    appended: list[Any] = field(default_factory=list)
    times: int = 0

    @contextmanager
    def writing(self) -> Iterator[Any]:
        self.times += 1
        yield SimpleNamespace(
            decisions=lambda job_id, action: [
                one for one in self.recorded if (one.job_id, one.action) == (job_id, action)
            ],
            job=lambda job_id: self.job_now if job_id == "train" else None,
            record=self.recorded.append,
            append=lambda *what: self.appended.append(what),
        )


class OneRunGate:
    """The gate over one running job, on a clock of the test's own."""

    def __init__(
        self, policy: SameAnswerPolicy | None = None, journal: OneJobJournal | None = None, **more: Any
    ) -> None:
        self.view = life(closed=False)
        self.policy, self.unreadable, self.reads = policy or SameAnswerPolicy(), "", 0
        self.clock, self.journal = ManualClock(NOW), journal or OneJobJournal(self.view)
        self.gate = Enforcement(self.journal, self._read, self.clock.now, **more)  # type: ignore[arg-type]  # a double
        self._asking = Asking(self.gate, self.clock.now)

    def _read(self) -> SameAnswerPolicy:
        self.reads += 1
        if self.unreadable:
            raise InvalidInput(self.unreadable)
        return self.policy

    def look(self, after: timedelta = timedelta(0), view: JobView | None = None) -> bool:
        self.clock.time += after
        return self._asking(view or self.view, PAID)

    @property
    def times(self) -> int:
        return len(self.policy.asked)


def attempted(view: JobView, **changes: Any) -> JobView:
    return replace(view, attempts=(replace(view.attempts[0], **changes),))


class TestWhen:
    @pytest.mark.parametrize(
        "rests",
        [
            lambda view: replace(view, attempts=()),
            lambda view: replace(view, cancel_requested=True),
            lambda view: attempted(view, stop_requested=Cause.MAX_COST),
            lambda view: attempted(view, state=AttemptState.REQUESTED),
            lambda view: attempted(view, state=AttemptState.INTERRUPTED),
        ],
    )
    def test_only_what_runs_and_is_not_stopping_is_judged(self, rests: Any) -> None:
        judge = OneRunGate(SameAnswerPolicy(answers=(Answer.DENY,)))
        assert not judge.look(view=rests(judge.view))
        assert judge.times == 0
        assert judge.reads == 0

    def test_each_job_is_judged_every_fifteen_seconds(self) -> None:
        judge = OneRunGate()
        assert [judge.look() or judge.times for _ in range(2)] == [1, 1]
        assert judge.reads == 1
        assert [judge.look(14.9 * SECOND) or judge.times, judge.look(0.1 * SECOND) or judge.times] == [1, 2]
        assert not judge.look(10 * SECOND, replace(judge.view, id="another"))
        assert judge.times == 3

    def test_a_clock_that_was_set_back_delays_nothing(self) -> None:
        judge = OneRunGate()
        judge.look()
        judge.look(-HOUR)
        assert (judge.times, judge.reads) == (2, 2)

    def test_what_rested_is_judged_at_once(self) -> None:
        judge = OneRunGate()
        judge.look()
        judge.look(SECOND, attempted(judge.view, stop_requested=Cause.MAX_COST))
        judge.look(SECOND)
        assert judge.times == 2

    def test_a_changed_policy_counts_once_it_is_read_every_three_seconds(self) -> None:
        judge = OneRunGate()
        judge.look()
        judge.policy = SameAnswerPolicy(version="2")
        assert [judge.look(after) or (judge.reads, judge.times) for after in (2.9 * SECOND, 0.1 * SECOND)] == [
            (1, 0),
            (2, 1),
        ]


class TestWhat:
    @pytest.mark.parametrize("now", [None, "later"])
    def test_a_job_that_changed_meanwhile_is_looked_at_again(self, now: str | None) -> None:
        judge = OneRunGate(SameAnswerPolicy(answers=(Answer.DENY,)))
        judge.journal.job_now = replace(judge.view, seq=judge.view.seq + 1) if now else None
        with pytest.raises(StaleJobView):
            judge.look()
        assert (judge.journal.recorded, judge.journal.appended) == ([], [])
        judge.journal.job_now, before = judge.view, judge.reads
        assert judge.look()
        assert len(judge.journal.appended) == 1, "at once, not only after fifteen seconds"
        assert judge.reads == before + 2, "the policy is read anew, and compared once more when it is recorded"

    def test_exceeded_budgets_of_the_job_are_told(self) -> None:
        use = BudgetUse(UP, NOW, Money.usd(9), Money.ZERO, NOW)

        def over(policy: SameAnswerPolicy, now: object) -> Mapping[str, tuple[BudgetUse, ...]]:
            assert (policy.version, now) == ("test", NOW)
            return {"team": (use,), "theirs": (use, use)}

        judge = OneRunGate(SameAnswerPolicy(specs=(TEAM, OTHER)), over=over)
        judge.look()
        assert judge.policy.asked[0][1].budgets == {"team": (use,)}

        def unknown(policy: SameAnswerPolicy, now: object) -> Mapping[str, tuple[BudgetUse, ...]]:
            raise Unreachable("the store is busy")

        judge = OneRunGate(SameAnswerPolicy(specs=(TEAM, OTHER)), over=unknown)
        judge.look()
        assert judge.policy.asked[0][1].budgets == {}


class TestJudgeRunning:
    """The attempt of `life` costs $5 an hour and has run for three hours."""

    def decided(self, policy: SameAnswerPolicy, view: JobView | None = None, **more: Any) -> Any:
        view = view or life(closed=False)
        attempt = view.attempts[0]
        said = judge_running(PAID, policy, view, attempt, [Usage(NOW, 3.0)], NOW, **more)
        return said.decision(policy, view, attempt) if said.answer is Answer.DENY else None

    def test_what_the_rules_are_told(self) -> None:
        policy, grant = SameAnswerPolicy(), Grant("bob", ("limit",), Money.usd(9), gpus=8)
        view = replace(life(closed=False), grants=(grant,), folded=2)
        assert self.decided(policy, view) is None
        ((action, facts),) = policy.asked
        assert action == Action(
            ActionKind.CONTINUE, view.job, "ann", placement=view.attempts[0].placement, elapsed=3 * HOUR,
            spent=Money.usd(22), held=Money.usd(47), job_id="train", submitted_at=UP, attempts=3,
            usage=(Usage(NOW, 3.0),),
        )  # fmt: skip
        assert facts == Facts(NOW, grants=(grant,))

    def test_the_record_of_a_denial(self) -> None:
        policy = SameAnswerPolicy(answers=(Answer.DENY,), specs=(TEAM,), version="7")
        use = BudgetUse(UP, NOW, Money.usd(9), Money.ZERO, NOW)
        decision = self.decided(policy, over={"team": (use,)})
        assert (decision.at, decision.action, decision.user, decision.job_name) == (
            NOW, ActionKind.CONTINUE, "ann", "train",
        )  # fmt: skip
        assert (decision.answer, decision.policy_version, decision.job_id) == (Answer.DENY, "7", "train")
        assert (decision.attempt, decision.pool) == (1, life().attempts[0].placement.offer.pool)
        assert [verdict.message for verdict in decision.verdicts] == ["reason 1"]
        inputs = inputs_of(decision)
        assert inputs is not None
        assert inputs.facts.budgets == {"team": (use,)}
        assert decision.facts_hash not in ("", self.decided(replace(policy, version="8")).facts_hash)
        assert decision.facts_hash == self.decided(policy, over={"team": (use,)}).facts_hash
