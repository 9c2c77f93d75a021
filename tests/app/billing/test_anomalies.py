"""Anomalies on a ledger as it is metered: found on the day, told once, the job named, answers heard."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta

import pytest
from pydantic import SecretStr

from broker.app.billing import anomalies
from broker.app.billing.anomalies import spending_anomalies
from broker.app.jobs.submit import submit
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.job.file import parse_job
from broker.core.market.offers import CapacityType
from broker.core.policy.policy import UnusualSpending
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Tags
from broker.ledger.finops.anomalies import AnomalyAnswer
from broker.ledger.finops.change import NOBODY
from broker.reconciler.controllers.enforcement import Enforcement
from tests.actors import ANN, BOB, ROOT, with_clock
from tests.controllers import Asking
from tests.focus_ledger import DAY, RUN, spent

START = datetime(2026, 9, 1, tzinfo=UTC)
UNUSUAL = """\
version: 1
policy: t
budgets: [{name: pretend, amount: $100, period: quarter, counts: [sandbox]}]
guardrails: [{name: odd, unusual_spending: {above: $50, answer_within: 1h}}]
"""
USUAL, LOOP = replace(RUN, job_id="usual"), replace(RUN, job_id="loop", user="bob")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START + 40 * DAY + timedelta(hours=9))


@pytest.fixture
def steady(new_broker: Callable[[], Broker], clock: ManualClock) -> Broker:
    """Forty days of $90 to $110 a day of one job, and nine hours of the next day."""
    broker = with_clock(new_broker(), clock)
    broker.settings.notify["ops"] = SecretStr("json://localhost")
    for day in range(40):
        add(broker, USUAL, day, 90 + day * 7 % 21)
    add(broker, USUAL, 40, 38)
    return broker


def add(broker: Broker, tags: Tags, day: int, amount: int) -> None:
    since = START + day * DAY
    with broker.store.writing() as tx:
        tx.post(spent(day, str(amount), since, since + timedelta(hours=1), since + DAY, tags=tags))


def test_an_ordinary_month_has_none(steady: Broker) -> None:
    assert spending_anomalies(steady) == []
    assert anomalies.queue_notices(steady) == []


def test_a_rise_is_found_on_its_day_with_the_job_that_caused_it(steady: Broker) -> None:
    add(steady, LOOP, 40, 150)
    (found,) = spending_anomalies(steady)
    assert (found.team, found.first, found.last, found.running) == ("nlp", date(2026, 10, 11), date(2026, 10, 11), True)
    assert found.spent == Money.usd("188")
    assert (found.on_own, found.rented) == (Money.ZERO, Money.usd("188"))
    assert [cause.job for cause in found.causes] == ["loop"]
    assert found.causes[0].excess == Money.usd("150")
    assert spending_anomalies(steady, {"web"}) == []


def test_an_incident_of_days_is_told_once(steady: Broker, clock: ManualClock) -> None:
    add(steady, LOOP, 40, 150)
    (notice,) = anomalies.queue_notices(steady)
    assert "loop of bob ($150.00 more)" in notice.body
    assert notice.teams == ("nlp",)
    assert anomalies.queue_notices(steady) == []
    clock.advance(DAY)
    add(steady, replace(LOOP, job_id="loop-2"), 41, 400)
    assert anomalies.queue_notices(steady) == []
    (found,) = spending_anomalies(steady)
    assert (found.first, found.last) == (date(2026, 10, 11), date(2026, 10, 12))


def test_what_was_bought_in_advance_is_none(steady: Broker) -> None:
    bought = Tags("buy-1", "olga", "nlp", None, None, None, None, "acme", "r1", CapacityType.RESERVED, "H100", 8)
    add(steady, bought, 40, 5000)
    assert spending_anomalies(steady) == []


def test_planned_days_do_not_hide_those_after_them(steady: Broker, clock: ManualClock) -> None:
    for day in range(40, 45):
        add(steady, LOOP if day == 40 else replace(LOOP, job_id=f"loop-{day}"), day, 400)
    clock.advance(9 * DAY)
    for day in range(45, 49):
        add(steady, USUAL, day, 100)
    add(steady, replace(USUAL, job_id="second"), 49, 250)
    assert [one.first for one in spending_anomalies(steady)] == [date(2026, 10, 11)]
    said = anomalies.answer_incident(steady, "nlp", date(2026, 10, 11), AnomalyAnswer.PLANNED, "a benchmark", by=BOB)
    assert said.answer is not None
    assert (said.answer.by, said.answer.reason) == ("bob", "a benchmark")
    later, planned = spending_anomalies(steady)
    assert (later.first, later.answer) == (date(2026, 10, 20), None)
    assert planned.answer == said.answer
    anomalies.answer_incident(steady, "nlp", date(2026, 10, 11), AnomalyAnswer.NO, by=ROOT)
    (denied,) = spending_anomalies(steady)
    assert denied.answer is not None
    assert denied.answer.answer is AnomalyAnswer.NO


def test_only_those_whose_jobs_caused_it_answer(steady: Broker) -> None:
    add(steady, LOOP, 40, 150)
    with pytest.raises(InvalidInput, match="ann owns none of the jobs"):
        anomalies.answer_incident(steady, "nlp", date(2026, 10, 11), AnomalyAnswer.YES, by=ANN)
    with pytest.raises(InvalidInput, match="no incident of nlp began on 2026-10-10"):
        anomalies.answer_incident(steady, "nlp", date(2026, 10, 10), AnomalyAnswer.YES, by=BOB)
    anomalies.answer_incident(steady, "nlp", date(2026, 10, 11), AnomalyAnswer.YES, by=BOB)
    assert anomalies.queue_notices(steady) == []  # answered before anybody was told


def test_what_rules_are_told_of_the_jobs_that_cause_it(steady: Broker, clock: ManualClock) -> None:
    unusual = anomalies.UnusualJobs(steady)
    assert unusual(clock.now()) == {}
    add(steady, LOOP, 40, 150)
    clock.advance(timedelta(minutes=1))
    found = clock.now()
    assert unusual(found) == {"loop": UnusualSpending(Money.usd("150"), found)}
    clock.advance(timedelta(hours=2))
    assert anomalies.UnusualJobs(steady)(clock.now())["loop"].known_since == found, "another process knows it, too"
    anomalies.answer_incident(steady, "nlp", date(2026, 10, 11), AnomalyAnswer.YES, by=BOB)
    clock.advance(timedelta(minutes=1))
    assert unusual(clock.now())["loop"].said_by == "bob"
    anomalies.answer_incident(steady, "nlp", date(2026, 10, 11), AnomalyAnswer.PLANNED, by=BOB)
    clock.advance(timedelta(minutes=1))
    assert unusual(clock.now()) == {}, "what was planned stops nobody"


@pytest.mark.parametrize("said", [None, AnomalyAnswer.NO])
def test_a_running_job_is_stopped_unless_somebody_explains_it_within_the_hour(
    broker: Broker, said: AnomalyAnswer | None
) -> None:
    now = broker.clock.now()
    midnight = datetime.combine(now.date(), time(), UTC)
    broker.store.activate_policy({"test.yaml": UNUSUAL}, by="test")
    text = "name: loop\nrun: 'true'\nmax_cost: $5\nconstraints: {providers: [sandbox]}\n"
    view = submit(broker, parse_job(text, file="job.yaml", now=now), by=ANN)
    with broker.store.writing() as tx:
        view = tx.append(view.id, [(1, ev.Launched(handle="x"))], now)
        for day in range(-40, 1):
            tags = replace(USUAL if day < 0 else replace(LOOP, job_id=view.id), team=None)
            start = midnight + day * DAY
            tx.post(spent(day, "100" if day < 0 else "250", start, start + timedelta(hours=1), now, tags=tags))

    def judge(at: datetime) -> bool:
        with broker.store.reading() as look:
            money = look.balance(view.id)
        gate = Enforcement(broker.store, broker.policy, lambda: at, unusual=anomalies.UnusualJobs(broker))
        return Asking(gate, lambda: at)(view, money)

    assert not judge(now), "people are asked first"
    assert not judge(now + timedelta(minutes=59))
    if said is not None:
        anomalies.answer_incident(broker, NOBODY, midnight.date(), said, by=ROOT)
    assert judge(now + timedelta(minutes=61)) == (said is None)
    with broker.store.reading() as look:
        stopped = look.job(view.id)
    assert stopped is not None
    assert (stopped.attempts[0].stop_requested is Cause.STOPPED_BY_POLICY) == (said is None)
