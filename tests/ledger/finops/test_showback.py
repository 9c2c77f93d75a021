"""Dividing a month among teams: all of it, exactly, by the rule that was said."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core.values.money import Money
from broker.ledger.finops.change import NOBODY
from broker.ledger.finops.showback import IDLE, SharingRule, SharingRules, TeamCost, showback, total

NLP = TeamCost("nlp", cash=Money.usd("60"), amortised=Money.usd("10"))
WEB = TeamCost("web", cash=Money.usd("10"), amortised=Money.usd("20"))
PLATFORM = TeamCost("platform", cash=Money.usd("9"))
UNTAGGED = TeamCost(NOBODY, cash=Money.usd("5"))
TEAMS = ["nlp", "web", "vision", "platform", NOBODY]

micros = st.integers(-(10**12), 10**12).map(Money)
costs = st.lists(st.builds(TeamCost, st.sampled_from(TEAMS), micros, micros), unique_by=lambda one: one.team)
rules = st.builds(
    SharingRules,
    st.sampled_from(SharingRule),
    st.sampled_from(SharingRule),
    st.lists(st.sampled_from(["platform", "web"]), unique=True).map(tuple),
    st.dictionaries(st.sampled_from(["nlp", "web", "new"]), st.integers(0, 100), max_size=3),
)


def told(rows: list[TeamCost]) -> dict[str, tuple[str, str, str]]:
    return {row.team: (str(row.idle), str(row.shared), str(row.total)) for row in rows}


@given(costs, st.integers(0, 10**12).map(Money), rules)
def test_all_rows_are_all_of_it(teams: list[TeamCost], idle: Money, how: SharingRules) -> None:
    rows = showback(teams, idle, how)
    assert total(rows).total == total(teams).own + idle
    assert total(rows).own == total(teams).own
    assert total(rows).idle == idle
    assert total(rows).shared == Money.ZERO
    assert len({row.team for row in rows}) == len(rows)
    for row in rows:
        if row.team == NOBODY:
            assert row.idle == row.shared == Money.ZERO


def test_a_team_named_twice_gives_its_cost_once() -> None:
    how = SharingRules(shared=SharingRule.EVEN, shared_teams=("platform", "platform"))
    assert {row.team: str(row.total) for row in showback([NLP, PLATFORM], Money.ZERO, how)} == {
        "nlp": "$79.00",
        "platform": "$0.00",
    }


def test_apart_is_the_default() -> None:
    rows = showback([NLP, WEB, PLATFORM, UNTAGGED], Money.usd("30"), SharingRules(shared_teams=("platform",)))
    assert told(rows) == {
        "nlp": ("$0.00", "$0.00", "$70.00"),
        "web": ("$0.00", "$0.00", "$30.00"),
        IDLE: ("$30.00", "$0.00", "$30.00"),
        "platform": ("$0.00", "$0.00", "$9.00"),
        NOBODY: ("$0.00", "$0.00", "$5.00"),
    }


def test_in_proportion_idle_follows_the_use_of_what_is_held_and_shared_cost_all_spending() -> None:
    how = SharingRules(SharingRule.PROPORTIONAL, SharingRule.PROPORTIONAL, ("platform",))
    assert told(showback([NLP, WEB, PLATFORM, UNTAGGED], Money.usd("30"), how)) == {
        "nlp": ("$10.00", "$6.30", "$86.30"),
        "web": ("$20.00", "$2.70", "$52.70"),
        "platform": ("$0.00", "-$9.00", "$0.00"),
        NOBODY: ("$0.00", "$0.00", "$5.00"),
    }


def test_evenly_and_by_weights_the_largest_remainder_is_rounded_up() -> None:
    teams = [NLP, WEB, TeamCost("vision", cash=Money.usd("1"))]
    even = told(showback(teams, Money(100), SharingRules(SharingRule.EVEN)))
    assert [even[team][0] for team in ("nlp", "vision", "web")] == ["$0.000034", "$0.000033", "$0.000033"]
    fixed = SharingRules(SharingRule.FIXED, weights={"nlp": 3, "new": 1})
    by_weight = told(showback(teams, Money.usd("8"), fixed))
    assert {team: row[0] for team, row in by_weight.items() if row[0] != "$0.00"} == {"nlp": "$6.00", "new": "$2.00"}


def test_with_nobody_to_bear_it_it_stays_visible() -> None:
    how = SharingRules(SharingRule.PROPORTIONAL, SharingRule.EVEN, ("platform",))
    assert told(showback([PLATFORM, UNTAGGED], Money.usd("30"), how)) == {
        IDLE: ("$30.00", "$0.00", "$30.00"),
        "platform": ("$0.00", "$0.00", "$9.00"),
        NOBODY: ("$0.00", "$0.00", "$5.00"),
    }
