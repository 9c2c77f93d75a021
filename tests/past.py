"""A store with a long past: a few jobs made through the ordinary interfaces, and each copied many times.

The database makes the copies, with one statement per table. So they equal records of the product, with other ids and
other days, and a million of them take minutes instead of hours. Times within JSON documents are not changed.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Connection, Table
from sqlmodel import AutoString, SQLModel

from broker.core.events import events as ev
from broker.core.events.agent_events import Claimed, CommandStarted, Restored
from broker.core.events.events import EventBody
from broker.core.events.outcomes import Cause, JobState
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.policy.approvals import StandingGrant
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, Answer
from broker.core.values.burns import Burn
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import DAY, Movement, Tags
from broker.reconciler.admission.records import attempt_key, hold_entries
from broker.reconciler.loop import Reconciler
from broker.reconciler.ports import Controllers, ReconcilerPorts
from broker.reconciler.settlement.batch import post_due
from broker.reconciler.settlement.settlement import release
from broker.store import Store
from broker.store.engine.fields import to_micros
from broker.store.schema.jobs import STILL_RUNNING
from tests.controllers import AskedAlways
from tests.reconciler.rehearsal import StageEngine, StageMachine, StageMailbox, TrustingGate

HOUR = timedelta(hours=1)
STANDING = 1  # the number of the standing grant that approves a quarter of the jobs
BY_DAY = 900  # the copies are spread over this number of days, those of one day at the same hour
_FIRST = 10**7  # so that the numbers of copies have equal lengths, and sort by value
# Amounts are smaller than this, and times (microseconds since 1970) are larger.
_A_TIME = 10**15


def offer(now: datetime) -> Offer:
    """An H100 at $10 an hour."""
    return Offer(
        "cloud", "here", "here-1", "box", "H100", 8, CapacityType.ON_DEMAND, Money.usd("10"), now, "api",
        cpus=64, memory_gib=512, availability=Availability.AVAILABLE, engine="stage",
    )  # fmt: skip


def started(
    store: Store,
    number: int,
    at: datetime,
    *,
    of: str = "open",
    on: CapacityType = CapacityType.ON_DEMAND,
    part: str = "",
    reference: ev.Baseline | None = None,
    **more: Any,
) -> str:
    """Submit a job whose machine comes up ten minutes after ``at`` (UTC); returns its id. ``part``: of a card, that it
    has alone."""
    job_id, name = f"{of}-{number:02d}-tmplt", f"{of}-{number:02d}"
    job = Job(
        name=name, run="python train.py", team=f"team-{number % 5}", project=f"project-{number % 7}",
        environment=("production", "research", None)[number % 3], **more,
    )  # fmt: skip
    rate = Money.usd("10")
    machine = replace(offer(at), capacity_type=on)
    machine = replace(machine, accelerator=part, count=1) if part else machine
    placement = Placement(machine, 1, rate, rate, (), None, None, 1.0, 1.0, 0.0)
    request = ev.LaunchRequested(key=attempt_key(job_id, 1), engine="stage", placement=placement)
    submission = ev.Submitted(
        job=job, user=f"user-{number}", deadline=more.get("deadline"), max_duration_seconds=400 * 3600.0,
        on_demand=reference,
    )  # fmt: skip
    items: list[tuple[int | None, EventBody]] = [
        (None, submission),
        *([(None, ev.ApprovalGiven(by="bob", standing=STANDING))] if number % 4 == 0 else []),
        (1, request),
        (1, ev.Launched(handle=request.key)),
        (1, ev.MachineUp(since=at + HOUR / 6)),
        (1, Claimed(host="node")),
        (1, Restored(checkpoint=None)),
        (1, CommandStarted()),
    ]
    decision = Decision(
        at, ActionKind.LAUNCH, f"user-{number}", name, Answer.ALLOW, "1", "-",
        job_id=job_id, attempt=1, pool=placement.offer.pool, verdicts=(), seen={},
    )  # fmt: skip
    tags = Tags(job_id, f"user-{number}", job.team, job.project, job.workload.value, job.environment)
    with store.writing() as tx:
        tx.append(job_id, items, at)
        tx.record(decision)
        if number % 4 == 0:
            tx.use_standing(STANDING, job_id)
        burn = Burn.evenly(Money.usd("40"), (at, at + 4 * HOUR))
        tx.post(hold_entries(tags, {}, {MoneyKind.CASH: burn}, Movement.HOLD, 1))
    return job_id


def finished(store: Store, number: int, at: datetime, told: Sequence[EventBody] = (), **changes: Any) -> str:
    """Let a job run for two hours from ``at`` (UTC): settled twice, ended, the rest of its hold released, closed.
    ``told``: what its agent reports after an hour."""
    job_id = started(store, number, at, of="past", **changes)
    ends: Sequence[tuple[int, list[tuple[int | None, ev.EventBody]]]] = (
        (1, [(1, body) for body in told]),
        (2, [(1, ev.AttemptEnded(cause=Cause.COMPLETED)), (1, ev.MachineGone(gone_at=at + 2 * HOUR))]),
    )
    for hours, bodies in ends:
        now = at + hours * HOUR
        with store.writing() as tx:
            view = tx.append(job_id, bodies, now) if bodies else tx.job(job_id)
            assert view is not None
            post_due(tx, [view], now)
            if hours == 2:
                tx.post(release(view, tx.sums([job_id])[job_id], now))
                tx.append(job_id, [(None, ev.JobEnded(state=JobState.SUCCEEDED)), (None, ev.JobClosed())], now)
    return job_id


def multiply(store: Store, job_ids: Sequence[str], copies: int, days: int = BY_DAY) -> None:
    """Copy each of these closed jobs ``copies`` times, the first copy a day before it, the next two days before it,
    over ``days`` days.
    """
    of_jobs = [table for table in SQLModel.metadata.sorted_tables if table.name == "job" or "job_id" in table.c]
    for table in of_jobs:
        for job_id in sorted(job_ids):  # in the order of the keys, which is the fastest
            with store._database.writing() as connection:
                if store._database.is_sqlite:
                    connection.exec_driver_sql("PRAGMA cache_size=-500000")  # KiB
                _copy(connection, table, job_id, copies, days)
    with store._database.writing() as connection:
        _copy_sums(connection, copies, days)


def _numbers(connection: Connection, copies: int) -> str:
    if connection.dialect.name == "postgresql":
        return f"(SELECT n FROM generate_series(1, {copies}::bigint) AS n) AS number"
    counted = f"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {copies}) SELECT n FROM c"
    return f"({counted}) AS number"


def _copy(connection: Connection, table: Table, job_id: str, copies: int, days: int) -> None:
    key = "id" if table.name == "job" else "job_id"
    names = [c.name for c in table.c if c is not table.autoincrement_column]
    values = []
    for name in names:
        kind = table.c[name].type
        if isinstance(kind, AutoString):
            values.append(f"replace({name}, '{job_id}', '{job_id}-' || ({_FIRST} + n))")
        elif isinstance(kind, BigInteger):
            values.append(
                f"CASE WHEN {name} > {_A_TIME} THEN {name} - (n - n / {days} * {days}) * {DAY} ELSE {name} END"
            )
        else:
            values.append(name)
    connection.exec_driver_sql(
        f"INSERT INTO {table.name} ({', '.join(names)}) SELECT {', '.join(values)}"
        f" FROM {table.name} CROSS JOIN {_numbers(connection, copies)} WHERE {key} = '{job_id}'"
    )


def _copy_sums(connection: Connection, copies: int, days: int) -> None:
    """Add the sums of the copies: the same on each day with copies; only copied jobs may have spent anything."""
    names = "size, group_id, slot, micros"
    connection.exec_driver_sql(f"CREATE TEMPORARY TABLE once AS SELECT {names} FROM spend_sum")
    day, numbers = f"n - n / {days} * {days}", _numbers(connection, copies)
    times = f"(SELECT {day} AS day, count(*) AS times FROM {numbers} GROUP BY 1) AS per_day"
    connection.exec_driver_sql(
        "INSERT INTO spend_sum (size, group_id, slot, micros)"
        f" SELECT size, group_id, slot - day * ({DAY} / size), micros * times FROM once CROSS JOIN {times} WHERE true"
        " ON CONFLICT (size, group_id, slot) DO UPDATE SET micros = spend_sum.micros + excluded.micros"
    )
    connection.exec_driver_sql("DROP TABLE once")


def fill(
    store: Store, now: datetime, *, closed: int, running: int = 2, templates: int = 20, days: int = BY_DAY
) -> list[str]:
    """Fill the store with ``closed`` closed jobs, over ``days`` days, and ``running`` running ones (``now``: UTC);
    returns the ids of the running ones.
    """
    templates = min(templates, closed)
    at = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=1)
    with store.writing() as tx:
        given = StandingGrant(0, "bob", at, now + 9 * BY_DAY * HOUR, Money.usd("9000000"), ("dear",), ("user-*",))
        assert tx.give_standing(given).number == STANDING
    ids = [finished(store, number, at) for number in range(templates)]
    multiply(store, ids, closed // templates - 1, days)
    return [started(store, number, now - HOUR) for number in range(running)]


def polled(store: Store, now: datetime, *, polls: int = 3000) -> None:
    """Record that two providers were polled ``polls`` times, a minute apart, with as many price changes of one offer,
    an hour apart.

    The offer is available at ``now`` (UTC), for this machine's engine, so that it needs no login. Closed jobs have
    charges.
    """
    times = f"{to_micros(now)} - ({polls} - n) * 60000000"
    with store._database.writing() as connection:
        numbers = _numbers(connection, polls - 1)
        connection.exec_driver_sql(
            "INSERT INTO poll_run"
            " (id, provider, started, finished, seen, changed, complete, skipped, error, status, hint, gone, samples)"
            f" SELECT n, CASE WHEN n - n / 2 * 2 = 0 THEN 'cloud' ELSE 'other' END, {times}, {times}, 1, 1, true,"
            f" '{{}}', '', 'ok', '', 0, '{{}}' FROM {numbers}"
        )
    store.record_poll("cloud", started=now, finished=now, offers=[replace(offer(now), engine="local")])
    with store._database.writing() as connection:
        connection.exec_driver_sql(
            "INSERT INTO price_change (series, at, micros, availability, learned) SELECT series, at - n * 3600000000,"
            f" micros + n, availability, learned FROM price_change CROSS JOIN {numbers}"
        )
        connection.exec_driver_sql(
            "INSERT INTO charge (provider, key, starts, ends, line, account, micros, estimated, source, read_at)"
            " SELECT provider, job_id || '-' || attempt, since, until, '', '', micros, false, 'api', until"
            f" FROM machine_time WHERE until < {STILL_RUNNING}"
        )


def told(store: Store, now: datetime, *, times: int = 3000) -> None:
    """So many notices were delivered, a minute between, of many budgets, periods and watches, but for the last four:
    two wait, two were given up. As often budgets passed marks, and people signed in, which is in the audit log."""
    at, one = f"({to_micros(now)} - ({times} - n) * 60000000)", "(n - n / 20 * 20)"
    rows = {
        "notice (key, target, title, body, severity, made_at, tries, next_try, delivered_at, error, thread)": (
            f"CASE WHEN n - n / 2 * 2 = 0 THEN 'budget/b-' ELSE 'watch/w-' END || {one} || '/' || n,"
            f" 'ops', '', '', 'info', {at}, 1, CASE WHEN n > {times - 2} THEN {at} END,"
            f" CASE WHEN n <= {times - 4} THEN {at} END, CASE WHEN n > {times - 4} THEN 'answered 503' ELSE '' END, ''"
        ),
        "budget_mark (budget, period_start, amount, mark, at)": f"'b-' || {one}, {at}, 1000000, 'half', {at}",
        "api_token (id, person, label, scopes, digest, made_at, made_by, expires_at, revoked_by)": (
            f"'token-' || n, 'user-' || {one}, 'a token', '[\"read\"]', '', {at}, 'user-' || {one}, {at}, ''"
        ),
        "page_session (digest, person, token, made_at, seen_at, ends_at)": (
            f"'session-' || n, 'user-' || {one}, 'token-' || n, {at}, {at}, {at} + 2592000000000"
        ),
        "api_request (person, key, digest, at, body)": f"'user-' || {one}, 'key-' || n, '', {to_micros(now)} - n, ''",
        "audit_log (number, at, person, origin, token, action, subject, outcome, before, after, reason, digest)": (
            f"n, {at}, 'user-' || {one}, 'cli', '', 'session.begin', 'user-' || {one}, 'done', '', '', '', ''"
        ),
    }
    with store._database.writing() as connection:
        numbers = _numbers(connection, times)
        for name in range(20):
            connection.exec_driver_sql(
                "INSERT INTO person (name, service, roles, teams, added_at)"
                f" VALUES ('user-{name}', false, '[]', '{{}}', {to_micros(now)})"
            )
        for into, values in rows.items():
            connection.exec_driver_sql(f"INSERT INTO {into} SELECT {values} FROM {numbers}")


def looking_after(store: Store, running: Sequence[str], clock: ManualClock) -> Reconciler:
    """A reconciler for the running jobs, with engine and run folders in memory; it places no jobs."""
    engine, mailbox = StageEngine(clock), StageMailbox(clock)
    for job_id in running:
        key = attempt_key(job_id, 1)
        engine.machines[key] = StageMachine(None, clock.now() - timedelta(minutes=50))  # type: ignore[arg-type]  # never read
        mailbox.leases[key] = []
        mailbox.says(key)
    ports = ReconcilerPorts(store, lambda name: engine, mailbox, clock)
    return Reconciler(ports, Controllers(AskedAlways(lambda view: False)), TrustingGate())


def analyse(store: Store) -> None:
    """Let the database update its statistics."""
    with store._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
