"""Slurm arrays: the tasks that `sbatch --array` names, and the holds for tasks that begin.

An array is judged as a whole when it is submitted, without a hold. Before a task begins, Slurm's prolog requests its
hold, which lasts until the task's end is reported; a task that runs again needs a new hold.
"""

from __future__ import annotations

import re

from broker.app.outside.arrays import OutsideArray
from broker.app.outside.launches import PREFIX, Admitted, OutsideLaunch, OutsideTool, judge, refuse_beyond
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput, UnknownName
from broker.core.policy.decisions import inputs_of
from broker.core.policy.policy import Action, Answer

MOST_TASKS = 1_000_000
_PART = re.compile(r"(?P<first>[0-9]{1,7})(?:-(?P<last>[0-9]{1,7})(?::(?P<step>[0-9]{1,7}))?)?")
_TASK = re.compile(r"(?P<array>slurm-[0-9a-f]{24})\.[0-9]{1,7}")


def tasks_of(indices: str) -> OutsideArray:
    """The array that ``--array`` names, as ``0-99%4``, ``1,3,5-7`` or ``0-15:4``. Without a limit, all run at once.
    Raises `InvalidInput`."""
    listed, _, limit = indices.partition("%")
    parts = [_PART.fullmatch(one.strip()) for one in listed.split(",")]
    if not all(parts) or (limit and not limit.isdecimal()):
        raise InvalidInput(f"expected tasks as 0-99%4 or 1,3,5; got {indices[:100]!r}", where="array")
    count = 0
    for part in parts:
        if part is not None:
            first, last, step = (int(part[name] or 0) for name in ("first", "last", "step"))
            count += len(range(first, max(first, last) + 1, step or 1))
    if count > MOST_TASKS:
        raise InvalidInput(f"an array has at most {MOST_TASKS:,} tasks", where="array")
    return OutsideArray(count, min(int(limit or 0) or count, count))


def begin_task(broker: Broker, task: str, *, by: Actor) -> Admitted:
    """Hold the money of a task that begins. ``task``: the array's id and the task's number, as ``slurm-4f1c….17``.
    Idempotent while the task runs. Raises `UnknownName` for an array that was not admitted, `NotAllowed` if as many of
    its tasks run as may run at once, and as `judge`."""
    found = _TASK.fullmatch(task.removeprefix(PREFIX))
    whole = _whole(broker, PREFIX + found["array"]) if found else None
    if found is None or whole is None or whole.placement is None:
        raise UnknownName("array", task, ())
    id, placed, nodes = PREFIX + found[0], whole.placement, whole.job.num_nodes
    pool = placed.offer.pool
    launch = OutsideLaunch(
        OutsideTool.SLURM, task, whole.user, whole.job, lambda offer: offer.pool == pool, known_as=id,
        most=placed.nodes // nodes,
    )  # fmt: skip
    with broker.store.reading() as look:
        refuse_beyond(look, launch)
    return judge(broker, launch, holds=True, by=by)


def _whole(broker: Broker, id: str) -> Action | None:
    """The action that was judged when the array was submitted; None if it was not admitted."""
    with broker.store.reading() as look:
        decisions = look.decisions(job_id=id, limit=1)
    inputs = inputs_of(decisions[0]) if decisions and decisions[0].answer is Answer.ALLOW else None
    return None if inputs is None else inputs.action
