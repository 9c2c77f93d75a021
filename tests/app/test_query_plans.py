"""What commands ask the store costs the same however many jobs have ended: shown by the plans of the databases.

Each use case runs once, and the database explains every statement that it sends. None may read a table that grows with
history from end to end. SQLite also counts how many of its steps a use case takes, with little and with much
history: that finds an index that is used but does not help.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.event import listen, remove

from broker.app.access.callers import local_caller
from broker.app.advise import history
from broker.app.alerts import approvers
from broker.app.billing import budgets, charges, report
from broker.app.capacity import plan as capacity_plan
from broker.app.jobs import approvals, background, jobs, unknown_names
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.bills import bill_of
from broker.app.jobs.extension import extend
from broker.app.jobs.submit import submit
from broker.app.use_cases.jobs import job_decisions
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, UnknownName
from broker.core.events.outcomes import JobState
from broker.core.job.file import parse_job
from broker.core.values.clock import ManualClock
from broker.ledger.finops.focus.months import BillingMonth
from broker.reconciler.loop import Reconciler
from broker.settings import Settings
from broker.store.market import availability_history
from cli import registries
from tests.actors import ANN, EVERYBODYS, ROOT, with_clock
from tests.empty_store import empty_store
from tests.past import analyse, fill, looking_after, polled, told

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
POLICY = """\
version: 1
policy: plans
budgets:
  - {name: all, amount: "$100,000,000", period: month}
  - {name: team, amount: "$100,000,000", period: quarter, scope: {team: "team-*"}}
guardrails:
  - {name: many, max_concurrent_gpus: 1000000}
  - {name: dear, approve_above: {cost: $50, approvers: [bob], expires: 6h}}
"""
# The tables that keep a row for something that is over.
GROWS = frozenset(
    {"job", "attempt_event", "ledger_entry", "ledger_balance", "decision", "price_change", "signal_change",
     "poll_run", "standing_use", "spend_sum", "machine_time", "movement_sum", "metering", "notice", "charge",
     "budget_mark", "audit_log", "api_token", "api_request", "page_session"}
)  # fmt: skip
# Each of these indexes has only the rows of what is not over.
OPEN_ONLY = frozenset(
    {"job_unclosed", "ledger_balance_open", "notice_waiting", "notice_undelivered", "standing_use_open"}
)
# The rows of this index all answer the question, newest first: with a limit, only so many are read.
NEWEST_FIRST = frozenset({"attempt_event_approval", "job_top", "ledger_entry_long"})
# A report adds up what a period has. The more of a table that is, the rather PostgreSQL reads all of it.
AS_LONG_AS_BILLS = {"report billed of two hours"}  # what was charged in the two months before is read, too
REPORTS = {"report spend of an hour": {"movement_sum"}}


@dataclass
class SentStatements:
    """The statements that a store sent to its database, with their values."""

    statements: list[tuple[str, Any]] = field(default_factory=list)

    def note(self, _c: object, _d: object, statement: str, values: Any, _e: object, many: bool) -> None:
        self.statements.append((statement, values[0] if many else values))


@dataclass
class QuerySite:
    """A broker, the jobs that run, and a reconciler with its engine in memory."""

    broker: Broker
    running: Sequence[str]
    reconciler: Reconciler
    clock: ManualClock

    @property
    def database(self) -> Any:
        return self.broker.store._database


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def new_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[int], QuerySite]]:
    """Makes a store with two jobs that run and so many that are closed."""
    made: list[Broker] = []

    def new(closed: int) -> QuerySite:
        home = tmp_path / str(len(made))
        home.mkdir()
        sqlite = request.param == "sqlite"
        url = empty_store(home / "store.db") if sqlite else str(request.getfixturevalue("new_postgres_store")())
        broker = Broker(Settings(home=home, store=url, runs=(home / "runs").as_uri()), registries(), EVERYBODYS)
        made.append(broker)
        clock = ManualClock(NOW)
        broker = with_clock(broker, clock)
        broker.store.activate_policy({"plans.yaml": POLICY}, by="test")
        running = fill(broker.store, NOW, closed=closed)
        polled(broker.store, NOW, polls=closed)
        told(broker.store, NOW, times=closed)
        if request.param == "postgresql":
            analyse(broker.store)
        return QuerySite(broker, running, looking_after(broker.store, running, clock), clock)

    yield new
    for broker in made:
        broker.store.close()


# --- what is done with it -------------------------------------------------------------------------------------------


def look(site: QuerySite) -> None:
    site.reconciler.tick()


def settle(site: QuerySite) -> None:
    site.clock.advance(timedelta(minutes=20))
    site.reconciler.tick()


def new_job(site: QuerySite) -> None:
    text = "name: new\nrun: 'true'\nresources: {accelerators: 'H100:8'}\nmax_duration: 1h\nteam: team-1\n"
    submit(site.broker, parse_job(text, file="job.yaml", now=NOW), by=ANN)


def listed(site: QuerySite) -> None:
    assert len(jobs.search(site.broker, limit=20).views) == 20


def listed_by(site: QuerySite) -> None:
    assert len(jobs.search(site.broker, users=["user-3"], limit=20).views) == 20
    assert len(jobs.search(site.broker, teams=["team-3"], limit=20).views) == 20
    assert not jobs.search(site.broker, users=["nobody"], limit=20).views
    assert len(jobs.search(site.broker, states=(JobState.SUCCEEDED,), limit=20).views) == 20
    assert not jobs.search(site.broker, states=(JobState.FAILED,), limit=20).views
    mine = jobs.search(site.broker, states=(JobState.QUEUED, JobState.RUNNING), users=["user-1"]).views
    assert [view.id for view in mine] == [site.running[1]]


def found_by_name(site: QuerySite) -> None:
    assert jobs.find(site.broker, "past-03").job.name == "past-03"
    assert jobs.find(site.broker, "open-00-tm").id == site.running[0]
    with pytest.raises(UnknownName):
        jobs.find(site.broker, "past-03-tm")  # several begin so
    with pytest.raises(UnknownName):
        jobs.find(site.broker, "nosuch")


def names(site: QuerySite) -> None:
    with site.broker.store.reading() as look:
        assert look.names_in_jobs()["user"] >= {f"user-{number}" for number in range(20)}
    unknown_names.unknown_names(site.broker, site.broker.policy())


def spent_in_an_hour(site: QuerySite) -> None:
    assert report.spend(site.broker, "team", since=NOW - timedelta(hours=1), until=NOW)
    assert report.spend(site.broker, "provider", since=NOW - timedelta(hours=1))


def used(site: QuerySite) -> None:
    since = NOW - timedelta(hours=2)
    url = site.broker.settings.store_url
    assert len(history.recorded_use(url, lambda: site.broker, since)) == 2
    assert len(capacity_plan.demand_from_history(site.broker, since).demand) == 1


def charged(site: QuerySite) -> None:
    assert len(charges.billed_attempts(site.broker, NOW - timedelta(hours=2)).rows) == 2


def spent_by_teams(site: QuerySite) -> None:
    with site.broker.store.reading() as look:
        since = NOW - timedelta(hours=1)
        assert look.used_in(since, NOW, NOW).cells
        assert look.team_spending(since, NOW).costs
        assert not look.recorded_after(look.last_entry(), [BillingMonth.of(NOW - timedelta(days=99))]).costs


def units_of_an_hour(site: QuerySite) -> None:
    with site.broker.store.reading() as look:
        since = NOW - timedelta(hours=1)
        look.succeeded_runs(None, since, NOW)
        assert look.gpu_attempts(None, since, NOW)
        assert not look.reported_metrics("team-1", since, NOW)
        assert not look.served_attempts(None, since, NOW)


def searched_for_anomalies(site: QuerySite) -> None:
    with site.broker.store.reading() as look:
        assert look.daily_by_team(NOW - timedelta(days=3), NOW)
        look.spending_by_job("team-1", NOW - timedelta(hours=1), NOW)


def found(site: QuerySite) -> None:
    view = jobs.find(site.broker, site.running[0])
    bill_of(site.broker, view)
    jobs.events(site.broker, view)
    job_decisions(local_caller(site.broker, ROOT), view.id)


def budget_lines(site: QuerySite) -> None:
    lines = budgets.budgets(site.broker)
    assert len(lines) == 2
    budgets.daily_spend(site.broker, lines[0])


def asked(site: QuerySite) -> None:
    approvals.requests(site.broker)
    approvals.requests(site.broker, include_decided=True)
    assert len(approvals.standing_grants(site.broker)) == 1
    with site.broker.store.reading() as look:
        assert look.asked_about(200)
        assert {view.id for view in look.undecided()} <= set(site.running)
    approvers.queue_notices(site.broker)


def before_the_prices_to_prune(site: QuerySite) -> None:
    with site.broker.store.reading() as look:
        assert list(look.submitted_before(NOW - timedelta(days=4000))) == []


def of_an_hour(site: QuerySite) -> None:
    with site.broker.store.reading() as look:
        found = [view.id for view in look.submitted_before(NOW, NOW - timedelta(hours=2))]
    assert set(site.running) <= set(found)


def first_of_all(site: QuerySite) -> None:
    with site.broker.store.reading() as look:
        assert next(iter(look.submitted_before(NOW))).closed


def whose_files_may_go(site: QuerySite) -> None:
    with site.broker.store.reading() as look:
        found = list(look.ended_between(NOW - timedelta(days=3), NOW - timedelta(days=1)))
        assert found
        assert all(view.closed for view in found)


def work_left(site: QuerySite) -> None:
    assert background.has_work_left(site.broker)
    with site.broker.store.reading() as look:
        assert look.has_open_jobs()


def changed(site: QuerySite) -> None:
    view = jobs.find(site.broker, site.running[1])
    with suppress(BrokerError):
        extend(site.broker, view, JobLimits(max_duration=timedelta(hours=500)), by=ANN)


USE_CASES: dict[str, Callable[[QuerySite], None]] = {
    "look": look,
    "settle": settle,
    "submit": new_job,
    "jobs list": listed,
    "jobs list of somebody, or in some state": listed_by,
    "status by name": found_by_name,
    "names in policies": names,
    "report spend of an hour": spent_in_an_hour,
    "use of two hours": used,
    "report billed of two hours": charged,
    "report review, showback and chargeback of an hour": spent_by_teams,
    "report units of an hour": units_of_an_hour,
    "report anomalies": searched_for_anomalies,
    "jobs show": found,
    "jobs extend": changed,
    "budget list, budget show": budget_lines,
    "approvals list": asked,
    "is there work left": work_left,
    "whose files may go": whose_files_may_go,
    "prices prune": before_the_prices_to_prune,
    "jobs submitted in two hours": of_an_hour,
}
STREAMED = {"jobs before a time, a few at a time": first_of_all}


# --- what the database says to it -----------------------------------------------------------------------------------


def scans_on_sqlite(connection: Connection, statement: str, values: Any) -> list[str]:
    rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
    scans = [row.detail for row in rows if row.detail.startswith("SCAN ")]
    if "WHERE" not in statement and "LIMIT" in statement:
        return []  # the first rows of a table, in the order of an index
    bounded = OPEN_ONLY | NEWEST_FIRST if "LIMIT" in statement else OPEN_ONLY
    return [scan for scan in scans if _grows(scan.split()[1], statement) and not bounded & set(scan.split())]


def _grows(name: str, statement: str) -> bool:
    """Whether the name, or what it is another name of in the statement, is a table that grows."""
    known = re.search(rf"\b(\w+) AS {name}\b", statement)
    return name in GROWS or (known is not None and known.group(1) in GROWS)


def scans_on_postgresql(connection: Connection, statement: str, values: Any) -> list[str]:
    (found,) = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", values).scalars()
    plan = found if isinstance(found, list) else json.loads(found)
    return [str(node["Relation Name"]) for node in _nodes(plan[0]["Plan"]) if _reads_all(node)]


def _reads_all(node: dict[str, Any]) -> bool:
    return node["Node Type"] == "Seq Scan" and node["Relation Name"] in GROWS


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", ()):
        yield from _nodes(inner)


def recorded(site: QuerySite, use_case: Callable[[QuerySite], object]) -> list[tuple[str, Any]]:
    """The statements that a use case sends, each once."""
    asked = SentStatements()
    listen(site.database.engine, "before_cursor_execute", asked.note)
    try:
        use_case(site)
    finally:
        remove(site.database.engine, "before_cursor_execute", asked.note)
    words = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
    return list({text: (text, values) for text, values in asked.statements if text.startswith(words)}.values())


def test_no_statement_reads_a_table_that_grows_from_end_to_end(
    new_site: Callable[[int], QuerySite], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        availability_history, "_MAX_JOBS", 100
    )  # the newest so many, a small part of all as in a large store
    site = new_site(20_000 if request.node.callspec.params["new_site"] == "postgresql" else 4000)
    scans = scans_on_sqlite if site.database.is_sqlite else scans_on_postgresql
    told: dict[str, str] = {}
    for name, use_case in USE_CASES.items():
        statements = recorded(site, use_case)
        assert statements, f"{name} asks nothing"
        with site.database.reading() as connection:
            for statement, values in statements:
                if bad := set(scans(connection, statement, values)) - REPORTS.get(name, set()):
                    told[f"{name}: {statement}"] = str(bad)
    assert not told, "\n".join(f"{what}: {why}" for what, why in told.items())


def steps(site: QuerySite, use_case: Callable[[QuerySite], None]) -> int:
    """How many steps of its machine SQLite takes over a use case, in thousands."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    def watch(_c: object, cursor: sqlite3.Cursor, *_: object) -> None:
        cursor.connection.set_progress_handler(count, 100)

    listen(site.database.engine, "before_cursor_execute", watch)
    try:
        use_case(site)
    finally:
        remove(site.database.engine, "before_cursor_execute", watch)
    return taken


@pytest.mark.system
def test_no_use_case_takes_more_steps_the_more_jobs_are_closed(new_site: Callable[[int], QuerySite]) -> None:
    little, much = new_site(2200), new_site(8000)  # both longer than any look back
    if not little.database.is_sqlite:
        pytest.skip("only SQLite counts its steps")
    told = {}
    for name, use_case in {**USE_CASES, **STREAMED}.items():
        if name in AS_LONG_AS_BILLS:
            continue
        few, many = steps(little, use_case), steps(much, use_case)
        if many > few * 1.5 + 20:
            told[name] = (few, many)
    assert told == {}
