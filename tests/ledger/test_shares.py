"""How a hold falls into the periods of budgets, as people are shown it."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.market.offers import MoneyKind
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.budgets import PERIODS, budget_shares, budget_uses, fixed_period, periods_touching

CASH, HOUR = MoneyKind.CASH, timedelta(hours=1)
START = datetime(2026, 11, 30, 17, 48, tzinfo=UTC)
# Ten hours at $2.00 an hour: 6.2 of them are in November in UTC, 5.2 in Berlin.
TEN_HOURS = Burn(Money.usd(20), START, START + 10 * HOUR, Money.usd(2))


def budget(name: str = "monthly", period: str = "month", zone: str = "UTC", *counts: str) -> BudgetSpec:
    return BudgetSpec(name, period, zone, frozenset(counts or ("cash",)))


def test_over_a_month_end_each_budget_has_its_own_calendar() -> None:
    shares = budget_shares([budget("utc"), budget("berlin", zone="Europe/Berlin")], {CASH: TEN_HOURS})
    end, berlin_ends, utc_ends = (
        TEN_HOURS.end,
        datetime(2026, 11, 30, 23, tzinfo=UTC),
        datetime(2026, 12, 1, tzinfo=UTC),
    )
    assert [(one.budget.id, one.period_name, str(one.held), one.start, one.end) for one in shares] == [
        ("utc", "November 2026", "$12.40", START, utc_ends),
        ("utc", "December 2026", "$7.60", utc_ends, end),
        ("berlin", "November 2026", "$10.40", START, berlin_ends),
        ("berlin", "December 2026", "$9.60", berlin_ends, end),
    ]


def test_what_the_rate_cannot_use_up_counts_at_the_beginning() -> None:
    with_egress = Burn(Money.usd(23), START, START + 10 * HOUR, Money.usd(2))
    assert [str(one.held) for one in budget_shares([budget()], {CASH: with_egress})] == ["$15.40", "$7.60"]
    egress_alone = Burn(Money.usd(3), START, START, Money.ZERO)
    assert [str(one.held) for one in budget_shares([budget()], {CASH: egress_alone})] == ["$3.00"]


def test_a_budget_shows_only_the_kinds_of_money_that_it_counts() -> None:
    burns = {CASH: TEN_HOURS, MoneyKind.AMORTISED: Burn(Money.usd(5), START, START + HOUR, Money.usd(5))}
    both, one = budget("both", "month", "UTC", "cash", "amortised"), budget("one")
    shown = [(share.budget.id, str(share.held)) for share in budget_shares([both, one], burns)]
    assert shown == [("both", "$17.40"), ("both", "$7.60"), ("one", "$12.40"), ("one", "$7.60")]
    assert budget_shares([budget("pretend", "month", "UTC", "sandbox")], burns) == []
    assert budget_shares([], burns) == []


@pytest.mark.parametrize(("first", "last", "held"), [(30, 30, ["$12.40"]), (1, 5, []), (29, 29, [])])
def test_of_fixed_days_only_what_falls_into_them(first: int, last: int, held: list[str]) -> None:
    fixed = fixed_period(date(2026, 11, first), date(2026, 11, last))
    assert [str(one.held) for one in budget_shares([budget(period=fixed)], {CASH: TEN_HOURS})] == held


def test_holds_of_several_kinds_are_told_together_from_the_first_that_holds_anything() -> None:
    """$10 of cash on November 10, $5 of prepaid money on November 20; what is used up counts for no time."""

    def burn(amount: int, first: int, hours: int) -> Burn:
        start = datetime(2026, 11, first, tzinfo=UTC)
        return Burn(Money.usd(amount), start, start + timedelta(hours=hours), Money.usd(amount))

    both = budget("both", "month", "UTC", "cash", "amortised")
    burns = {CASH: burn(10, 10, 1), MoneyKind.AMORTISED: burn(5, 20, 1)}
    (share,) = budget_shares([both], burns)
    assert (share.held, share.start.day, share.end.day) == (Money.usd(15), 10, 20)
    (share,) = budget_shares([both], {CASH: burn(0, 1, 1), MoneyKind.AMORTISED: burn(5, 20, 1)})
    assert (share.held, share.start.day) == (Money.usd(5), 20)


starts = st.datetimes(datetime(2020, 1, 1), datetime(2036, 1, 1), timezones=st.just(UTC))
burns = st.builds(
    lambda amount, start, hours, rate: Burn(Money(amount), start, start + timedelta(hours=hours), Money(rate)),
    st.integers(1, 10**12),
    starts,
    st.floats(0, 3000),
    st.integers(0, 10**9),
)
budgets = st.builds(
    budget,
    st.just("any"),
    st.sampled_from(PERIODS),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia", "Australia/Lord_Howe"]),
)


@given(burns, budgets)
def test_the_shares_are_those_that_the_budget_is_judged_by_and_add_up(burn: Burn, spec: BudgetSpec) -> None:
    shares = budget_shares([spec], {CASH: burn})
    assert sum((one.held for one in shares), Money.ZERO) == burn.amount
    uses = budget_uses(spec, (burn.start, burn.end), burn.start, lambda *_: Money.ZERO, [burn])
    judged = {(use.period_start, use.period_end): use.held for use in uses if use.held}
    seen = budget_shares([spec], {CASH: burn.seen(burn.start)})
    assert {one.period: one.held for one in seen} == judged
    whole = periods_touching(spec.period, spec.timezone, (burn.start, burn.end))
    assert [one.period for one in shares] == [period for period in whole if burn.share(period)]
