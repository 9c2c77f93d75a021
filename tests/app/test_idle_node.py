"""The idle rule where it runs: the node holds it by itself, with the broker gone; both sides say the same, once."""

import pytest

from broker.app.jobs import jobs
from broker.app.jobs.reasons import wait_text
from broker.app.service import passes
from broker.app.wiring import Broker
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from tests.policies.guardrail_twins import MACHINE, RunningJobs, activate, billed_to_the_second, entry, machine, site
from tests.program import eventually

__all__ = ["machine", "site"]

IDLE = "idle_shutdown: {below: 5%, for: 1s}"


@pytest.mark.system
def test_with_the_broker_gone_what_is_idle_saves_stops_and_says_why_and_is_paused_when_one_is_back(
    site: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = vars(passes)["run_folders"](site)  # those of the site's reconciler
    monkeypatch.setattr(folders, "usage", lambda view, attempt: [])  # whoever reconciles sees nothing
    activate(site)
    running = RunningJobs(site)
    running.submit("idle", MACHINE)
    running.submit("twin", MACHINE)
    running.until(lambda: all(v.checkpoint for v in running.views.values()), "both have saved a checkpoint")
    more = "idle_shutdown: {below: 2%, for: 1s}"
    activate(site, entry(site, "idle", IDLE, "idle"), entry(site, "twin", more, "twin"))
    idle = running.views["idle"]

    def told() -> bool:
        lease = folders.lease(idle, idle.attempts[0])
        return lease is not None and bool(lease.idle)

    running.until(told, "its node is told of the rule")
    # From here on nobody reconciles.
    ending = eventually(lambda: folders.read(idle, idle.attempts[0]).exit, "its agent stops it")
    assert ending.cause is Cause.STOPPED_BY_POLICY
    assert ending.evidence == "accelerator utilization was at most 3% for 1s; the limit is 5% (0.yaml:3)"
    assert jobs.find(site, idle.id).state is JobState.RUNNING, "nobody has looked yet"

    running.reconciler = passes.reconciler(site)  # another process
    running.until(running.all(JobState.PAUSED_BUDGET, "idle"), "it is paused")
    after = running.views["idle"]
    assert wait_text(after.waiting) == f"stopped by a policy: {ending.evidence}"
    ends = [one.body for one in jobs.events(site, after) if isinstance(one.body, ev.StopRequested | ev.AttemptEnded)]
    assert [(body.kind, body.cause) for body in ends] == [("attempt_ended", Cause.STOPPED_BY_POLICY)], "said once"
    assert after.checkpoint is not None
    billed_to_the_second(site, after)
    assert running.views["twin"].state is JobState.RUNNING, "3% is not below 2%"
