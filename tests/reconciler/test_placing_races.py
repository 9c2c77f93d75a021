"""Placing a job again: what changes between its plan and its transaction, and money that does not pay for a start."""

from dataclasses import replace
from datetime import timedelta

from broker.app.jobs.reasons import wait_text
from broker.core.events.outcomes import JobState
from broker.core.job.jobs import Job, Work
from broker.core.market.offers import Billing
from broker.core.values.money import Money
from tests.reconciler.rehearsal import MINUTE, Stage, offer

HOUR = timedelta(hours=1)


def test_money_that_does_not_pay_for_a_start_pauses_the_job(stage: Stage) -> None:
    """An hour at least is billed, and the job has money for a quarter of one left."""
    stage.offers = [replace(offer(stage.clock.now(), "od", price="10"), billing=Billing(minimum=HOUR))]
    job = Job(name="j", run="x", work=Work(duration=2 * HOUR), max_cost=Money.usd("12.5"))
    stage.submit(job, hold="12.5")
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time(MINUTE)
    stage.engine.take_back("j-1-1")
    view = stage.pass_time(MINUTE, times=3)
    assert stage.engine.submitted == ["j-1-1"]
    assert view.state is JobState.PAUSED_BUDGET
    assert "does not pay for a start" in wait_text(view.waiting)
