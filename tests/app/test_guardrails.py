"""What runs is stopped by every guardrail that is about it, checkpoint first, with the rule's words, billed to the
second; and by none of their near twins. The table is `tests/policies/guardrail_twins.py`."""

import io
import os

import pytest
from rich.console import Console

from broker.app.jobs import approvals, details
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.extension import extend
from broker.app.jobs.reasons import stop_text, wait_text
from broker.app.wiring import Broker
from broker.cli.jobs import job_view
from broker.core.events.outcomes import Cause, JobState
from broker.core.values.money import Money
from tests.actors import ANN, OLGA
from tests.policies.guardrail_twins import (
    MACHINE,
    PAIRS,
    RunningJobs,
    activate,
    billed_to_the_second,
    entry,
    machine,
    site,
)
from tests.program import kill, processes

__all__ = ["machine", "site"]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes and signals")


def stopped_while_running(site: Broker, names: list[str]) -> RunningJobs:
    """Each of these guardrails, activated while its job runs, stops it, checkpoint first; the near twins of all of
    them together let one job go on."""
    running = RunningJobs(site)
    activate(site)
    for name in names:
        running.submit(name, PAIRS[name].job)
    running.submit("twin", MACHINE)
    running.until(running.all(JobState.RUNNING), "all run")
    running.until(lambda: all(v.checkpoint for v in running.views.values()), "all have saved a checkpoint")
    pairs = {name: PAIRS[name] for name in names}
    activate(
        site,
        *(entry(site, name, pair.stops, name, pair.section) for name, pair in pairs.items()),
        *(entry(site, f"{name}-twin", pair.lets, "twin", pair.section) for name, pair in pairs.items()),
    )
    running.until(running.all(JobState.PAUSED_BUDGET, *names), "all are stopped")
    assert running.views["twin"].state is JobState.RUNNING, "its rules let it go on"
    for name in names:
        view = running.views[name]
        attempt = view.attempts[-1]
        assert attempt.cause is Cause.STOPPED_BY_POLICY, name
        why = stop_text(attempt.stop_reason) or attempt.evidence
        assert PAIRS[name].words in why
        assert why in wait_text(view.waiting)
        assert why in shown(site, running, name), "`status` says why"
        if name != "idle":  # its own agent may have saved and stopped it before it is told to
            assert attempt.stop_requested_at is not None, name
            after = [c for c in attempt.checkpoints if c.at >= attempt.stop_requested_at]
            assert after, f"{name}: saved once more when it was told to stop"
        billed_to_the_second(site, view)
    return running


def shown(site: Broker, running: RunningJobs, name: str) -> str:
    """What `status` says of a job, in one line."""
    view = running.views[name]
    console = Console(width=400, record=True, file=io.StringIO())
    console.print(*job_view.job_story(details.history(site, view)), sep="\n", highlight=False)
    return console.export_text()


@pytest.mark.system
def test_while_running_a_few(site: Broker) -> None:
    running = stopped_while_running(site, ["cost", "locations"])
    assert f"gpubroker jobs extend {running.views['cost'].id}" in shown(site, running, "cost")

    # What was stopped at its cost limit goes on from its checkpoint, once the limit and the job's own are higher.
    view = running.views["cost"]
    activate(site, entry(site, "cost", "max_job_cost: $100000", "cost"))
    extend(site, view, JobLimits(max_cost=Money.usd(9000)), by=ANN)
    running.until(running.all(JobState.RUNNING, "cost"), "it runs again")
    second = running.views["cost"].attempts[-1]
    assert second.number == 2
    # What a policy stopped goes on by itself, once a later policy lets it.
    running.until(running.all(JobState.RUNNING, "locations"), "the other one runs again, too")
    assert second.resumed_from == max(c.id for c in view.attempts[0].checkpoints)


@pytest.mark.system
@pytest.mark.parametrize("half", [0, 1], ids=["one half", "the other"])  # so that a small machine is not flooded
def test_while_running_all(site: Broker, half: int) -> None:
    stopped_while_running(site, [name for name, pair in PAIRS.items() if pair.running][half::2])


@pytest.mark.system
def test_stopped_by_a_rule_that_asks_it_goes_on_once_somebody_approves(
    site: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = stopped_while_running(site, ["asks"])
    view = running.views["asks"]

    extend(site, view, JobLimits(), by=ANN)
    running.until(running.all(JobState.AWAITING_APPROVAL, "asks"), "somebody is asked")
    assert len(running.views["asks"].attempts) == 1, "nothing runs before somebody says yes"
    approvals.grant(site, view.id, "worth it", by=OLGA)
    running.until(running.all(JobState.RUNNING, "asks"), "it runs again")
    running.until(lambda: bool(running.views["asks"].attempts[-1].resumed_from), "it has found its checkpoint")
    assert running.views["asks"].attempts[-1].resumed_from == max(c.id for c in view.attempts[0].checkpoints)
    spent = running.views["asks"].attempts[-1].checkpoints
    running.until(lambda: len(running.views["asks"].attempts[-1].checkpoints) > len(spent) + 3, "it goes on and on")
    assert running.views["asks"].state is JobState.RUNNING, "what was approved is not stopped again"


@pytest.mark.system
def test_what_was_started_too_often_is_not_started_again_and_its_near_twin_is(site: Broker) -> None:
    running = RunningJobs(site)
    attempts = "runaway: {max_attempts: %d}"
    activate(site, entry(site, "few", attempts % 1, "few"), entry(site, "more", attempts % 2, "more"))
    for name in ("few", "more"):
        running.submit(name, MACHINE)
    running.until(running.all(JobState.RUNNING), "both run")
    running.until(lambda: all(v.checkpoint for v in running.views.values()), "both have saved a checkpoint")
    assert kill(processes(site.settings.home, "agent")) >= 2
    running.until(lambda: len(running.views["more"].attempts) == 2, "one is started again")
    running.until(
        lambda: "the job was started 1 times; the limit is 1" in wait_text(running.views["few"].waiting), "why"
    )

    assert len(running.views["few"].attempts) == 1
    assert running.views["few"].state is JobState.INTERRUPTED
