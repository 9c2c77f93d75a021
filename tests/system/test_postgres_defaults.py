"""PostgreSQL as administrators set it up: no default of a role, a database or the server lets a budget be overspent."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from broker.app.jobs.submit import submit
from broker.app.market.market import freshen
from broker.app.wiring import Broker
from broker.core.errors import NotAllowed, StoreProblem
from broker.core.events import events as ev
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.market.offers import MoneyKind
from broker.core.ports import BudgetSpec
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.settings import Settings
from broker.store import Store, open_store
from broker.store.engine import database
from cli import registries
from tests.actors import ANN, EVERYBODYS
from tests.program import eventually
from tests.system.race_worker import job_text

pytestmark = pytest.mark.system

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
SCOPES = ("role", "database", "server")
LEVELS = ("read uncommitted", "read committed", "repeatable read", "serializable")
OWNER = "gpubroker_owner"
# Each asks for $1, so that a third of them fit.
WRITERS, JOBS_EACH, BUDGET = 6, 6, Money.usd("12")
POLICY = (
    f'version: 1\npolicy: t\nbudgets: [{{name: pretend, amount: "{BUDGET}", period: fixed, from: 2020-01-01,'
    " to: 2100-01-01, counts: [sandbox]}]\n"
)
ALL_OF_IT = BudgetSpec("pretend", "fixed", "UTC", frozenset({"sandbox"}))


def ask(url: str, *statements: str, options: str = "") -> Any:
    """Run statements, each a transaction of its own; what the last one returns, if anything."""
    import psycopg

    with psycopg.connect(url, autocommit=True, options=options) as connection:
        for statement in statements:
            found = connection.execute(statement)
        row = found.fetchone() if found.description else None
    return row and row[0]


_IDLE = "FROM pg_stat_activity WHERE state = 'idle' AND datname = current_database()"
END_IDLE_ONES = f"SELECT count(pg_terminate_backend(pid)) {_IDLE}"
SetDefault = Callable[[str, str, str], str]


@pytest.fixture
def set_default(new_postgres: Callable[[], str]) -> Iterator[SetDefault]:
    """Sets a setting for a role, a database or the server; gives the URL of a store that meets it."""
    admin = new_postgres()
    parts = urlsplit(admin)
    name = parts.path.lstrip("/")
    owned = urlunsplit(parts._replace(netloc=f"{OWNER}:@"))
    exists = ask(admin, f"SELECT count(*) FROM pg_roles WHERE rolname = '{OWNER}'")
    if not exists:
        ask(admin, f"CREATE ROLE {OWNER} LOGIN")
    ask(admin, f"ALTER DATABASE {name} OWNER TO {OWNER}")
    changed: list[str] = []

    def change(scope: str, setting: str, value: str) -> str:
        of = {"role": f"ALTER ROLE {OWNER}", "database": f"ALTER DATABASE {name}", "server": "ALTER SYSTEM"}[scope]
        changed.append(f"{of} RESET {setting}")
        ask(admin, f"{of} SET {setting} = '{value}'", "SELECT pg_reload_conf()")
        eventually(lambda: ask(owned, f"SHOW {setting}") == value, f"{setting} is {value}")
        return owned

    yield change
    for statement in changed:
        ask(admin, statement, "SELECT pg_reload_conf()", options="-c default_transaction_read_only=off")


@pytest.fixture
def opened() -> Iterator[Callable[[str], Store]]:
    made: list[Store] = []

    def new(url: str) -> Store:
        made.append(open_store(url, clock=ManualClock(NOW)))
        return made[-1]

    yield new
    for store in made:
        store.close()


def submitted(store: Store, job_id: str) -> None:
    with store.writing() as tx:
        body = ev.Submitted(job=Job(name=job_id, run="x"), user="ann", max_duration_seconds=3600)
        tx.append(job_id, [(None, body)], NOW)


def waits_for_its_turn(url: str) -> bool:
    query = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    return bool(ask(url, query))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_writer_that_waited_for_its_turn_sees_what_the_one_before_committed(
    scope: str, level: str, set_default: SetDefault, opened: Callable[[str], Store]
) -> None:
    url = set_default(scope, "default_transaction_isolation", level)
    one, other = opened(url), opened(url)
    seen: list[object] = []

    def second() -> None:
        with other.writing() as tx:
            seen.append(tx.job("first"))
            tx.append("first", [(None, ev.CancelRequested(by="ann"))], NOW)

    thread = threading.Thread(target=second)
    with one.writing() as tx:
        thread.start()
        eventually(lambda: waits_for_its_turn(url), "the second writer waits")
        body = ev.Submitted(job=Job(name="first", run="x"), user="ann", max_duration_seconds=3600)
        view = tx.append("first", [(None, body)], NOW)
    thread.join(240)
    assert seen == [view]
    with one.reading() as look:
        assert len(look.events("first")) == 2


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_reader_sees_one_moment_whatever_is_committed_meanwhile(
    scope: str, level: str, set_default: SetDefault, opened: Callable[[str], Store]
) -> None:
    url = set_default(scope, "default_transaction_isolation", level)
    one, other = opened(url), opened(url)
    with one.reading() as look:
        assert look.jobs() == []
        submitted(other, "later")
        assert look.jobs() == []
    with one.reading() as look:
        assert [view.id for view in look.jobs()] == ["later"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("scope", SCOPES)
def test_admissions_at_once_never_hold_more_than_the_budget(
    scope: str, level: str, set_default: SetDefault, tmp_path: Path
) -> None:
    url = set_default(scope, "default_transaction_isolation", level)
    home = tmp_path / "home"
    home.mkdir()
    brokers = [
        Broker(Settings(home=home, store=url, runs=(home / "runs").as_uri()), registries(), EVERYBODYS)
        for _ in range(WRITERS)
    ]
    brokers[0].store.activate_policy({"test.yaml": POLICY}, by="test")
    for broker in brokers:
        freshen(broker, sandbox=True)
    answers: list[str] = []
    begin = threading.Barrier(WRITERS)

    def writer(number: int, broker: Broker) -> None:
        begin.wait(240)
        for each in range(JOBS_EACH):
            job = parse_job(job_text(f"job-{number}-{each}", "1.00"), file="job.yaml", now=broker.clock.now())
            try:
                submit(broker, job, by=ANN)
                answers.append("admitted")
            except NotAllowed:
                answers.append("refused")
            except Exception as error:  # noqa: BLE001  # told below, whatever it is
                answers.append(repr(error))

    threads = [threading.Thread(target=writer, args=each) for each in enumerate(brokers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    with brokers[0].store.reading() as look:
        held = sum((hold.held for hold in look.open_holds(ALL_OF_IT)), Money.ZERO)
        kept = [look.balance(view.id)[MoneyKind.SANDBOX].held for view in look.jobs()]
    for broker in brokers:
        broker.store.close()
    assert sorted(set(answers)) == ["admitted", "refused"]
    assert len(answers) == WRITERS * JOBS_EACH
    assert held == sum(kept, Money.ZERO) == BUDGET
    assert answers.count("admitted") == len(kept) == 12


# --- what else an administrator may set -----------------------------------------------------------------------------


@pytest.mark.parametrize("scope", SCOPES)
def test_a_database_that_is_read_only_by_default_is_read_and_not_written(
    scope: str, set_default: SetDefault, opened: Callable[[str], Store]
) -> None:
    """An administrator, or a service whose disk is nearly full, says so by a default; it is not overridden."""
    url = set_default(scope, "statement_timeout", "0")
    submitted(opened(url), "early")
    set_default(scope, "default_transaction_read_only", "on")
    store = opened(url)
    for _ in range(2):  # the second time on a connection that has been used
        with store.reading() as look:
            assert [view.id for view in look.jobs()] == ["early"]
        with pytest.raises(StoreProblem, match="cannot be written to") as told:
            submitted(store, "late")
        assert "default_transaction_read_only" in told.value.hint


def test_deferrable_by_default_changes_nothing(set_default: SetDefault, opened: Callable[[str], Store]) -> None:
    set_default("database", "default_transaction_deferrable", "on")
    store = opened(set_default("database", "default_transaction_isolation", "serializable"))
    submitted(store, "job")
    with store.reading() as look:
        assert [view.id for view in look.jobs()] == ["job"]


def test_a_statement_timeout_that_ends_the_wait_for_a_turn_is_told(
    set_default: SetDefault, opened: Callable[[str], Store]
) -> None:
    url = set_default("role", "default_transaction_deferrable", "off")
    one, other = opened(url), opened(url)
    set_default("role", "statement_timeout", "50ms")
    late = opened(url)
    with one.writing(), pytest.raises(StoreProblem, match="took too long") as told:
        submitted(late, "job")
    assert "statement_timeout" in told.value.hint
    submitted(other, "job")


def idles(store: Store, url: str) -> None:
    """Write, wait until the server has ended the transaction, and write again."""
    with store.writing() as tx:
        body = ev.Submitted(job=Job(name="job", run="x"), user="ann", max_duration_seconds=3600)
        tx.append("job", [(None, body)], NOW)
        query = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"
        eventually(lambda: not ask(url, query), "the server ends the transaction")
        tx.append("job", [(None, ev.CancelRequested(by="ann"))], NOW)


def test_a_transaction_that_was_idle_for_too_long_is_told_and_kept_nothing(
    set_default: SetDefault, opened: Callable[[str], Store]
) -> None:
    url = set_default("role", "idle_in_transaction_session_timeout", "1s")
    store = opened(url)
    with pytest.raises(StoreProblem, match="idle") as told:
        idles(store, url)
    assert "idle_in_transaction_session_timeout" in told.value.hint
    with store.reading() as look:
        assert look.jobs() == []
    submitted(store, "job")


@pytest.mark.parametrize("writes", [False, True])
def test_a_connection_that_the_server_ended_is_replaced(
    writes: bool, new_postgres: Callable[[], str], opened: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_postgres()
    store = opened(url)
    submitted(store, "early")
    assert ask(url, END_IDLE_ONES) >= 1
    monkeypatch.setattr(database, "_TRUSTED_SECONDS", 0.0)  # as if it had been a while
    if writes:
        submitted(store, "late")
    with store.reading() as look:
        assert {view.id for view in look.jobs()} == ({"early", "late"} if writes else {"early"})


def test_a_connection_that_is_ended_between_two_transactions_in_a_row_is_told_once(
    new_postgres: Callable[[], str], opened: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_postgres()
    store = opened(url)
    submitted(store, "early")
    assert ask(url, END_IDLE_ONES) >= 1
    monkeypatch.setattr(database, "_TRUSTED_SECONDS", 3600.0)
    with pytest.raises(StoreProblem, match="ended the connection"):
        submitted(store, "late")
    submitted(store, "late")
