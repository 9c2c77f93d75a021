"""Documents about policies for the command line, the API and the web UI."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from broker.app.capacity.findings import capacity_findings
from broker.app.jobs.jobs import find
from broker.app.jobs.preview import NothingToJudge
from broker.app.policy import policies
from broker.app.policy.warn_rules import warned_rules
from broker.app.results.capacity_plan import CapacityFindingList
from broker.app.results.policies import (
    ActivePolicy,
    AppliedPolicy,
    CheckedPolicy,
    PolicyExplanation,
    PolicyInForce,
    PolicyVersionList,
)
from broker.app.results.trials import RecordedDecisions
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput
from broker.core.job.jobs import Job
from broker.core.policy.policy import Answer
from broker.core.ports import PolicySet


def policy_in_force(broker: Broker, *, files: bool = False) -> PolicyInForce:
    """The active policy; ``files``: with the texts of its files."""
    active = broker.store.active_policy()
    return PolicyInForce(active=active and ActivePolicy.of_set(active, broker.policy(), files=files))


def policy_versions(broker: Broker) -> PolicyVersionList:
    """Every activation, the newest first."""
    return PolicyVersionList.of(broker.store.policy_history())


Files = Mapping[str, str]
"""The texts of policy files by name."""


def check_policy(broker: Broker, files: Files) -> CheckedPolicy:
    """The rules of the files, and likely mistakes. Raises `InvalidInput` with every finding. Changes nothing."""
    policy_set = policies.load_policy(broker, files)
    return CheckedPolicy.of(policy_set, policies.policy_warnings(broker, policy_set))


def apply_policy(broker: Broker, files: Files, note: str, *, by: Actor, base: int | None = None) -> AppliedPolicy:
    """Make these files the active policy. ``base``: the version that must be active (0: none); None: any. Raises
    `InvalidInput` for invalid files, and if another version is active; then nothing was changed."""
    previous, old, new = broker.store.active_policy(), _readable(broker), policies.load_policy(broker, files)
    version, difference = policies.activate(broker, files, note, by=by, base=base)
    return AppliedPolicy.of_change(
        version,
        old,
        new,
        changed=previous is None or previous.number != version.number,
        difference=difference,
        warnings=policies.policy_warnings(broker, new),
    )


def _readable(broker: Broker) -> PolicySet | None:
    """The active set; None if there is none, or if this version cannot read it (applying another set fixes that)."""
    try:
        return broker.policy()
    except InvalidInput:
        return None


def explain_job(broker: Broker, job: Job, files: Files | None = None, *, by: Actor) -> PolicyExplanation:
    """Every rule's verdict on the job, as `policies.explain`; ``files``: judge by these instead of the active policy.
    Raises `InvalidInput`, and `NothingToJudge` if no offer can serve the job."""
    policy_set = None if files is None else policies.load_policy(broker, files)
    explanation = policies.explain(broker, job, policy_set, by=by)
    if explanation is None:
        raise NothingToJudge("no placement is feasible, so there is none to judge", hint="see `gpubroker plan`")
    return PolicyExplanation.of(explanation, (policy_set or broker.policy()).version)


def recorded_decisions(broker: Broker, reference: str) -> RecordedDecisions:
    """The recorded decisions about a submitted job, oldest first. ``reference``: as in `find`. Raises `UnknownName`."""
    view = find(broker, reference)
    with broker.store.reading() as reader:
        return RecordedDecisions.of(list(reversed(reader.decisions(job_id=view.id))))


def recent_decisions(broker: Broker, since: datetime, *, denied: bool, limit: int) -> RecordedDecisions:
    """The newest decisions of all jobs since then (UTC), or only those that denied."""
    with broker.store.reading() as look:
        found = look.decisions(since=since, answer=Answer.DENY if denied else None, limit=limit)
    listed = RecordedDecisions.of(found).decisions
    return RecordedDecisions(decisions=[one.model_copy(update={"seen": {}}) for one in listed])


def policy_findings(broker: Broker, since: datetime) -> CapacityFindingList:
    """Recorded use since then against owned, reserved and rented capacity, and what warn-only rules would have
    stopped. Raises `InvalidInput` for a time that is not past."""
    if since >= broker.clock.now():
        raise InvalidInput("expected a time in the past", where="since")
    return CapacityFindingList.of(capacity_findings(broker, since), warned_rules(broker, since))
