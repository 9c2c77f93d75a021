"""What a caller may see and change: a job, a purchase, a job file to submit."""

from hashlib import sha256

from broker.app.access.callers import Caller
from broker.app.jobs.network_jobs import parse_received_job
from broker.app.jobs.predecessors import find_predecessor
from broker.core.access.people import Permission
from broker.core.errors import UnknownName
from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.core.purchases.purchases import PREFIX, Purchase


def changeable(by: Caller, id: str) -> JobView:
    """The job, if the caller may change it: their own, or as an administrator of its team. Raises as `Caller.job`."""
    view = by.job(id)
    is_own = view.user == by.actor.identity
    by.require(Permission.CHANGE_OWN_JOBS if is_own else Permission.CHANGE_TEAM_JOBS, view.job.team)
    return view


def purchase_of(by: Caller, id: str) -> Purchase:
    """The purchase. Raises `UnknownName`, also for one that the caller may not see."""
    try:
        purchase = by.broker.store.purchase(id)
    except UnknownName:
        if by.access.teams(Permission.SEE_BUDGETS) is None:
            raise
        raise UnknownName("purchase", id, ()) from None  # without similar names, which may be secret
    if not by.access.may(Permission.SEE_BUDGETS, purchase.team):
        raise UnknownName("purchase", id, ())
    return purchase


def purchase_id(by: Caller) -> str:
    """The id of the purchase that the caller's request makes."""
    return f"{PREFIX}{sha256(f'{by.actor.identity} {by.key}'.encode()).hexdigest()[:12]}"


def submittable_job(by: Caller, job_file: str) -> Job:
    """The job of that text, if the caller may submit it. Other jobs that it names are given by their ids. Raises
    `InvalidInput`, `RoleMissing`, and `UnknownName` for a job that the caller may not see."""
    job = parse_received_job(by.broker, job_file)
    by.require(Permission.SUBMIT, job.team)
    if job.resume_from is not None:
        by.job(job.resume_from.job, Permission.SEE_OUTPUT)
    for predecessor in job.after:
        by.job(find_predecessor(by.broker, predecessor.job)[0].id)
    return job
