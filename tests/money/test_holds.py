"""How long held money counts, and in which periods: spend of a job in a period was judged for that period, whatever its
file says, however it is extended, however long it waits, whatever its price does and wherever a month ends.

Played with the real use cases, reconciler, policies and store, on both databases.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from broker.app.billing import budgets
from broker.app.jobs import jobs
from broker.app.jobs import submit as submitting
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.bills import bill_of
from broker.app.jobs.extension import extend
from broker.app.jobs.reasons import wait_text
from broker.core.errors import NotAllowed
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.store import Store, open_store
from tests.actors import ANN
from tests.empty_store import empty_store
from tests.money.moves import JOB, job_text
from tests.money.oracle import Oracle
from tests.money.periods import _midnight
from tests.money.world import MoneyWorld

PLAIN = {name: values[0] for name, values in JOB.items()}
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MONTHLY = "budgets: [{name: monthly, amount: $AMOUNT, period: month}]\n"
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    new: Callable[[], str] | None = None
    if request.param == "postgresql":
        new = request.getfixturevalue("new_postgres_store")
    opened = open_store(new() if new else empty_store(tmp_path / "store.db"), clock=SystemClock())
    yield opened
    opened.close()


class PlayedWorld:
    """A world that begins at a moment (UTC), under these policies."""

    def __init__(self, store: Store, begins: datetime, policy: str) -> None:
        self.world = MoneyWorld(store, begins)
        self._store = store
        self.activate(policy)

    def activate(self, policy: str) -> None:
        text = f"version: 1\npolicy: stage\ndefaults: {{allow_stale_prices: true}}\n{policy}"
        self._store.activate_policy({"stage.yaml": text}, by="cat")

    def submit(self, **said: Any) -> JobView:
        view = self.ask(**said)
        self.world.look()
        return self.view(view)

    def ask(self, **said: Any) -> JobView:
        name = f"job{len(self.world.names) + 1}"
        self.world.names.append(name)
        now = self.world.clock.now()
        job = parse_job(job_text(name, {**PLAIN, **said}), file="job.yaml", now=now)
        return submitting.submit(self.world.broker, job, by=ANN)

    def passes(self, whole: timedelta, every: timedelta = HOUR) -> None:
        while whole > timedelta(0):
            self.world.passes(min(every, whole))
            self.world.look()
            whole -= every

    def until(self, moment: datetime, every: timedelta = HOUR) -> None:
        self.passes(moment - self.world.clock.true, every)

    def view(self, view: JobView) -> JobView:
        return jobs.find(self.world.broker, view.id)

    def spent(self, begins: datetime, ends: datetime) -> Money:
        """The spend by the cloud's own record."""
        oracle = Oracle(self.world)
        pieces = [piece for machine in oracle.machines() for piece in oracle.bill(machine)]
        return Money(round(sum(piece.within(begins, ends) for piece in pieces)))

    def months(self, zone: str = "UTC") -> Sequence[Money]:
        """The spend of October 2026 and of the following months, by the calendar of a time zone."""
        edges = [_midnight(datetime(2026 + m // 12, m % 12 + 1, 1).date(), zone) for m in range(9, 18)]
        return [self.spent(a, b) for a, b in pairwise(edges)]

    def days(self, first: datetime, count: int) -> Sequence[Money]:
        return [self.spent(first + n * DAY, first + (n + 1) * DAY) for n in range(count)]

    def held(self, name: str = "monthly") -> Money:
        return next(line.use.held for line in budgets.budgets(self.world.broker) if line.spec.id == name)


GREEDY = {"machine": "H100:8", "nodes": 64, "providers": "aws", "capacity": "on_demand", "max_duration": "3650d"}


@pytest.mark.parametrize("max_cost", ["$1000000", "$20000", "$10000", "$9999", ""])
def test_a_long_time_in_a_job_file_lets_no_month_be_overspent(store: Store, max_cost: str) -> None:
    played = PlayedWorld(store, datetime(2026, 11, 28, 3, tzinfo=UTC), MONTHLY.replace("AMOUNT", "10000"))
    if max_cost in ("$10000", "$9999"):
        played.submit(**GREEDY, max_cost=max_cost)
        played.passes(6 * DAY)
        assert Money.usd(9000) < max(played.months()), "it fits, and runs"
    else:
        with pytest.raises(NotAllowed):
            played.submit(**GREEDY, max_cost=max_cost)
    assert max(played.months()) <= Money.usd(10_000)


@pytest.mark.parametrize("max_cost", ["$1400", "$95", "$4000"])
def test_nor_any_day(store: Store, max_cost: str) -> None:
    daily = "budgets: [{name: daily, amount: $100, period: day}]\n"
    start = datetime(2026, 11, 28, 3, tzinfo=UTC)
    played = PlayedWorld(store, start, daily)
    said = {"machine": "H100:8", "providers": "aws", "capacity": "on_demand", "max_duration": "3650d"}
    if max_cost == "$95":
        played.submit(**said, max_cost=max_cost)
    else:
        with pytest.raises(NotAllowed):
            played.submit(**said, max_cost=max_cost)
    played.passes(3 * DAY)
    days = played.days(start.replace(hour=0), 4)
    assert max(days) <= Money.usd(100)
    assert max_cost != "$95" or days[0] > Money.usd(80)


@pytest.mark.system
def test_an_extension_by_time_does_not_thin_out_what_is_held(store: Store) -> None:
    played = PlayedWorld(store, datetime(2026, 11, 20, tzinfo=UTC), MONTHLY.replace("AMOUNT", "2400"))
    said = {"providers": "aws", "capacity": "on_demand", "max_cost": "$2355", "max_duration": "60d"}
    first = played.submit(**said, nodes=3)  # $12 an hour
    played.passes(2 * HOUR)
    before = played.held()
    assert before > Money.usd(2300)
    for more in (JobLimits(Money.usd(2400), 120 * DAY), JobLimits(None, 3000 * DAY)):
        extend(played.world.broker, played.view(first), more, by=ANN)
        assert played.held() >= before - Money.usd(1)
    with pytest.raises(NotAllowed):
        played.submit(**{**said, "max_cost": "$2200"}, nodes=3)
    played.passes(12 * DAY)
    assert Money.usd(2300) < max(played.months()) <= Money.usd(2400)


def test_a_job_that_waited_into_the_next_month_is_judged_for_that(store: Store) -> None:
    played = PlayedWorld(store, datetime(2026, 11, 29, tzinfo=UTC), MONTHLY.replace("AMOUNT", "2400"))
    said = {"providers": "aws", "capacity": "spot", "nodes": 100, "max_duration": "3650d", "max_cost": "$2353"}
    played.world.do_price("aws-spot", "1", told=True)
    waits = played.ask(**said)
    played.world.do_capacity("aws-spot", there=False)
    played.until(DECEMBER + HOUR, every=6 * HOUR)
    assert played.view(waits).state is not JobState.RUNNING
    held = played.held()
    try:
        played.submit(**{**said, "capacity": "on_demand", "nodes": 25})
    except NotAllowed:
        assert held > Money.usd(2000), "what waits counts from now on"
    played.world.do_capacity("aws-spot", there=True)
    played.passes(5 * DAY)
    assert max(played.months()) <= Money.usd(2400)


def test_two_jobs_of_which_one_waited_into_the_next_month_spend_no_more_than_that_months_budget(store: Store) -> None:
    """The first holds its money in November and starts in December; the second was admitted for December."""
    played = PlayedWorld(store, datetime(2026, 11, 25, tzinfo=UTC), MONTHLY.replace("AMOUNT", "2400"))
    played.world.do_capacity("aws-spot", there=True)
    said = {"providers": "aws", "max_duration": "3650d"}
    waits = played.ask(**said, capacity="spot", nodes=100, max_cost="$2353")
    played.world.do_capacity("aws-spot", there=False)
    played.until(DECEMBER - 2 * DAY, every=6 * HOUR)
    assert not any(attempt.up_since for attempt in played.view(waits).attempts)
    played.until(DECEMBER + HOUR, every=6 * HOUR)
    with pytest.raises(NotAllowed):
        played.submit(**said, capacity="on_demand", nodes=25, max_cost="$2353")
    jobs.cancel(played.world.broker, played.view(waits), by=ANN)
    played.passes(HOUR)
    second = played.submit(**said, capacity="on_demand", nodes=25, max_cost="$2353")
    played.world.do_capacity("aws-spot", there=True)
    third = jobs.find(played.world.broker, second.id)
    assert third.attempts
    played.passes(5 * DAY)
    assert Money.usd(2000) < max(played.months()) <= Money.usd(2400)


@pytest.mark.system
def test_what_runs_cheaper_than_it_was_dated_does_not_take_the_rest_into_the_next_month_unjudged(store: Store) -> None:
    """Dated at $4 an hour for 20 hours, of which ten are in December; then the price falls to a quarter, and the money
    would last until the fourth of December.
    """
    played = PlayedWorld(store, DECEMBER - 10 * HOUR, MONTHLY.replace("AMOUNT", "100"))
    cheap = played.submit(providers="aws", capacity="spot", nodes=4, max_duration="30d", max_cost="$80")
    assert cheap.latest is not None
    played.world.do_price("aws-spot", "0.25", told=True)
    played.until(DECEMBER + timedelta(minutes=1))
    assert played.view(cheap).state is JobState.RUNNING
    with pytest.raises(NotAllowed):
        played.submit(providers="aws", capacity="on_demand", max_duration="10h", max_cost="$40")
    played.submit(providers="aws", capacity="on_demand", max_duration="10h", max_cost="$25")
    played.until(DECEMBER + 9 * HOUR)
    played.passes(2 * HOUR, every=timedelta(minutes=10))  # its time nears its end: a longer time is judged
    played.passes(5 * DAY)
    november, december = played.months()[1:3]
    assert Money.usd(8) < november < Money.usd(12)
    assert Money.usd(50) < december <= Money.usd(100), "there was room for what was left, and it was judged for that"


def ends_unseen(store: Store, amount: str, december: str = "") -> tuple[PlayedWorld, JobView]:
    """Judged for the ten hours until December and ten after them; then the price falls, so that its money would last
    longer, and no reconciler runs until its node has stopped it at the end of the judged time.
    """
    played = PlayedWorld(store, DECEMBER - 10 * HOUR, MONTHLY.replace("AMOUNT", amount))
    job = played.submit(providers="aws", capacity="spot", nodes=4, max_duration="30d", max_cost="$80")
    played.world.do_price("aws-spot", "0.25", told=True)
    played.passes(HOUR, every=timedelta(minutes=10))
    played.world.passes(4 * DAY)
    assert not played.world.cloud.live()
    if december:
        played.activate(MONTHLY.replace("AMOUNT", december))
    played.world.look()
    return played, played.view(job)


def test_what_a_node_stopped_because_nobody_looked_goes_on_where_the_new_month_has_room(store: Store) -> None:
    played, job = ends_unseen(store, "100")
    assert job.attempts[0].cause is Cause.PAID_UNTIL
    played.passes(HOUR)
    assert played.view(job).state is JobState.RUNNING
    assert played.view(job).attempt_count == 2
    played.passes(6 * DAY, every=6 * HOUR)
    assert max(played.months()) <= Money.usd(100)


def test_what_a_node_stopped_because_nobody_looked_waits_for_a_person_where_the_new_month_has_no_room(
    store: Store,
) -> None:
    played, job = ends_unseen(store, "100", december="20")
    assert job.state is JobState.PAUSED_BUDGET
    assert job.attempt_count == 1
    spent = played.months()
    played.passes(DAY, every=6 * HOUR)
    assert played.held() == Money.ZERO
    assert played.months() == spent


@pytest.mark.parametrize("looks", [HOUR, 6 * HOUR])
@pytest.mark.parametrize("times", ["1.5", "3.9"])
def test_what_costs_more_than_it_was_dated_takes_no_more_of_the_present_month(
    store: Store, looks: timedelta, times: str
) -> None:
    """$40 were judged for the ten hours until December, at $1 an hour for four machines.

    Then the price rises: if they continued, they would use more of November, the rest of which is held by another job.
    """
    played = PlayedWorld(store, DECEMBER - 10 * HOUR, MONTHLY.replace("AMOUNT", "100"))
    on_spot = {"providers": "aws", "capacity": "spot", "nodes": 4, "max_duration": "20h"}
    job = played.submit(**on_spot)
    played.submit(providers="gcp", capacity="on_demand", max_duration="10h", max_cost="$55")
    played.passes(timedelta(minutes=5), every=timedelta(minutes=5))
    assert played.view(job).latest is not None
    played.world.do_price("aws-spot", times, told=True)
    told = played.world.clock.true
    played.passes(30 * HOUR, every=looks)
    november, december = played.months()[1:3]
    first_look = Money.usd(times).scaled(4 * (looks / HOUR)) if looks > HOUR else Money.usd(times) * 4
    assert november <= Money.usd(100) + first_look, "what it cost until somebody could know"
    assert december <= Money.usd(100)
    assert told > DECEMBER - 10 * HOUR


@pytest.mark.system
@pytest.mark.parametrize("zone", ["Pacific/Apia", "Asia/Kolkata"])
def test_months_and_days_of_a_time_zone_hold_together(store: Store, zone: str) -> None:
    both = (
        f"budgets:\n  - {{name: monthly, amount: $150, period: month, timezone: {zone}}}\n"
        "  - {name: daily, amount: $40, period: day, timezone: America/New_York}\n"
    )
    start = datetime(2026, 11, 28, 3, tzinfo=UTC)
    played = PlayedWorld(store, start, both)
    said = {"providers": "aws", "capacity": "on_demand", "max_duration": "3650d"}
    for _ in range(12):
        for cost in ("$95", "$10", "$30"):
            try:
                played.submit(**said, max_cost=cost)
            except NotAllowed:
                continue
        played.passes(10 * HOUR, every=timedelta(hours=2.5))
    played.passes(2 * DAY)
    days = [
        played.spent(_midnight(day.date(), "America/New_York"), _midnight((day + DAY).date(), "America/New_York"))
        for day in (start + n * DAY for n in range(-1, 8))
    ]
    assert Money.usd(25) < max(days) <= Money.usd(40)
    assert Money.usd(60) < max(played.months(zone)) <= Money.usd(150)


def test_a_job_that_a_freeze_keeps_from_starting_holds_no_money_meanwhile(store: Store) -> None:
    budget = "budgets: [{name: monthly, amount: $150, period: month}]\n"
    played = PlayedWorld(store, datetime(2026, 12, 23, 20, tzinfo=UTC), budget)
    said = {"providers": "aws", "capacity": "on_demand", "max_duration": "30h"}
    frozen = played.ask(**said)
    held = bill_of(played.world.broker, frozen).held
    with pytest.raises(NotAllowed):
        played.ask(**said)
    played.activate(f"{budget}guardrails: [{{name: holidays, freeze: {{from: 2026-12-23, to: 2026-12-26}}}}]\n")
    played.passes(6 * HOUR)
    assert "until 2026-12-27" in wait_text(played.view(frozen).waiting)
    assert (held != {}, bill_of(played.world.broker, frozen).held) == (True, {})
    played.passes(80 * HOUR)
    assert played.view(frozen).latest is not None
    assert played.view(frozen).state in (JobState.RUNNING, JobState.SUCCEEDED)
