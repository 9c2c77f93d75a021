"""Verdicts on jobs, on past decisions and on recorded use; as results, for the command line and the API."""

from __future__ import annotations

from datetime import datetime

from broker.app.capacity.findings import capacity_findings
from broker.app.jobs.jobs import find
from broker.app.jobs.preview import NothingToJudge
from broker.app.policy import policies
from broker.app.policy.changing import Files
from broker.app.policy.preview import preview
from broker.app.policy.warned import warned
from broker.app.results.capacity_plan import CapacityFindingList
from broker.app.results.policies import PolicyExplanation
from broker.app.results.policy_preview import PolicyPreviewResult
from broker.app.results.trials import RecordedDecisions
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput
from broker.core.job.jobs import Job


def seen_before(broker: Broker, files: Files) -> PolicyPreviewResult:
    """The effect of applying these files now, also on the decisions of the last 30 days. Raises `InvalidInput`."""
    return PolicyPreviewResult.of(preview(broker, files))


def explain(broker: Broker, job: Job, files: Files | None = None, *, by: Actor) -> PolicyExplanation:
    """Every rule's verdict on the job, as `policies.explain`; ``files``: judge by these instead of the active policy.
    Raises `InvalidInput`, and `NothingToJudge` if no offer can serve the job."""
    what_if = None if files is None else policies.loaded(broker, files)
    explained = policies.explain(broker, job, what_if, by=by)
    if explained is None:
        raise NothingToJudge("no placement is feasible, so there is none to judge", hint="see `gpubroker plan`")
    return PolicyExplanation.of(explained, (what_if or broker.policy()).version)


def decisions_about(broker: Broker, reference: str) -> RecordedDecisions:
    """The recorded decisions about a submitted job, oldest first. ``reference``: as in `find`. Raises `UnknownName`."""
    view = find(broker, reference)
    with broker.store.reading() as look:
        return RecordedDecisions.of(list(reversed(look.decisions(job_id=view.id))))


def findings(broker: Broker, since: datetime) -> CapacityFindingList:
    """Recorded use since then against owned, reserved and rented capacity, and what rules that only warn would have
    stopped. Raises `InvalidInput` for a time that is not past."""
    if since >= broker.clock.now():
        raise InvalidInput("expected a time in the past", where="since")
    return CapacityFindingList.of(capacity_findings(broker, since), warned(broker, since))
