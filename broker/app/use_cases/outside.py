"""Launches outside gpubroker that count against its budgets."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from broker.app.access.callers import Caller
from broker.app.outside import launches
from broker.app.outside.documents import OutsideEnd, OutsideLaunchList, SlurmAdmission, overdue_launches, report_end
from broker.app.outside.slurm_requests import begin_task
from broker.core.access.people import Permission

RunTime = Annotated[
    float | None,
    Field(ge=0, le=366 * 86_400, description="How long the machines were there; null: since the launch was admitted."),
]


def list_launches(by: Caller) -> OutsideLaunchList:
    """Launches made with other tools, of the teams that the caller may see, oldest first; and those whose end nobody
    reported."""
    with by.broker.store.reading() as snapshot:
        open_launches = launches.open_launches(snapshot)
    visible = [launch for launch in open_launches if by.access.may(Permission.SEE_JOBS, launch.tags.team)]
    late_launches = [
        launch for launch in overdue_launches(by.broker) if by.access.may(Permission.SEE_JOBS, launch.team)
    ]
    return OutsideLaunchList.from_parts(launches=visible, overdue=late_launches)


def end_launch(by: Caller, launch: str, ran_seconds: RunTime = None) -> OutsideEnd:
    """Report that the machines of a launch are gone: what they cost is spent, the rest released. Again: no effect."""
    id = launch if launch.startswith(launches.PREFIX) else launches.PREFIX + launch
    run_time = None if ran_seconds is None else timedelta(seconds=ran_seconds)
    return OutsideEnd(id=id, cost_usd=report_end(by.broker, id, run_time, by=by.actor))


def start_task(by: Caller, task: str) -> SlurmAdmission:
    """A task of an array of Slurm begins: its money is held until its end is reported. ``task``: the array's id, a dot
    and the task's number. Status 403: it has to wait. Asked again while it runs, nothing is held twice."""
    return SlurmAdmission(id=begin_task(by.broker, task, by=by.actor).id)
