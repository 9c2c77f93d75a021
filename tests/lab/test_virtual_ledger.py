"""The ledger in memory answers as the production arithmetic does over single holds."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from broker.core.market.offers import MoneyKind
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.budgets import budget_uses, summable_until
from broker.ledger.entries import Movement, Tags, move
from broker.ledger.holds import burn_of
from broker.reconciler.admission.records import hold_entries
from tests.counts import FULL
from tests.lab.simulation.ledger import VirtualLedger

START = datetime(2026, 3, 2, tzinfo=UTC)
TAGS = Tags("job-1", "ann", "nlp")


def budget(period: str) -> BudgetSpec:
    return BudgetSpec("b", period, "Europe/Berlin", frozenset({"cash"}))


@pytest.mark.sampled
@pytest.mark.parametrize("period", ["day", "week", "month"])
@pytest.mark.parametrize("seed", range(5 if FULL else 1))
def test_held_money_of_many_jobs_is_the_sum_of_their_shares(period: str, seed: int) -> None:
    chance = random.Random(seed)
    ledger, spec, now = VirtualLedger(), budget(period), START
    open_holds: dict[str, Burn] = {}
    accounts = {}
    for number in range(200):
        now += timedelta(minutes=chance.randrange(240))
        job = f"job-{number}"
        rate = Money.usd(chance.choice([1, 4, 30]))
        longest = timedelta(hours=chance.choice([1, 30, 200]))
        burn = burn_of(rate.for_duration(longest), rate, Money.ZERO, now, longest)
        tags = Tags(job, "ann", "nlp")
        accounts[job] = ledger.open(tags, [spec], now)
        ledger.post(accounts[job], hold_entries(tags, {}, {MoneyKind.CASH: burn}, Movement.HOLD, 1))
        open_holds[job] = burn
        if len(open_holds) > 20 and chance.random() < 0.5:
            gone = chance.choice(sorted(open_holds))
            ledger.close(accounts[gone], now)
            del open_holds[gone]
        window = (now, now + timedelta(hours=300))
        until = summable_until(spec, now)
        single = budget_uses(spec, window, now, _nothing_spent, open_holds.values())
        grouped = budget_uses(spec, window, now, _nothing_spent, ledger.held(spec, until))
        for one, other in zip(single, grouped, strict=True):
            assert abs(one.held.micros - other.held.micros) <= 200, "rounding of single holds"
    for job in open_holds:
        ledger.close(accounts[job], now)
    assert ledger.check() == []


def test_a_movement_that_does_not_balance_and_an_open_job_are_found() -> None:
    ledger = VirtualLedger()
    account = ledger.open(TAGS, [], START)
    assert ledger.check() == ["1 jobs were not closed"]
    entries = move(
        Movement.SETTLE,
        Money.usd(3),
        movement_id="m",
        money=MoneyKind.CASH,
        at=START,
        covers=(START, START),
        tags=TAGS,
    )
    ledger.post(account, entries[:1])
    ledger.close(account, START)
    assert "movement m does not balance" in ledger.check()
    assert "the accounts of cash money do not sum to zero" in ledger.check()


def test_spending_counts_in_the_periods_that_it_covers() -> None:
    ledger, spec = VirtualLedger(), budget("day")
    account = ledger.open(TAGS, [spec], START)
    burn = Burn(Money.usd(10), START, START + timedelta(days=2), Money.usd(1))
    ledger.post(account, hold_entries(TAGS, {}, {MoneyKind.CASH: burn}, Movement.HOLD, 1))
    noon = START + timedelta(hours=11)  # a day of Berlin ends at 23:00 UTC
    covers = (noon, noon + timedelta(days=1))
    settled = move(
        Movement.SETTLE, Money.usd(8), movement_id="s", money=MoneyKind.CASH, at=noon, covers=covers, tags=TAGS
    )
    ledger.post(account, settled)
    assert list(ledger.spent_by_period()["b"].values()) == [Money.usd(4), Money.usd(4)]
    assert ledger.close(account, noon) == {MoneyKind.CASH: Money.usd(8)}
    assert ledger.check() == []


def _nothing_spent(start: datetime, end: datetime) -> Money:
    return Money.ZERO
