"""The routes by which other tools ask about the launches of their users, and report the end of those."""

from __future__ import annotations

from datetime import timedelta

from fastapi import Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from broker.app.jobs.preview import NoFeasibleCapacity
from broker.app.outside import launches
from broker.app.outside.overdue import overdue, reported
from broker.app.outside.skypilot_requests import answered
from broker.app.outside.slurm_arrays import begin_task
from broker.app.outside.slurm_requests import SlurmAsks, admitted
from broker.app.results.outside import OutsideEnd, OutsideLaunchList, SlurmAdmission
from broker.core.access.permissions import Permission
from broker.core.errors import ApprovalNeeded, InvalidInput, NotAllowed
from broker.server.looking import By, answer

_VETOES = (NotAllowed, ApprovalNeeded, InvalidInput, NoFeasibleCapacity)


class OutsideEndBody(BaseModel):
    """``ran_seconds``: how long the machines were there; null: since the launch was admitted."""

    model_config = ConfigDict(extra="forbid")

    ran_seconds: float | None = Field(default=None, ge=0, le=366 * 86_400)


async def judge_skypilot(by: By, request: Request) -> Response:
    """SkyPilot's `admin_policy`: the task pinned to the offer that was judged, its money held. Status 400: a veto, in
    plain text, which SkyPilot shows to its user. Asked again about the same launch, nothing is held twice."""
    from starlette.concurrency import run_in_threadpool

    body = (await request.body()).decode("utf-8", "replace")
    try:
        said = await run_in_threadpool(answered, by.broker, body, by=by.actor)
    except _VETOES as error:
        return PlainTextResponse(f"{error}" + (f"\n{error.hint}" if error.hint else ""), 400)
    return Response(said, 200, media_type="application/json")


def judge_slurm(by: By, body: SlurmAsks) -> Response:
    """A submission to Slurm: its money is held; by the id that is returned its end is reported. Status 403: a veto."""
    return answer(SlurmAdmission(id=admitted(by.broker, body, by=by.actor)))


def start_task(by: By, task: str) -> Response:
    """A task of an array of Slurm begins: its money is held until its end is reported. ``task``: the array's id, a dot
    and the task's number. Status 403: it has to wait. Asked again while it runs, nothing is held twice."""
    return answer(SlurmAdmission(id=begin_task(by.broker, task, by=by.actor).id))


def list_launches(by: By) -> Response:
    """Launches made with other tools, of the teams that the caller may see, oldest first; and those whose end nobody
    reported."""
    with by.broker.store.reading() as look:
        found = launches.open_launches(look)
    seen = [one for one in found if by.access.may(Permission.SEE_JOBS, one.tags.team)]
    late = [one for one in overdue(by.broker) if by.access.may(Permission.SEE_JOBS, one.team)]
    return answer(OutsideLaunchList.of(seen, late))


def end_launch(by: By, launch: str, body: OutsideEndBody) -> Response:
    """Report that the machines of a launch are gone: what they cost is spent, the rest released. Again: no effect."""
    id = launch if launch.startswith(launches.PREFIX) else launches.PREFIX + launch
    ran = None if body.ran_seconds is None else timedelta(seconds=body.ran_seconds)
    return answer(OutsideEnd(id=id, cost_usd=reported(by.broker, id, ran, by=by.actor)))
