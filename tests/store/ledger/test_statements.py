"""Statements as earlier versions wrote them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

from pydantic import TypeAdapter
from sqlalchemy import create_engine, text

from broker.core.values.money import Money
from broker.finops.focus.months import BillingMonth
from broker.finops.showback import SharingRules, Statement, TeamCost
from broker.store import Store
from tests.focus_ledger import HOUR, OCTOBER, SEPTEMBER, spent

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
