"""Use case: run a program beside the command of a running job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from broker.app.jobs.jobs import check_owner
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput
from broker.core.events import events as ev
from broker.core.events.outcomes import AttemptState
from broker.core.events.views import JobView
from broker.core.ports import LetsPeopleIn


def enter(broker: Broker, view: JobView, arguments: Sequence[str], *, node: int | None, by: Actor) -> int:
    """Run the program where the job's command runs, with this process's standard streams, and return its exit status.
    The job's history says who did it, and the program's name without its arguments, before it starts.

    Raises `InvalidInput` if the job does not run, has several nodes and ``node`` names none, or its engine lets nobody
    in; `NotAllowed` for another person's job; and what `LetsPeopleIn.enter` raises.
    """
    check_owner(view, by)
    _check_node(view, node)
    attempt = view.latest
    if attempt is None or attempt.state is not AttemptState.RUNNING or attempt.handle is None:
        raise InvalidInput(
            f"the command of {view.id} does not run; the job is {view.state.value.replace('_', ' ')}",
            hint=f"`gpubroker jobs show {view.id} --wait` follows it",
        )
    engine = broker.engine(attempt.engine)
    if not isinstance(engine, LetsPeopleIn):
        raise InvalidInput(
            f"{view.id} runs on the engine {attempt.engine}, which cannot run a program beside a job's command",
            hint="the engine local can; `gpubroker jobs logs` prints the job's output on every engine",
        )
    with broker.store.writing() as tx:
        entered = ev.Entered(by=by.identity, program=PurePath(arguments[0]).name)
        tx.append(view.id, [(attempt.number, entered)], broker.clock.now())
    return engine.enter(attempt.handle, arguments)


def _check_node(view: JobView, node: int | None) -> None:
    nodes = view.job.num_nodes
    if node is None and nodes > 1:
        raise InvalidInput(f"{view.id} has {nodes} nodes", hint=f"choose one: --node 0 to --node {nodes - 1}")
    if node is not None and node >= nodes:
        raise InvalidInput(f"{view.id} has no node {node}; its nodes are 0 to {nodes - 1}")
