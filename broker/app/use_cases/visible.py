"""What a caller may see and change: a job, a purchase, a job file to submit."""

from hashlib import sha256

from broker.app.access.callers import Caller
from broker.app.jobs.network_jobs import parse_received_job
from broker.app.jobs.predecessors import find_predecessor
from broker.core.access.people import Permission
from broker.core.errors import UnknownName, UnreadableJob
from broker.core.events.views import JobView
from broker.core.job.jobs import Job, Predecessor
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
    """The job of that text, if the caller may submit it, with the ids of those that it comes after. Raises
    `InvalidInput`, `RoleMissing`, and `UnknownName` for a job that the caller may not see."""
    job = parse_received_job(by.broker, job_file)
    by.require(Permission.SUBMIT, job.team)
    if job.resume_from is not None:
        by.job(job.resume_from.job, Permission.SEE_OUTPUT)
    after = tuple(_visible_predecessor(by, predecessor) for predecessor in job.after)
    return job.model_copy(update={"after": after}) if after else job


def _visible_predecessor(by: Caller, predecessor: Predecessor) -> Predecessor:
    """The predecessor, named by the id of the job that the caller may see: other people may have jobs of that name."""
    teams, name = by.access.teams(Permission.SEE_JOBS), predecessor.job
    try:
        id = find_predecessor(by.broker, name, teams)[1]
    except (UnknownName, UnreadableJob):
        if teams is None:
            raise
        raise UnknownName("job", name, ()) from None  # without similar names, which may be secret
    return predecessor if id == name else predecessor.model_copy(update={"job": id, "folder": name})
