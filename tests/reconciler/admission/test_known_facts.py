"""What the gate reads for the rules: no more than they ask for, and nothing twice."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.policy.approvals import Question, RequestedApproval, StandingGrant
from broker.core.policy.policy import Action, ActionKind, Grant, LiveAttempt
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.budgets import summable_until
from broker.ledger.journal import OpenHold
from broker.reconciler.admission.facts import facts_of, grants_of, occupied_in
from policies.loader import load
from tests.reconciler.rehearsal import offer
from tests.reconciler.settlement.test_charges import life

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
LIVE = LiveAttempt("other-1", "bob", None, None, "training", None, 8, "H100", "aws", MoneyKind.CASH)
JOB = Job(name="train", run="x")
GIVEN = Grant("olga", ("big",), Money.usd(9), facts={})
TO_ANN = StandingGrant(7, "olga", NOW, NOW + HOUR, Money.usd(100), ("big",), ("ann",), used=Money.usd(30))
TO_BOB = replace(TO_ANN, number=8, users=("bob",))
ONE_BUDGET = "version: 1\npolicy: t\nbudgets: [{name: money, amount: $100, period: month}]\n"


@dataclass
class NotedLook:
    """A look at a store that notes each question."""

    asked: list[tuple[Any, ...]] = field(default_factory=list)
    waiting: Sequence[JobView] = ()

    def live_attempts(self) -> Sequence[LiveAttempt]:
        self.asked.append(("live",))
        return [LIVE]

    def standing_grants(self, at: datetime | None = None) -> Sequence[StandingGrant]:
        self.asked.append(("standing", at))
        return [TO_ANN, TO_BOB]

    def standing_share(self, number: int, job_id: str | None, array: str | None = None) -> Money:
        self.asked.append(("share", number, job_id))
        return Money.usd(5)

    def job(self, job_id: str) -> JobView | None:
        self.asked.append(("job", job_id))
        return replace(life(closed=False), grants=(GIVEN,))

    def held(self, budget: BudgetSpec, until: datetime) -> Sequence[Burn]:
        assert until == summable_until(budget, NOW)
        self.asked.append(("held", budget.id))
        return []

    def spent(self, budget: BudgetSpec, start: datetime, end: datetime) -> Money:
        self.asked.append(("spent", budget.id))
        return Money.usd(40)

    def spent_until(self, budget: BudgetSpec) -> datetime:
        self.asked.append(("spent_until", budget.id))
        return NOW

    def undecided(self) -> Sequence[JobView]:
        self.asked.append(("undecided",))
        return self.waiting

    def open_holds(self, budget: BudgetSpec) -> Sequence[OpenHold]:
        self.asked.append(("open_holds", budget.id))
        return [OpenHold("train", MoneyKind.CASH, Burn.evenly(Money.usd(9), (NOW, NOW + HOUR)))]

    def questions(self) -> list[str]:
        """What was asked since the last time."""
        found = [one[0] for one in self.asked]
        self.asked.clear()
        return found


def action(job_id: str | None = None, user: str = "ann", hold: str | None = None) -> Action:
    """A launch; with ``hold``, of that amount within the hour."""
    if hold is None:
        return Action(ActionKind.LAUNCH, JOB, user, job_id=job_id)
    amount = Money.usd(hold)
    burns = {MoneyKind.CASH: Burn.evenly(amount, (NOW, NOW + HOUR))}
    return Action(
        ActionKind.LAUNCH, JOB, user, job_id=job_id, hold={MoneyKind.CASH: amount}, window=(NOW, NOW + HOUR),
        burns=burns,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "slots", "capacity", "matters"),
    [
        (False, None, CapacityType.ON_DEMAND, False),
        (True, None, CapacityType.ON_DEMAND, True),
        (False, 3, CapacityType.ON_DEMAND, True),
        (False, None, CapacityType.OWNED, True),
        (False, None, CapacityType.RESERVED, True),
    ],
)
def test_who_occupies_what_is_read_where_a_rule_or_an_offer_is_limited(
    counts: bool, slots: int | None, capacity: CapacityType, matters: bool
) -> None:
    look: Any = NotedLook()
    policy: Any = SimpleNamespace(counts_live=counts)
    offers = [offer(NOW, "plain"), replace(offer(NOW, "here", capacity), slots=slots)]
    assert list(occupied_in(look, policy, offers)) == ([LIVE] if matters else [])
    assert look.questions() == (["live"] if matters else [])


def test_what_was_approved_for_a_job_and_ahead_for_its_user_is_read_once() -> None:
    """Of $100 for all of ann's jobs $30 are used, $5 of them by the job itself."""
    look: Any = NotedLook()
    policy: Any = SimpleNamespace(asks=True)
    grants_for = grants_of(look, policy, NOW)
    ahead = Grant("olga", ("big",), Money.usd(70), standing=7, until=NOW + HOUR)
    assert grants_for(action()) == (ahead,)
    assert look.asked == [("standing", NOW)]
    look.asked.clear()
    assert grants_for(action("train")) == (GIVEN, replace(ahead, up_to=Money.usd(75)))
    assert look.asked == [("job", "train"), ("share", 7, "train")]
    look.asked.clear()
    assert grants_for(action("train"))[0] == GIVEN
    assert grants_for(action()) == (ahead,)
    assert look.asked == []


def test_what_waits_for_an_answer_is_told_with_the_budget_that_lacks_room() -> None:
    """$9 are held for a job that somebody is asked about; $61 do not fit beside $40 of $100."""
    asked = RequestedApproval(NOW, (Question(rule="big", approvers=("olga",)),), held={MoneyKind.CASH: Money.usd(9)})
    look: Any = NotedLook(waiting=[replace(life(closed=False), asked=asked)])
    policy: Any = load({"t.yaml": ONE_BUDGET})
    facts_for = facts_of(look, policy, NOW)
    for _ in range(2):
        ((use,),) = facts_for(action(hold="61")).budgets.values()
        assert [one.job_id for one in use.asks] == ["train"]
    assert look.questions().count("open_holds") == 1


def test_only_the_budgets_of_the_user_are_read_for_the_periods_of_the_money() -> None:
    """From noon of March 2 on, for forty days: March and April. Olga's rule asks, so what was approved counts."""
    text = ONE_BUDGET.replace("month}]", "month}, {name: bobs, amount: $9, period: month, scope: {user: bob}}]")
    asks = "guardrails: [{name: big, approve_above: {cost: $50, approvers: [olga]}}]\n"
    look: Any = NotedLook()
    policy: Any = load({"t.yaml": text + asks})
    long = action(hold="5")
    burns = {MoneyKind.CASH: Burn.evenly(Money.usd(5), (NOW, NOW + 40 * 24 * HOUR))}
    long = replace(long, window=(NOW, NOW + 40 * 24 * HOUR), burns=burns)
    facts_for = facts_of(look, policy, NOW)
    facts = facts_for(long)
    (uses,) = facts.budgets.values()
    assert [use.period_start.month for use in uses] == [3, 4]
    assert [one.standing for one in facts.grants] == [7]
    assert ("standing", NOW) in look.asked
    look.questions()
    shorter = {MoneyKind.CASH: Burn.evenly(Money.usd(5), (NOW, NOW + 30 * 24 * HOUR))}
    assert facts_for(replace(long, burns=shorter)).budgets == facts.budgets
    assert look.questions() == [], "another time in the same periods"
    within = {MoneyKind.CASH: Burn.evenly(Money.usd(5), (NOW, NOW + HOUR))}
    assert [len(uses) for uses in facts_for(replace(long, burns=within)).budgets.values()] == [1]
    assert len(facts_of(look, policy, NOW)(replace(long, user="bob")).budgets) == 2


def test_money_without_a_time_is_judged_in_the_period_of_now() -> None:
    look: Any = NotedLook()
    policy: Any = load({"t.yaml": ONE_BUDGET})
    timeless = Action(ActionKind.EXTEND, JOB, "ann", hold={})
    ((use,),) = facts_of(look, policy, NOW)(timeless).budgets.values()
    assert use.period_start == NOW.replace(day=1, hour=0)
