"""Plans as results: for the command line and the API."""

from broker.app.clouds import missing_for
from broker.app.jobs.plan_documents import PlanJudge, PlanResult
from broker.app.jobs.preview import Preview, preview
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.job.jobs import Job
from broker.core.ports import PolicySet


def plan(
    broker: Broker, job: Job, what_if: PolicySet | None = None, *, by: Actor, by_carbon: bool = False, limit: int
) -> PlanResult:
    """As `preview`, with at most ``limit`` placements."""
    return plan_result(broker, preview(broker, job, what_if, by=by, by_carbon=by_carbon), what_if, limit=limit)


def plan_result(broker: Broker, job_preview: Preview, what_if: PolicySet | None = None, *, limit: int) -> PlanResult:
    """The plan of a preview, with at most ``limit`` placements. ``what_if``: the policies that judged it, if other than
    the active one."""
    candidates = (job_preview.estimate or job_preview.plan).placements
    lacks_policy = what_if is None and job_preview.exit_code == 3 and broker.store.active_policy() is None
    is_unset = bool(candidates) and (job_preview.estimate is not None or lacks_policy)
    missing = missing_for(broker, candidates[0].offer.provider) if is_unset else []
    judge = PlanJudge.POLICY_FILES if what_if else PlanJudge.ACTIVE_POLICY if broker.store.active_policy() else None
    return PlanResult.of(job_preview, what_if or broker.policy(), judge, missing=missing, limit=limit)
