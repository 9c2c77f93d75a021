"""Jobs that wait into another budget period: their holds together may exceed its amount, and still they run, in the
order in which they were submitted."""

from datetime import datetime, timedelta
from typing import cast

import pytest

from broker.app.billing.budgets import budgets
from broker.app.jobs import jobs
from broker.app.jobs.submit import submit
from broker.app.wiring import Broker
from broker.core.errors import NotAllowed
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.market.offers import MoneyKind
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Movement, move
from broker.reconciler.admission.launch_check import Objection, Rejudging, Ruling
from broker.reconciler.settlement.settlement import tags_of
from tests.actors import ANN, with_clock
from tests.app.jobs.test_queue import look, market

POLICY = "version: 1\npolicy: t\nbudgets: [{name: all, amount: $60, period: day}]\n"
SHORT = "run: 'true'\nresources: {accelerators: 'H100:1'}\nmax_duration: 2h\n"  # at $10 an hour it holds $20.34
HOLD = Money(20_336_111)


@pytest.fixture
def site(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Machines at $10 an hour under a budget of $60 a day; forty minutes are left of the day."""
    evening = broker.clock.now().replace(hour=23, minute=20, second=0, microsecond=0)
    broker = with_clock(broker, ManualClock(evening))
    broker.store.activate_policy({"t.yaml": POLICY}, by="test")
    for place in ("preview", "queue"):
        monkeypatch.setattr(f"broker.app.jobs.{place}.market_for", lambda *_, **__: market(broker, "acme"))
    return broker


def pass_time(broker: Broker, by: timedelta) -> None:
    cast("ManualClock", broker.clock).advance(by)


def submitted(broker: Broker, name: str) -> JobView:
    text = f"name: {name}\n{SHORT}"
    return submit(broker, parse_job(text, file="job.yaml", now=broker.clock.now()), by=ANN)


def waiting(broker: Broker, *names: str) -> None:
    """Jobs that got no machine this evening, submitted a second apart."""
    for name in names:
        view = submitted(broker, name)
        assert view.state is not JobState.FAILED
        with broker.store.writing() as tx:
            tx.append(view.id, [(1, ev.AttemptEnded(cause=Cause.NO_CAPACITY))], broker.clock.now())
        pass_time(broker, timedelta(seconds=1))


def started(broker: Broker, *names: str) -> list[str]:
    return [name for name in names if not all(one.over for one in jobs.find(broker, name).attempts)]


def holds_behind(broker: Broker, job_id: str, submitted_at: datetime) -> Money:
    """Also the same whether it is read as one sum or singly."""
    (spec,) = broker.policy().budgets(jobs.find(broker, "a").job, "ann")
    with broker.store.reading() as seen:
        read = [seen.holds_behind(spec, job_id, submitted_at, submitted_at + timedelta(days=n)) for n in (-9, 9)]
    singly, as_one = (sum((burn.amount for burn in burns), Money.ZERO) for burns in read)
    assert singly == as_one
    assert len(read[1]) <= 1
    return singly


def relaunch_check(broker: Broker, name: str) -> Ruling | Objection:
    """The check of a job's requested launch, some minutes later."""
    pass_time(broker, timedelta(minutes=2))
    view = jobs.find(broker, name)
    assert view.latest is not None
    return Rejudging(broker.store, lambda _: market(broker, "acme"), broker.policy, broker.clock.now)(view, view.latest)


def test_the_first_of_those_that_waited_start_although_all_together_hold_too_much(site: Broker) -> None:
    names = ("a", "b", "c", "d")
    waiting(site, *names)
    pass_time(site, timedelta(hours=2))
    look(site, "acme")
    assert started(site, *names) == ["a", "b"], "$40.68 of the $60; a third would be too much"
    assert jobs.find(site, "c").state is JobState.PAUSED_BUDGET
    (line,) = budgets(site)
    assert line.use.held > Money.usd("60"), "what waits still has its money set aside"


def test_what_runs_counts_against_those_before_it_and_what_waits_before_counts_too(site: Broker) -> None:
    waiting(site, "a", "b", "c", "d")
    third = jobs.find(site, "c")
    assert holds_behind(site, "", third.submitted_at - timedelta(days=1)) == 4 * HOLD
    assert holds_behind(site, third.id, third.submitted_at) == HOLD
    assert holds_behind(site, "", third.submitted_at) == 2 * HOLD
    pass_time(site, timedelta(hours=2))
    look(site, "acme")
    assert holds_behind(site, "", third.submitted_at - timedelta(days=1)) == 2 * HOLD, "a and b have machines"


def test_what_an_interrupted_job_holds_counts_wherever_it_stands(site: Broker) -> None:
    """What it cost may not be known in full, so its hold is never left out."""
    waiting(site, "a", "b")
    first, last = jobs.find(site, "a"), jobs.find(site, "b")
    assert holds_behind(site, first.id, first.submitted_at) == HOLD
    now, spent = site.clock.now(), Money.usd(1)
    settled = move(
        Movement.SETTLE, spent, movement_id="s", money=MoneyKind.CASH, at=now, covers=(now, now), tags=tags_of(last)
    )
    with site.store.writing() as tx:
        tx.post(settled)
    assert holds_behind(site, first.id, first.submitted_at) == Money.ZERO


def test_a_new_job_does_not_overtake_them(site: Broker) -> None:
    waiting(site, "a", "b", "c", "d")
    pass_time(site, timedelta(hours=2))
    with pytest.raises(NotAllowed, match="overdrawn"):
        submitted(site, "new")


def test_a_start_is_judged_the_same_right_before_its_launch(site: Broker) -> None:
    waiting(site, "a", "b", "c", "d")
    pass_time(site, timedelta(hours=2))
    look(site, "acme")
    assert relaunch_check(site, "a") is Ruling.LAUNCH, "its request dated its hold anew"
    assert relaunch_check(site, "b") is Ruling.LAUNCH


def test_a_job_whose_launch_fails_keeps_its_place(site: Broker) -> None:
    waiting(site, "a", "b", "c", "d")
    pass_time(site, timedelta(hours=2))
    look(site, "acme")
    first = jobs.find(site, "a")
    with site.store.writing() as tx:
        tx.append(first.id, [(2, ev.AttemptEnded(cause=Cause.REQUEST_EXPIRED))], site.clock.now())
    look(site, "acme")
    assert started(site, "a", "b") == ["a", "b"]
