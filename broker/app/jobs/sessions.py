"""Sessions: jobs in which people work (`gpubroker dev`). A session gets the home folder of the last one of its name."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePath
from subprocess import PIPE

from broker.app.jobs.job_files import checkpoints
from broker.app.jobs.jobs import MAX_EARLIER_SESSIONS, check_owner, refuse_second_session
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.documents import print_document
from broker.core.errors import AskAPerson, InvalidInput, RetryLater
from broker.core.events import events as ev
from broker.core.events.outcomes import AttemptState
from broker.core.events.views import AttemptView, JobView
from broker.core.job.file import parse_job
from broker.core.job.file.reading import JobOverrides
from broker.core.job.jobs import Job, ResumePoint
from broker.core.ports import EntryCommand, SupportsEntry


@dataclass(frozen=True, slots=True)
class ExecTarget:
    """The running attempt of a job, and the engine that supports `exec`. ``node``: the node of the job."""

    attempt: AttemptView
    engine: SupportsEntry
    handle: str
    node: int

    def way(self, words: Sequence[str], *, terminal: bool = False) -> EntryCommand:
        """The command that reaches the attempt; as `LetsPeopleIn.way_in`."""
        return self.engine.way_in(self.handle, self.node, words, terminal=terminal)


def exec_target(broker: Broker, view: JobView, *, node: int | None, by: Actor) -> ExecTarget:
    """The running attempt that people can enter. Raises `InvalidInput` if its command does not run, it has several
    nodes and ``node`` names none, or its engine has no way in; `NotAllowed` for another person's job."""
    check_owner(view, by)
    _check_node(view, node)
    attempt = view.latest
    if attempt is None or attempt.state is not AttemptState.RUNNING or attempt.handle is None:
        raise InvalidInput(
            f"the command of {view.id} does not run; the job is {view.state.value.replace('_', ' ')}",
            hint=f"`gpubroker status {view.id} --wait` follows it",
        )
    engine = broker.engine(attempt.engine)
    if not isinstance(engine, SupportsEntry):
        raise InvalidInput(
            f"{view.id} runs on the engine {attempt.engine}, which cannot run a command inside a job",
            hint="`gpubroker logs` prints the job's output on every engine",
        )
    return ExecTarget(attempt, engine, attempt.handle, node or 0)


def record_exec(broker: Broker, view: JobView, attempt: AttemptView, program: str, *, by: Actor) -> None:
    """Record in the job's history who ran which program inside it."""
    with broker.store.writing() as tx:
        tx.append(view.id, [(attempt.number, ev.Entered(by=by.identity, program=program))], broker.clock.now())


def run_in_job(broker: Broker, view: JobView, arguments: Sequence[str], *, node: int | None, by: Actor) -> int:
    """Run the program (none: the shell of the job's user) where the job's command runs, as its user, in its folder,
    with its variables and CPUs and this process's standard streams. Returns its exit status: 128 + n if signal n ended
    it, 127 if it cannot be started, 75 if the command has ended meanwhile; the last two are reported on stderr. The
    program is stopped when the attempt ends. Before it starts, the job's history records the person and the program's
    name, without its arguments.

    Raises as `exec_target` and `LetsPeopleIn.way_in`.
    """
    target = exec_target(broker, view, node=node, by=by)
    has_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    way_in = target.way(["--", *arguments], terminal=has_terminal)
    record_exec(broker, view, target.attempt, PurePath(arguments[0]).name if arguments else "shell", by=by)
    with ignore_interrupts():
        status = start(way_in).wait()
    return status if status >= 0 else 128 - status


def start(way_in: EntryCommand, *, stdin: int | None = None, stdout: int | None = None) -> subprocess.Popen[bytes]:
    """Start the local command of ``way_in``, with this process's standard streams unless others are given. Raises
    `AskAPerson` if it is not on this machine."""
    try:
        return subprocess.Popen(way_in.arguments, stdin=stdin, stdout=stdout)  # noqa: S603 (the engine's words)
    except OSError as error:
        raise AskAPerson(
            f"{way_in.arguments[0]} cannot be started on this machine: {error.strerror or error}",
            hint="run this where the engine's own programs are (Slurm's commands, OpenSSH's client)",
        ) from error


def _check_node(view: JobView, node: int | None) -> None:
    nodes = view.job.num_nodes
    if node is None and nodes > 1:
        raise InvalidInput(f"{view.id} has {nodes} nodes", hint=f"choose one: --node 0 to --node {nodes - 1}")
    if node is not None and node >= nodes:
        raise InvalidInput(f"{view.id} has no node {node}; its nodes are 0 to {nodes - 1}")


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C in this process meanwhile. Ctrl-C reaches every process of the terminal; the program decides what
    it does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handler = signal.signal(
        signal.SIGINT, lambda *_: None
    )  # a handler, not SIG_IGN, which the program would inherit
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)


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
