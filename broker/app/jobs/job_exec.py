"""Use case: run a command inside a running job, or open a connection to it."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath

from broker.app.jobs.jobs import check_owner
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import AskAPerson, InvalidInput
from broker.core.events import events as ev
from broker.core.events.outcomes import AttemptState
from broker.core.events.views import AttemptView, JobView
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
