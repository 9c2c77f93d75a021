"""What teams spent, and what was recorded late, as the databases add it up."""

from broker.core.values.money import Money
from broker.ledger.entries import Movement
from broker.ledger.finops.focus.months import BillingMonth
from broker.ledger.finops.showback import SharingRules, Statement, TeamCost
from broker.store import Store
from tests.focus_ledger import HOUR, OCTOBER, SEPTEMBER, post_two_months, spent

MONTH = BillingMonth.of(SEPTEMBER)


def test_teams_spend_and_what_is_bought_in_advance_is_apart(store: Store) -> None:
    post_two_months(store)
    with store.reading() as look:
        found = look.team_spending(MONTH.start, MONTH.end)
    used = Money.usd("7.25")
    assert found.costs == (TeamCost("nlp", cash=Money.usd("29")), TeamCost("web", amortised=used, on_own=used))
    assert found.bought_in_advance == Money.usd("700")


def test_late_is_what_was_recorded_after_an_entry_whenever_it_was_posted(store: Store) -> None:
    with store.reading() as look:
        assert look.last_entry() == 0
    post_two_months(store)
    with store.reading() as look:
        last = look.last_entry()
        assert look.recorded_after(0, [MONTH]).bought_in_advance == Money.usd("700")
    with store.writing() as tx:
        tx.post(spent(8, "48", OCTOBER - 8 * HOUR, OCTOBER + 16 * HOUR, SEPTEMBER, movement=Movement.ADJUST))
    with store.reading() as look:
        assert look.recorded_after(last, [MONTH, BillingMonth.of(OCTOBER)]).costs == {
            ("2026-09", "nlp"): Money.usd("16"),
            ("2026-10", "nlp"): Money.usd("32"),
        }
        assert look.recorded_after(last, []).costs == look.recorded_after(look.last_entry(), [MONTH]).costs == {}


ROWS = (TeamCost("nlp", cash=Money.usd("48")),)
FROZEN = Statement("2026-09", OCTOBER, "ann", SharingRules(), ROWS, (), Money.ZERO, 0)
