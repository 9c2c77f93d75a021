"""Sessions: jobs in which people work (`gpubroker dev`). A session gets the home folder of the last one of its name."""

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from subprocess import PIPE

from broker.app.jobs.job_exec import exec_target, start
from broker.app.jobs.job_files import checkpoints
from broker.app.jobs.jobs import MAX_EARLIER_SESSIONS, refuse_second_session
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.documents import print_document
from broker.core.errors import InvalidInput, RetryLater
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.job.file.reading import JobOverrides
from broker.core.job.jobs import Job, ResumePoint

# Two versions of the home folder are kept, in case the newest is unreadable.
_HOME_VERSIONS = 2
_COMMAND = 'exec "$GPUBROKER_PYTHON" -m gpubroker_session'
_JUPYTER = 'cat "$JUPYTER_RUNTIME_DIR"/jpserver-*.json'


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """A person's request, in the forms of a job file (``longest: 4h``, ``idle: 30m``)."""

    name: str = "dev"
    longest: str = "4h"
    idle: str = "30m"
    jupyter: bool = False


def session_job(request: SessionRequest, now: datetime, overrides: JobOverrides) -> Job:
    """The job of a session, without spot unless ``overrides`` name it. ``now`` (UTC): the time that relative dates
    count from. Raises `InvalidInput`."""
    document = {
        "name": request.name,
        "workload": "development",
        "resources": {"use_spot": False},
        "run": _COMMAND,
        "max_duration": request.longest,
        "checkpoint": {"keep": _HOME_VERSIONS},
        "session": {"idle": request.idle, "at_most": request.longest, "jupyter": request.jupyter},
    }
    return parse_job(print_document(document), file="command line", now=now, overrides=overrides)


def resume_home(broker: Broker, job: Job, *, by: Actor) -> Job:
    """The session with the home folder of the last one of its name by the same person, if that saved any. Raises
    `InvalidInput` if one of them is open."""
    with broker.store.reading() as reader:
        namesakes = reader.jobs(name=job.name, users=[by.identity], limit=MAX_EARLIER_SESSIONS)
    refuse_second_session(job, namesakes)
    for view in (candidate for candidate in namesakes if candidate.job.session is not None):
        if checkpoints(broker, view):
            return job.model_copy(update={"resume_from": ResumePoint(job=view.id)})
    return job


@dataclass(frozen=True, slots=True)
class JupyterServer:
    """The port of a session's Jupyter on its machine (loopback), and the token that opens it."""

    port: int
    token: str = field(repr=False)


def jupyter_server(broker: Broker, view: JobView, *, node: int | None, by: Actor) -> JupyterServer:
    """The Jupyter of a running session, from the private file that the server writes. Raises as `exec_target`,
    `InvalidInput` for a job without Jupyter, `RetryLater` while it starts."""
    if view.job.session is None or not view.job.session.jupyter:
        raise InvalidInput(f"{view.id} runs no Jupyter", hint="open a session with one: `gpubroker dev --jupyter`")
    target = exec_target(broker, view, node=node, by=by)
    process = start(target.way(["--", "sh", "-c", _JUPYTER]), stdout=PIPE)
    output, _ = process.communicate()
    try:
        report = json.loads(output)
        server = JupyterServer(int(report["port"]), str(report["token"]))
    except (ValueError, KeyError, TypeError) as error:
        raise RetryLater(
            f"the Jupyter of {view.id} has not reported its address yet", hint=f"`gpubroker logs {view.id}`"
        ) from error
    if not 0 < server.port < 1 << 16 or not re.fullmatch(r"[A-Za-z0-9._~-]{16,200}", server.token):
        raise RetryLater(f"the Jupyter of {view.id} reported no usable address")
    return server
