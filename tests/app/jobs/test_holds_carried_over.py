"""Jobs that wait into another budget period: their holds together may exceed its amount, and still they run, in the
order in which they were promised money."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
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
from broker.ledger.entries import Movement, Tags, move
from tests.actors import ANN, with_clock
from tests.app.jobs.test_queue import look, market

POLICY = "version: 1\npolicy: t\nbudgets: [{name: all, amount: $60, period: day}]\n"
SHORT = "run: 'true'\nresources: {accelerators: 'H100:1'}\nmax_duration: 2h\n"  # at $10 an hour it holds $20.34


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
    cast(ManualClock, broker.clock).advance(by)


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
    (spec,) = site.policy().budgets(jobs.find(site, "a").job, "ann")
    third = jobs.find(site, "c")
    with site.store.reading() as seen:
        assert len(seen.held_behind(spec, "", third.submitted_at - timedelta(days=1))) == 4
        assert len(seen.held_behind(spec, third.id, third.submitted_at)) == 1
    pass_time(site, timedelta(hours=2))
    look(site, "acme")
    with site.store.reading() as seen:
        assert len(seen.held_behind(spec, "", third.submitted_at - timedelta(days=1))) == 2, "a and b have machines"


def test_what_a_job_holds_itself_in_another_kind_of_money_is_not_behind_it(site: Broker) -> None:
    waiting(site, "a")
    mine, later = jobs.find(site, "a"), site.clock.now() + timedelta(minutes=1)
    (spec,) = site.policy().budgets(mine.job, "ann")
    both = replace(spec, counts=frozenset({"cash", "sandbox"}))
    covers = (later, later + timedelta(hours=1))
    more = move(
        Movement.HOLD, Money.usd(5), movement_id="more", money=MoneyKind.SANDBOX, at=later, covers=covers,
        tags=Tags(mine.id, "ann"), rate=Money.usd(5),
    )  # fmt: skip
    with site.store.writing() as tx:
        tx.post(more)
    with site.store.reading() as seen:
        assert len(seen.held_behind(both, "", mine.submitted_at - timedelta(days=1))) == 2
        assert seen.held_behind(both, mine.id, mine.submitted_at) == []


def test_a_new_job_does_not_overtake_them(site: Broker) -> None:
    waiting(site, "a", "b", "c", "d")
    pass_time(site, timedelta(hours=2))
    with pytest.raises(NotAllowed, match="overdrawn"):
        submitted(site, "new")
