"""A month's review over a ledger: parts that add up to the micro-dollar, causes by name, advice and what it brought."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.app.access import people
from broker.app.billing import review as review_module
from broker.app.billing.report_documents import ReviewReport
from broker.app.billing.review import answer_advice, review
from broker.app.wiring import Broker
from broker.cli.billing.review_view import review_blocks
from broker.cli.render.documents import markdown
from broker.core.actors import Actor, Role
from broker.core.errors import InvalidInput, NotAllowed, UnknownName
from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved, Reading, ResourcesUsed
from broker.core.events.outcomes import Cause
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.ledger.entries import Movement
from broker.ledger.finops.advice import AdviceKind
from broker.ledger.finops.change import Part
from tests.actors import with_clock
from tests.focus_ledger import HOUR, RUN, SEPTEMBER, post_two_months, spent
from tests.past import started

DAY = timedelta(days=1)
NOVEMBER = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """In the middle of November 2026: September and October are over."""
    return with_clock(broker, ManualClock(NOVEMBER))


def total(found: ReviewReport) -> Money:
    return sum(found.parts.values(), Money.ZERO)


def test_two_months_of_every_kind_of_charge(broker: Broker) -> None:
    post_two_months(broker.store)
    found = review(broker, "2026-10")
    # September: 10 + 16 + 5 - 2 of nlp, 7.25 of web; October: 32 of nlp. What was bought is paid, and no use.
    assert found.before.spent == Money.usd("36.25")
    assert (found.before.cash, found.before.bought_in_advance) == (Money.usd("729"), Money.usd("700"))
    assert found.before.amortised == Money.usd("7.25")
    assert found.after.spent == found.after.cash == Money.usd("32")
    assert total(found) == found.change == Money.usd("-4.25")
    assert {(team.team, team.before, team.spent) for team in found.teams} == {
        ("nlp", Money.usd("29"), Money.usd("32")),
        ("web", Money.usd("7.25"), Money.ZERO),
    }
    assert found.over


def test_a_budget_is_reviewed_in_its_own_time_zone(broker: Broker) -> None:
    """In Berlin, September ends two hours earlier: $4 of the spot machine that runs across its end are October's."""
    post_two_months(broker.store)
    budget = "{name: nlp, amount: $100, period: month, timezone: Europe/Berlin, scope: {team: nlp}}"
    broker.store.activate_policy({"t.yaml": f"version: 1\npolicy: t\nbudgets: [{budget}]\n"}, by="ann")
    assert [one.spent for one in review(broker, "2026-09").budgets] == [Money.usd(25)]
    assert [one.spent for one in review(broker, "2026-10").budgets] == [Money.usd(36)]


def test_lost_work_is_waste_with_its_hours_and_advice(broker: Broker) -> None:
    """It runs for four hours at $10, saves a checkpoint after one, and is taken back."""
    begins = SEPTEMBER + DAY
    job_id = started(broker.store, 1, begins)
    with broker.store.writing() as tx:
        tx.append(job_id, [(1, CheckpointSaved(checkpoint="c-1"))], begins + HOUR + HOUR / 6)
        gone = begins + 4 * HOUR + HOUR / 6
        tx.append(job_id, [(1, ev.AttemptEnded(cause=Cause.PREEMPTED)), (1, ev.MachineGone(gone_at=gone))], gone)
        view = tx.job(job_id)
        assert view is not None
        tags = replace(
            RUN, job_id=job_id, team=view.job.team, project=view.job.project, provider="cloud", region="here",
            capacity_type=CapacityType.ON_DEMAND,
        )  # fmt: skip
        tx.post(spent(1, "40", begins + HOUR / 6, gone, gone, tags=tags))
    found = review(broker, "2026-09")
    assert found.after.wasted == Money.usd("30")
    assert found.after.gpu_hours == 8 * 4
    assert found.parts[Part.WASTE] == Money.usd("30")
    assert found.parts[Part.NEW] == Money.usd("10")
    (said,) = found.advice
    assert (said.kind, said.about, said.cost) == (AdviceKind.WASTE, "team-1 / project-1", Money.usd("30"))
    assert "24.0 of 32.0" in said.because
    assert "$30.00 of $40.00" in said.because
    (brought,) = review(broker, "2026-10").followed
    assert (brought.then, brought.now) == (Money.usd("30"), Money.ZERO)


@pytest.mark.parametrize("cause", [Cause.COMPLETED, Cause.NOT_NEEDED])
def test_an_attempt_that_ended_well_or_stood_by_lost_nothing(broker: Broker, cause: Cause) -> None:
    begins = SEPTEMBER + DAY
    job_id = started(broker.store, 1, begins)
    with broker.store.writing() as tx:
        done = begins + 4 * HOUR
        tx.append(job_id, [(1, ev.AttemptEnded(cause=cause)), (1, ev.MachineGone(gone_at=done))], done)
        tx.post(spent(1, "40", begins, done, done, tags=replace(RUN, job_id=job_id)))
    assert review(broker, "2026-09").after.wasted == Money.ZERO


def test_held_capacity_that_nobody_used_is_advice(broker: Broker) -> None:
    paid = Money.usd("7200")
    owned = Holding(HoldingKind.OWNED, "H100", 8, "basement", "here", SEPTEMBER, SEPTEMBER + 60 * DAY, upfront=paid)
    broker.store.add_holding(owned, by="ann")
    said = {one.kind: one for one in review(broker, "2026-09").advice}[AdviceKind.IDLE]
    assert said.cost == Money.usd("3600")
    assert "5,760.0 of 5,760.0 GPU-hours held were idle" in said.because


def idle_for_a_month(broker: Broker, hours: int, month: datetime, number: int, idle: float) -> None:
    """A job of team-1, of eight GPUs, that stood idle for that share of the time."""
    figures = {"gpu": Reading(samples=9, mean=50, peak=99), "gpu_idle": Reading(samples=9, mean=100 * idle, peak=100)}
    job_id = started(broker.store, number, month)
    done = month + hours * HOUR
    with broker.store.writing() as tx:
        tx.append(job_id, [(1, ResourcesUsed(figures=figures))], month + HOUR)
        tx.append(job_id, [(1, ev.AttemptEnded(cause=Cause.COMPLETED)), (1, ev.MachineGone(gone_at=done))], done)
        tx.post(spent(1, str(10 * hours), month, done, done, tags=replace(RUN, job_id=job_id, team="team-1")))


def test_advice_on_runs_is_answered_and_its_effect_is_in_the_next_review(broker: Broker) -> None:
    """Jobs of one name: half of September is idle; in October the one that runs stops when idle."""
    idle_for_a_month(broker, 10, SEPTEMBER + DAY, 1, 0.5)
    (advice,) = [one for one in review(broker, "2026-09").advice if one.kind is AdviceKind.IDLE_RUN]
    assert (advice.about, advice.answer) == ("team-1 / project-1: open-01", None)
    assert advice.cost.rounded() == "$49.17", "half of ten hours less ten minutes at $10"
    assert review(broker, "2026-09").after.use.idle == 0.5
    ann, admin = Actor("ann"), Actor("root", frozenset({Role.ADMINISTRATOR}))
    people.add(broker, "root", by=admin, administrator=True)
    with pytest.raises(NotAllowed, match="only a finops or an administrator may do this, and ann is none"):
        answer_advice(broker, "2026-09", advice.id, "done", by=ann)
    with pytest.raises(UnknownName, match="idle-run-0"):
        answer_advice(broker, "2026-09", "idle-run-0", "done", by=admin)
    with pytest.raises(UnknownName, match="later"):
        answer_advice(broker, "2026-09", advice.id, "later", by=admin)
    for verdict, reason in (("dismissed", "a demo"), ("done", "stops when idle")):
        answered = answer_advice(broker, "2026-09", advice.id, verdict, reason, by=admin)
        (answer,) = [one.answer for one in answered.advice if one.id == advice.id]
        assert answer is not None
        assert (answer.verdict, answer.reason, answer.by) == (verdict, reason, "root")
    (followed,) = [one for one in review(broker, "2026-10").followed if one.id == advice.id]
    assert followed.answer == answer
    assert (followed.then, followed.now, followed.job_now) == (advice.cost, Money.ZERO, None)
    assert followed.job_then == Money.usd("98.333333")
    text = markdown(review_blocks(review(broker, "2026-10")))
    assert "done by root: stops when idle" in text


def test_a_month_that_is_not_over_is_compared_with_the_same_days_of_the_month_before(broker: Broker) -> None:
    found = review(broker, "2026-11")
    assert not found.over
    assert (found.after.since, found.after.until) == (datetime(2026, 11, 1, tzinfo=UTC), NOVEMBER)
    assert (found.before.since, found.before.until) == (datetime(2026, 10, 1, tzinfo=UTC), NOVEMBER - 31 * DAY)


@pytest.mark.parametrize("month", ["2099-01", "next-month", "2026-13", "2099-Q1", "2026-Q5", "2026-Q"])
def test_what_is_no_month_yet_is_refused(broker: Broker, month: str) -> None:
    with pytest.raises(InvalidInput):
        review(broker, month)


@dataclass(frozen=True)
class Drawn:
    """What an entry is made of: ``hour`` after September began, for ``hours``."""

    team: str | None
    provider: str | None
    accelerator: str | None
    kind: CapacityType
    money: MoneyKind
    micros: int
    hour: int
    hours: int


drawn = st.builds(
    Drawn,
    st.sampled_from(["nlp", "web", None]),
    st.sampled_from(["aws", "gcp", None]),
    st.sampled_from(["H100", "L4", None]),
    st.sampled_from(list(CapacityType)),
    st.sampled_from([MoneyKind.CASH, MoneyKind.AMORTISED]),
    st.integers(-(10**9), 10**9),
    st.integers(0, 61 * 24),
    st.integers(0, 300),
)


NUMBERS = count(1)  # not the number of entries: an amount of nothing makes none


@given(entries=st.lists(drawn, max_size=10))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_over_random_ledgers_the_parts_are_the_change_and_the_months_the_ledger(
    new_broker: Callable[[], Broker], monkeypatch: pytest.MonkeyPatch, entries: list[Drawn]
) -> None:
    """Each example adds to the ledger of those before it."""
    monkeypatch.setattr(review_module, "MAX_CAUSES", 2)
    broker = new_broker()
    with broker.store.writing() as tx:
        for one in entries:
            number = next(NUMBERS)
            tags = replace(
                RUN, job_id=f"job-{number}", team=one.team, provider=one.provider, accelerator=one.accelerator,
                capacity_type=one.kind,
            )  # fmt: skip
            since, amount = SEPTEMBER + one.hour * HOUR, str(Money(one.micros).dollars)
            until = since + one.hours * HOUR
            tx.post(spent(number, amount, since, until, since, movement=Movement.ADJUST, money=one.money, tags=tags))
    found = review(broker, "2026-10")
    assert total(found) == found.change == found.after.spent - found.before.spent
    assert sum((one.amount for one in found.causes), found.other_causes) == found.change
    assert sum((one.spent for one in found.teams), Money.ZERO) == found.after.spent
    before = review(broker, "2026-09").after
    assert (before.spent, before.cash) == (found.before.spent, found.before.cash)
    after = review(broker, "2026-11").after
    with broker.store.reading() as look:
        ledger = sum((one.amount for one in look.all_entries() if one.account == "spent"), Money.ZERO)
    assert before.spent + found.after.spent + after.spent == ledger


def test_a_quarter_is_the_sum_of_its_months_with_their_answers(broker: Broker) -> None:
    """July to September, of which July alone has spending."""
    july = SEPTEMBER - 62 * DAY
    idle_for_a_month(broker, 10, july + DAY, 1, 0.5)
    (advice,) = [one for one in review(broker, "2026-07").advice if one.kind is AdviceKind.IDLE_RUN]
    admin = Actor("root", frozenset({Role.ADMINISTRATOR}))
    answer_advice(broker, "2026-07", advice.id, "accepted", by=admin)
    found = review(broker, "2026-Q3")
    assert (found.month, found.kind, found.over, found.after.spent) == ("2026-Q3", "quarter", True, Money.usd(100))
    assert (found.after.since, found.after.until) == (july, SEPTEMBER + 30 * DAY)
    assert found.before.until == found.after.since
    (followed,) = [one for one in review(broker, "2026-Q4").followed if one.id == advice.id]
    assert followed.answer is not None
    assert (followed.answer.verdict, followed.then) == ("accepted", advice.cost)
    assert "Effect of last quarter's advice" in markdown(review_blocks(found))
    answer_advice(broker, "2026-Q3", advice.id, "done", by=admin)
    (followed,) = [one for one in review(broker, "2026-Q4").followed if one.id == advice.id]
    assert followed.answer is not None
    assert followed.answer.verdict == "done", "the last answer counts"
