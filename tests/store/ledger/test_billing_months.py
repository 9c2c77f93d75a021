"""What teams spent, and what was recorded late, as the databases add it up; statements as earlier versions wrote
them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

from pydantic import TypeAdapter
from sqlalchemy import create_engine, text

from broker.core.values.money import Money
from broker.finops.focus.months import BillingMonth
from broker.finops.showback import SharingRules, Statement, TeamCost
from broker.ledger.entries import Movement
from broker.store import Store
from tests.focus_ledger import HOUR, OCTOBER, SEPTEMBER, post_two_months, spent

MONTH = BillingMonth.of(SEPTEMBER)


def test_teams_spend_and_what_is_bought_in_advance_is_apart(store: Store) -> None:
    post_two_months(store)
    with store.reading() as look:
        found = look.team_spending(MONTH.start, MONTH.end)
    used = Money.usd("7.25")
    assert found.costs == (TeamCost("nlp", cash=Money.usd("29")), TeamCost("web", amortised=used, on_own=used))
    assert found.bought == Money.usd("700")


def test_late_is_what_was_recorded_after_an_entry_whenever_it_was_posted(store: Store) -> None:
    with store.reading() as look:
        assert look.last_entry() == 0
    post_two_months(store)
    with store.reading() as look:
        last = look.last_entry()
        assert look.recorded_after(0, [MONTH]).bought == Money.usd("700")
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


def test_a_statement_without_the_number_of_its_last_entry_counted_what_was_posted_before_the_close(
    store: Store, url: str
) -> None:
    closes = BillingMonth.of(SEPTEMBER).closes
    with store.writing() as tx:
        tx.post(spent(8, "48", SEPTEMBER, SEPTEMBER + HOUR, closes - timedelta(microseconds=1)))
    with store.reading() as look:
        counted = look.last_entry()
    with store.writing() as tx:
        tx.post(spent(9, "48", SEPTEMBER, SEPTEMBER + HOUR, closes))
    fields = TypeAdapter(Statement).dump_python(FROZEN, mode="json")
    del fields["entries"], fields["rows"][0]["on_own"]
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        put = text("INSERT INTO statement (month, frozen_at, frozen_by, body) VALUES ('2026-09', 1, 'ann', :body)")
        connection.execute(put, {"body": json.dumps(fields)})
    engine.dispose()
    with store.reading() as look:
        (found,) = look.statements()
        assert found.entries == counted > 0
        assert list(found.rows) == [replace(ROWS[0], on_own=None)], "on which capacity, nobody asked"
        assert look.statement("2026-09") == found
