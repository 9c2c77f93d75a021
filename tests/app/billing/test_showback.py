"""Showback and chargeback over a ledger: statements stay, corrections follow, all of them together are the ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.app.billing.showback import charged, freeze, shown, statements
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.finops.change import NOBODY
from broker.finops.focus.months import OPEN_FOR, BillingMonth
from broker.finops.showback import IDLE, SharingRule, SharingRules
from broker.ledger.entries import Account, Movement
from tests.actors import ANN, OLGA
from tests.focus_ledger import HOUR, OCTOBER, RUN, SEPTEMBER, post_two_months, spent

DAY = timedelta(days=1)
APART = SharingRules()


def test_each_team_has_its_use_and_what_was_bought_is_charged_to_nobody(broker: Broker) -> None:
    post_two_months(broker.store)
    found = shown(broker, "2026-09", APART)
    assert [(row.team, row.cash, row.amortised) for row in found.rows] == [
        ("nlp", Money.usd("29"), Money.ZERO),
        ("web", Money.ZERO, Money.usd("7.25")),
    ]
    assert found.bought == Money.usd("700")
    assert found.over
    assert found.held == {}


def test_idle_capacity_follows_its_rule(broker: Broker) -> None:
    post_two_months(broker.store)
    paid = Money.usd("3600")
    owned = Holding(HoldingKind.OWNED, "H100", 8, "basement", "here", SEPTEMBER, SEPTEMBER + 30 * DAY, upfront=paid)
    broker.store.add_holding(owned, by="ann")
    assert {row.team: row.idle for row in shown(broker, "2026-09", APART).rows if row.idle} == {IDLE: paid}
    by_use = shown(broker, "2026-09", SharingRules(SharingRule.PROPORTIONAL))
    assert {row.team: row.idle for row in by_use.rows if row.idle} == {"web": paid}
    evenly = shown(broker, "2026-09", SharingRules(SharingRule.EVEN))
    assert {row.team: row.idle for row in evenly.rows if row.idle} == dict.fromkeys(("nlp", "web"), Money.usd("1800"))


def test_a_statement_stays_and_what_comes_later_is_a_correction(broker: Broker) -> None:
    post_two_months(broker.store)
    made = freeze(broker, "2026-09", APART, by=ANN).statement
    # The five dollars of September that were posted on 10 October are not in it, but with October.
    assert (made.total, made.frozen_by) == (Money.usd("31.25"), ANN.identity)
    (correction,) = freeze(broker, "2026-10", APART, by=ANN).statement.corrections
    assert (correction.month, correction.team, correction.amount) == ("2026-09", "nlp", Money.usd("5"))
    with broker.store.writing() as tx:
        late = replace(RUN, job_id="late", team=None)
        tx.post(spent(9, "-1", SEPTEMBER, SEPTEMBER + HOUR, OCTOBER + 40 * DAY, movement=Movement.ADJUST, tags=late))
    again = charged(broker, "2026-09")
    assert again.statement == made
    assert [(one.billed_in, one.team, str(one.amount)) for one in again.since] == [
        ("2026-10", "nlp", "$5.00"),
        ("2026-11", NOBODY, "-$1.00"),
    ]
    with pytest.raises(InvalidInput, match=f"frozen at .* by {ANN.identity}"):
        freeze(broker, "2026-09", SharingRules(SharingRule.EVEN), by=OLGA)
    assert [one.month for one in statements(broker)] == ["2026-10", "2026-09"]


def test_an_open_month_has_no_statement(broker: Broker) -> None:
    now = datetime.now(UTC)
    for month in {f"{now:%Y-%m}", f"{now + 31 * DAY:%Y-%m}"}:
        with pytest.raises(InvalidInput, match="open until"):
            freeze(broker, month, APART, by=ANN)
    with pytest.raises(InvalidInput, match="no statement of 2026-01"):
        charged(broker, "2026-01")
    assert not shown(broker, f"{now:%Y-%m}", APART).over


@pytest.mark.parametrize(
    "rules",
    [
        SharingRules(SharingRule.FIXED),
        SharingRules(SharingRule.FIXED, weights={"nlp": 0}),
        SharingRules(SharingRule.FIXED, weights={"nlp": 2, "web": -1}),
        SharingRules(shared=SharingRule.EVEN),
        SharingRules(SharingRule.FIXED, SharingRule.EVEN, ("nlp",), {"nlp": 1}),
    ],
)
def test_rules_that_say_nothing_are_refused(broker: Broker, rules: SharingRules) -> None:
    with pytest.raises(InvalidInput):
        shown(broker, "2026-09", rules)


@dataclass(frozen=True)
class LatePosting:
    """An entry: ``hour`` after May began, for ``hours``, posted ``late`` days after its end."""

    team: str | None
    kind: CapacityType
    money: MoneyKind
    micros: int
    hour: int
    hours: int
    late: int


posted = st.builds(
    LatePosting,
    st.sampled_from(["nlp", "web", None]),
    st.sampled_from(list(CapacityType)),
    st.sampled_from([MoneyKind.CASH, MoneyKind.AMORTISED]),
    st.integers(-(10**9), 10**9),
    st.integers(0, 40 * 24),
    st.integers(0, 900),
    st.integers(0, 60),
)
MAY = datetime(2026, 5, 1, tzinfo=UTC)


@given(entries=st.lists(posted, max_size=12))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_statements_together_are_the_ledger(new_broker: Callable[[], Broker], entries: list[LatePosting]) -> None:
    """Months from May to September; nothing is posted after September has closed. Each example adds to the ledger of
    those before it, so nothing is frozen: the same sums are asked for."""
    broker = new_broker()
    with broker.store.reading() as look:
        number = sum(1 for _ in look.all_entries())
    with broker.store.writing() as tx:
        for one in entries:
            number += 2
            since = MAY + one.hour * HOUR
            until = since + one.hours * HOUR
            tags = replace(RUN, job_id=f"job-{number}", team=one.team, capacity_type=one.kind)
            amount = str(Money(one.micros).dollars)
            tx.post(
                spent(number, amount, since, until, until + one.late * DAY, movement=Movement.ADJUST, money=one.money,
                      tags=tags)
            )  # fmt: skip
    all_of, month = Money.ZERO, BillingMonth.of(MAY)
    with broker.store.reading() as look:
        while month.start < OCTOBER:
            spending = look.team_spending(month.start, month.end, month.closes)
            all_of += sum((cost.own for cost in spending.costs), Money.ZERO)
            all_of += sum(look.corrections_billed_in(month).values(), Money.ZERO)
            month = BillingMonth.of(month.end)
        assert all_of == sum((one.amount for one in look.all_entries() if one.account == Account.SPENT), Money.ZERO)
        may = BillingMonth.of(MAY)
        then = look.team_spending(may.start, may.end, may.closes)
        now = look.team_spending(may.start, may.end, OCTOBER + OPEN_FOR)
        since_then = sum(look.corrections_of(may).values(), Money.ZERO)
        assert sum((cost.own for cost in now.costs), Money.ZERO) == since_then + sum(
            (cost.own for cost in then.costs), Money.ZERO
        )
