"""A job at its cost limit, with real processes: checkpointed, stopped, billed to the second, and resumed once more
money was approved."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from broker.app.jobs import approvals, jobs
from broker.app.jobs.extension import extend
from broker.app.jobs.nearest import JobLimits
from broker.app.jobs.submit import submit
from broker.app.wiring import Broker
from broker.core.events.outcomes import Cause, JobState
from broker.core.job.file import parse_job
from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from tests.actors import ANN, OLGA
from tests.policies.guardrail_twins import COMMAND, RunningJobs, activate, billed_to_the_second, machine, site

__all__ = ["machine", "site"]
ASKS = "guardrails:\n  - {name: dear, approve_above: {cost: $2000, approvers: [olga], expires: 1h}}\n"
# A dollar a second; stopping takes two minutes of it at most, which the hold keeps back.
LIMIT = Money.usd(124)


@pytest.mark.system
@pytest.mark.skipif(os.name != "posix", reason="processes and signals")
def test_at_its_cost_limit_it_is_stopped_and_goes_on_once_more_is_approved(
    site: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    activate(site, ASKS)
    running = RunningJobs(site)
    indented = COMMAND.replace("\n", "\n  ").rstrip()
    text = (
        f"name: dear\nmax_duration: 2h\nresources: {{accelerators: 'H100:1'}}\nmax_cost: {LIMIT}\n"
        f"checkpoint: {{every: 1m}}\nrun: |\n  {indented}\n"
    )
    view = submit(site, parse_job(text, file="job.yaml", now=site.clock.now()), by=ANN)
    running.views["dear"] = view

    running.until(running.all(JobState.PAUSED_BUDGET), "its money ends")
    view = running.views["dear"]
    first = view.attempts[0]
    assert first.cause in (Cause.PAID_UNTIL, Cause.MAX_COST)
    assert first.checkpoints, "checkpoint first"
    billed_to_the_second(site, view)
    with site.store.reading() as look:
        assert look.balance(view.id)[MoneyKind.CASH].spent <= LIMIT

    asked = extend(site, view, JobLimits(max_cost=Money.usd(5000)), by=ANN)
    assert asked.state is JobState.AWAITING_APPROVAL
    assert asked.asked is not None
    assert asked.asked.total == Money.usd(5000)
    running.reconciler.tick()
    assert len(jobs.find(site, view.id).attempts) == 1, "nothing runs before somebody says yes"
    approvals.grant(site, view.id, "worth it", by=OLGA)

    running.until(running.all(JobState.RUNNING), "it runs again")
    second = running.views["dear"].attempts[-1]
    assert second.number == 2
    running.until(lambda: bool(running.views["dear"].attempts[-1].resumed_from), "it has found its checkpoint")
    assert running.views["dear"].attempts[-1].resumed_from == max(c.id for c in first.checkpoints)
    jobs.cancel(site, view, by=ANN)
    running.until(lambda: running.views["dear"].closed, "it is closed")
    billed_to_the_second(site, running.views["dear"])
    assert running.views["dear"].attempts[-1].requested_at - first.requested_at < timedelta(minutes=5)
