"""What recorded jobs would have come to elsewhere: like against like, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from broker.app.policy.replay import PolicyReplay, ReplayedDecision, replay
from broker.app.policy.replayed_job import ReplayBasis
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import Billing, CapacityType, MoneyKind, Offer
from broker.core.policy.decisions import Decision, sealed, written
from broker.core.policy.policy import Action, ActionKind, Answer, Facts
from broker.core.values.money import Money
from broker.ledger.budgets import budget_uses
from broker.ledger.entries import Entry, Movement, Tags, move
from broker.reconciler.admission.admission import strictest
from policies.loader import load

NOW = datetime(2026, 11, 1, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
LIMIT = 6 * HOUR
BUDGET = 'version: 1\nbudgets: [{name: NAME, amount: "$900", period: month, counts: [cash, amortised]}]\n'
ON_DEMAND = "guardrails: [{name: steady, capacity_types: on_demand}]\n"


def offered(price: str, kind: CapacityType, *, work: bool = False, speed: float = 1.0, **said: object) -> Placement:
    """A placement at so much an hour; with ``work``, one whose time is known: 2 h at a speed of 1."""
    offer = Offer("aws", "us-east-1", None, f"p5-{kind}", "H100", 1, kind, Money.usd(price), NOW, "test", **said)  # type: ignore[arg-type]  # what a test says of it
    lasts = 2 * HOUR / speed if work else None
    cost = Money.usd(price).for_duration(lasts or HOUR)
    return Placement(offer, 1, Money.usd(price), cost, (), lasts, NOW + lasts if lasts else None, 1.0, speed, 0.0)


SPOT = offered("0.30", CapacityType.SPOT)
STEADY = offered("0.85", CapacityType.ON_DEMAND)


def recorded(
    ran: timedelta | None,
    cost: str,
    was: Placement = SPOT,
    others: Sequence[Placement] = (STEADY,),
    *,
    hold: str = "6",
    ended: bool = True,
    budget: str = "mine",
) -> tuple[list[Decision], list[Entry]]:
    """A job of up to 6 h that ran on the first placement for so long; with None, that never had a machine."""
    policy = load({"p.yaml": BUDGET.replace("NAME", budget)})
    held = {kind: Money.usd(hold) for kind in (MoneyKind.CASH, MoneyKind.AMORTISED)}
    action = Action(ActionKind.LAUNCH, Job(name="j", run="x"), "ann", was, held, (NOW, NOW + LIMIT))
    uses = {
        one.id: budget_uses(one, (NOW, NOW + LIMIT), NOW, lambda start, end: Money.ZERO, [])
        for one in policy.budgets(action.job, action.user)
    }
    facts = Facts(NOW, (), uses)
    verdicts = tuple(policy.judge(action, facts))
    inputs = written(action, facts, others, counts_live=policy.counts_live)
    decision = Decision(
        NOW, ActionKind.LAUNCH, "ann", "j", strictest(verdicts), policy.version, sealed(inputs, policy.version), "j-1",
        1, was.offer.pool, verdicts, {"inputs": inputs},
    )  # fmt: skip
    tags = Tags("j-1", "ann", attempt=1, provider="aws", gpus=1)
    up = NOW + 3 * MINUTE  # a machine takes a while to come up
    ends = up + (ran or timedelta(0))
    entries: list[Entry] = []
    for what, amount, when, covers in (
        (Movement.HOLD, Money.usd(hold), NOW, (NOW, NOW + LIMIT)),
        (Movement.SETTLE, Money.usd(cost), ends, (up, ends)),
        (Movement.RELEASE, Money.usd(hold) - Money.usd(cost) if ended else Money.ZERO, ends, (ends, ends)),
    ):
        movement = f"j-1/{what}"
        entries += move(what, amount, movement_id=movement, money=was.money, at=when, covers=covers, tags=tags)
    return [decision], entries


def under(policy: str, month: tuple[list[Decision], list[Entry]]) -> PolicyReplay:
    return replay(*month, load({"p.yaml": BUDGET.replace("NAME", "other") + policy}))


def moved(month: tuple[list[Decision], list[Entry]]) -> ReplayedDecision:
    (one,) = under(ON_DEMAND, month).outcomes
    assert one.answer is Answer.ALLOW
    assert one.pool != one.decision.pool
    return one


@pytest.mark.parametrize(
    ("ran", "cost", "comes_to"),
    # 4 min of $0.85 an hour are 5.6667 cents, 6 s are 0.141667 cents; not the 6 h × $0.85 = $5.10 that it might run.
    [(4 * MINUTE, "0.02", 56_667), (timedelta(seconds=6), "0.0005", 1_417)],
)
def test_what_ran_is_reckoned_elsewhere_for_the_time_that_was_metered(ran: timedelta, cost: str, comes_to: int) -> None:
    one = moved(recorded(ran, cost))
    assert (one.cost_before, one.cost_after, one.basis) == (Money.usd(cost), Money(comes_to), ReplayBasis.METERED_TIME)


def test_where_the_work_is_known_the_time_is_converted() -> None:
    """1 h at a speed of 1 is half an hour at a speed of 2: $3 an hour for that is $1.50."""
    was = offered("1", CapacityType.SPOT, work=True)
    faster = offered("3", CapacityType.ON_DEMAND, work=True, speed=2.0)
    one = moved(recorded(HOUR, "1", was, [faster]))
    assert (one.cost_before, one.cost_after, one.basis) == (Money.usd(1), Money.usd("1.50"), ReplayBasis.CONVERTED_TIME)
    # A job that does not say how much work there is runs for as long as it ran.
    unknown = [replace(one, duration=None) for one in (was, faster)]
    one = moved(recorded(HOUR, "1", unknown[0], unknown[1:]))
    assert (one.cost_after, one.basis) == (Money.usd(3), ReplayBasis.METERED_TIME)


def test_the_other_bills_in_its_own_steps_once_it_has_ended() -> None:
    """4 min cost a whole hour where hours are billed; while it runs, they cost 4 min."""
    hourly = offered("0.90", CapacityType.ON_DEMAND, billing=Billing(granularity=HOUR))
    assert moved(recorded(4 * MINUTE, "0.02", others=[hourly])).cost_after == Money.usd("0.90")
    assert moved(recorded(4 * MINUTE, "0.02", others=[hourly], ended=False)).cost_after == Money.usd("0.06")


def test_it_comes_to_no_more_than_it_held() -> None:
    """3 h at $0.85 are $2.55; with $2 the job would have been stopped there."""
    assert moved(recorded(3 * HOUR, "0.90", hold="2")).cost_after == Money.usd(2)


def test_what_was_cancelled_before_it_had_a_machine_comes_to_nothing_elsewhere_either() -> None:
    one = moved(recorded(None, "0"))
    assert (one.cost_before, one.cost_after, one.basis) == (Money.ZERO, Money.ZERO, ReplayBasis.RECORD)


def test_of_what_ran_free_of_charge_nothing_was_metered_and_its_plan_speaks() -> None:
    """Up to 6 h at $0.85: $5.10, in cash now."""
    free = offered("0", CapacityType.OWNED)
    one = moved(recorded(None, "0", replace(free, offer=replace(free.offer, money=MoneyKind.AMORTISED))))
    assert (one.cost_before, one.cost_after, one.basis) == (Money.ZERO, Money.usd("5.10"), ReplayBasis.PLAN)
    assert (one.money, one.money_after) == (MoneyKind.AMORTISED, MoneyKind.CASH)


def test_what_is_denied_by_a_budget_of_another_name_is_denied_the_same() -> None:
    decisions, _ = recorded(None, "0", hold="1000")
    assert decisions[0].answer is Answer.DENY
    found = under(ON_DEMAND, ([replace(decisions[0], job_id=None)], []))
    assert [one.answer for one in found.outcomes] == [Answer.DENY]
    assert found.outcomes[0].pool != decisions[0].pool, "where it would have been denied has changed"
    assert found.differences == ()
