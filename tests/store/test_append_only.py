"""The database itself refuses to change what was written, whoever asks."""

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from broker.core.access.api_tokens import AuditRecord
from broker.core.events.events import Submitted
from broker.core.job.jobs import Job
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, Answer
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags, move
from broker.ledger.finops.showback import SharingRules, Statement
from broker.store import Store

SAME = {
    "attempt_event": "job_id, seq, attempt, at, kind, body",
    "ledger_entry": "id, movement_id, movement, account, micros, money, at, covers_from, covers_to, job_id, user_name, "
    "team, project, workload, environment, attempt, provider, region, capacity_type, accelerator, gpus, note",
    "decision": "id, at, action, user_name, job_name, job_id, attempt, pool, answer, policy_version, facts_hash, body",
    "policy_set": "number, activated_at, activated_by, sha256, files, note",
    "statement": "month, frozen_at, frozen_by, body",
    "audit_log": "number, at, person, origin, token, action, subject, outcome, before, after, reason, digest",
}


@pytest.fixture
def filled(store: Store, clock: ManualClock) -> Store:
    now = clock.now()
    tags = Tags("j1", "ada")
    with store.writing() as journal:
        job = Job(name="llama", run="true")
        journal.append("j1", [(None, Submitted(job=job, user="ada", max_duration_seconds=1.0))], now)
        journal.post(
            move(
                Movement.HOLD,
                Money(5),
                movement_id="m",
                money=MoneyKind.CASH,
                at=now,
                covers=(now, now),
                tags=tags,
            )
        )
        journal.add_statement(Statement("2026-10", now, "ada", SharingRules(), (), (), Money.ZERO, 2))
        journal.record(Decision(now, ActionKind.LAUNCH, "ada", "llama", Answer.ALLOW, "1", "x"))
    store.activate_policy({"a.yaml": "x"}, by="ada")
    with store.access.writing() as tx:
        tx.log(AuditRecord(now, "ada", "api 127.0.0.1", "jobs.cancel", "j1"))
    return store


ANYWHERE = ["DELETE FROM {table}", "UPDATE {table} SET {first} = {first}"]
STATEMENTS = {
    "sqlite": [*ANYWHERE, "INSERT OR REPLACE INTO {table} ({columns}) SELECT {columns} FROM {table}"],
    "postgresql": [*ANYWHERE, "TRUNCATE {table}"],
}


@pytest.mark.parametrize("table", SAME)
def test_raw_sql_cannot_change_what_was_written(filled: Store, url: str, table: str) -> None:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    before = _all(engine, table)
    assert before
    for statement in STATEMENTS[engine.dialect.name]:
        sql = statement.format(table=table, columns=SAME[table], first=SAME[table].split(",")[0])
        with pytest.raises(DBAPIError, match=f"{table} is append-only"), engine.begin() as connection:
            connection.execute(text(sql))
        assert _all(engine, table) == before
    engine.dispose()


def _all(engine: Engine, table: str) -> list[tuple[object, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(f"SELECT * FROM {table}"))]
