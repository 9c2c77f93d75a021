"""When machines were there, kept beside the events, and what was spent in a period."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.job.jobs import Job
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.ledger.budgets import share_within
from broker.ledger.entries import Account, Movement, Tags, move
from broker.ledger.finops.idle import idle_in
from broker.store import Store
from broker.store.ledger.spending import DIMENSIONS, GroupSpending, SpendingPeriod
from tests.past import HOUR, finished, started

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def rows(store: Store) -> list[tuple[object, ...]]:
    with store._database.reading() as connection:
        query = "SELECT * FROM machine_time ORDER BY job_id, attempt"
        return [tuple(row) for row in connection.exec_driver_sql(query)]


def test_machine_time_begins_when_machines_come_up_and_ends_when_they_are_gone(store: Store) -> None:
    with store.writing() as tx:
        submitted = ev.Submitted(job=started_job(), user="ann", max_duration_seconds=3600)
        tx.append("waits", [(None, submitted)], NOW)
    job_id = started(store, 3, NOW)
    with store.reading() as look:
        (one,) = look.machine_time(since=NOW + 100 * HOUR)
        assert (one.job_id, one.attempt, one.since, one.until) == (job_id, 1, NOW + 10 * MINUTE, None)
        assert (one.gpus, one.accelerator, one.price) == (8, "H100", Money.usd("10"))
        assert one.price_per_gpu == Money.usd("1.25")
    gone = NOW + 2 * HOUR
    over = ev.AttemptEnded(cause=Cause.COMPLETED), ev.MachineGone(gone_at=gone)
    with store.writing() as tx:
        tx.append(job_id, [(1, body) for body in over], gone + HOUR)
    with store.reading() as look:
        assert [one.until for one in look.machine_time(since=gone)] == [gone]
        assert look.machine_time(since=gone + timedelta(microseconds=1)) == []
        assert [one.job_id for one in look.machine_time(job_ids=[job_id, "waits"])] == [job_id]


def started_job() -> Job:
    return Job(name="waits", run="x")


def test_machine_time_made_anew_is_what_was_kept(store: Store) -> None:
    for number in range(3):
        finished(store, number, NOW - number * HOUR)
    started(store, 1, NOW)
    before = rows(store)
    assert len(before) == 4
    store.rebuild()
    assert rows(store) == before


def added_up(store: Store, dimension: str, period: SpendingPeriod) -> dict[str, GroupSpending]:
    """The same, entry by entry and attempt by attempt."""
    found: dict[str, GroupSpending] = {}
    start = period.since or datetime.min.replace(tzinfo=UTC)
    end = period.until or datetime.max.replace(tzinfo=UTC)
    of_job = {"team": "team", "project": "project", "environment": "environment", "workload": "workload"}
    jobs: dict[str, set[str]] = {}
    with store.reading() as look:
        for view in look.jobs():
            for attempt in view.attempts:
                up, gone = attempt.up_since, attempt.gone_at
                if up is None or up >= end or (gone is not None and gone < start):
                    continue
                offer = attempt.placement.offer
                if dimension in of_job:
                    name = getattr(view.job, of_job[dimension])
                else:
                    name = {"user": view.user, "job": view.id}.get(dimension) or getattr(offer, dimension)
                name = str(name) if name else "(none)"
                spent = found.setdefault(name, GroupSpending())
                hours = max((min(gone or period.now, end) - max(up, start)) / HOUR, 0)
                spent.machine_hours += hours * attempt.placement.nodes
                spent.gpu_hours += hours * attempt.placement.gpus
                spent.attempts += 1
                jobs.setdefault(name, set()).add(view.id)
                spent.jobs = len(jobs[name])
                for entry in look.entries(view.id):
                    if entry.account is Account.SPENT and entry.tags.attempt == attempt.number:
                        covers = (entry.covers_from, entry.covers_to)
                        if entry.covers_from < end and entry.covers_to >= start:
                            spent.add(entry.money, share_within(entry.amount, covers, (start, end)), bought=False)
    return found


def give_back(store: Store, number: int, amount: Money, end: datetime) -> None:
    """What was settled for the half hour before ``end`` is taken back: the machine was gone earlier than was known."""
    with store.writing() as tx:
        [view] = [one for one in tx.jobs() if one.id.startswith(f"past-{number:02d}")]
        job = view.job
        own = Tags(view.id, view.user, job.team, job.project, job.workload.value, job.environment, attempt=1)
        covers, cash = (end - HOUR / 2, end), MoneyKind.CASH
        tx.post(move(Movement.RESTORE, amount, movement_id=f"r-{number}", money=cash, at=end, covers=covers, tags=own))


PERIODS = {
    "all of it": (None, None),
    "ends within attempts": (None, NOW - 22 * HOUR - 17 * MINUTE),
    "begins within attempts": (NOW - 23 * HOUR + 7 * MINUTE, None),
    "an hour": (NOW - 23 * HOUR, NOW - 22 * HOUR),
    "before everything": (None, NOW - 1000 * HOUR),
    "to come": (NOW + HOUR, None),
}


def test_what_was_spent_in_a_period_is_the_sum_over_its_entries(store: Store) -> None:
    for number in range(6):
        finished(store, number, NOW - (20 + number) * HOUR)
    give_back(store, 1, Money.usd("0.75"), NOW - 20 * HOUR)
    give_back(store, 3, Money.usd("1.5"), NOW - 21 * HOUR - 10 * MINUTE)
    started(store, 1, NOW - HOUR)
    for dimension, (name, (since, until)) in product(sorted(DIMENSIONS), PERIODS.items()):
        period, case = SpendingPeriod(since, until, NOW), (dimension, name)
        with store.reading() as look:
            found = look.spent_by(dimension, period)
            assert look.spent_by(dimension, SpendingPeriod(since, until, NOW, sandbox=True)) == {}, case
        wanted = added_up(store, dimension, period)
        assert found.keys() == wanted.keys(), case
        for group, spent in wanted.items():
            assert found[group].money == spent.money, (*case, group)
            assert (found[group].attempts, found[group].jobs) == (spent.attempts, spent.jobs), (*case, group)
            assert found[group].gpu_hours == pytest.approx(spent.gpu_hours), (*case, group)
            assert found[group].machine_hours == pytest.approx(spent.machine_hours), (*case, group)
        if name == "to come":
            assert not any(any(one.money.values()) for one in found.values()), case


def test_a_part_of_a_card_counts_as_its_share_and_the_rest_of_a_held_card_is_idle(store: Store) -> None:
    """Of a card that is held for a day, a slice of an eighth worked for two hours less ten minutes."""
    job_id = finished(store, 1, NOW - 5 * HOUR, on=CapacityType.OWNED, part="H100-1g.10gb")
    eighth = (2 * HOUR - 10 * MINUTE) / HOUR / 8
    month = datetime(2026, 3, 1, tzinfo=UTC)
    with store.reading() as look:
        (row,) = look.machine_time(job_ids=[job_id])
        assert (row.accelerator, row.card, row.gpus, row.price_per_gpu) == (
            "H100-1g.10gb", "H100", 0.125, Money.usd("80"),
        )  # fmt: skip
        spent = look.spent_by("accelerator", SpendingPeriod(month, NOW, NOW))["H100-1g.10gb"]
        assert spent.gpu_hours == pytest.approx(eighth)
        assert spent.machine_hours == pytest.approx(8 * eighth)
        use = look.used_in(month, NOW, NOW)
        assert look.machine_hours([job_id])[job_id].gpu_hours == pytest.approx(eighth)
    day = NOW - 24 * HOUR
    held = Holding(HoldingKind.OWNED, "H100", 1, "owned", "", day, day + 240 * HOUR, hourly=Money.usd("1.000001"))
    (idle,) = idle_in([held], use.cells, day, NOW)
    assert idle.accelerator == "H100"
    assert idle.idle_time == pytest.approx((24 - eighth) * 3_600_000)
    assert idle.cost == idle.paid.share(idle.idle_time, idle.held_time), "what no slice used is its owner's"


def test_what_holds_money_is_told_with_its_balance(store: Store) -> None:
    finished(store, 0, NOW - 5 * HOUR)
    job_id = started(store, 1, NOW - HOUR)
    with store.reading() as look:
        assert look.holding() == {job_id: look.balance(job_id)}
        assert look.holding()[job_id][MoneyKind.CASH].held == Money.usd("40")
