"""The requests of Slurm's `job_submit` plugin before Slurm accepts a job, and the answers."""

import re
import secrets
from datetime import timedelta
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from broker.app.outside.launches import (
    PREFIX,
    AdmittedLaunch,
    OutsideArray,
    OutsideLaunch,
    OutsideTool,
    check_task_limit,
    judge_launch,
    resolve_submitter,
)
from broker.app.outside.skypilot_requests import attempt_of_ticket
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput, NotAllowed, UnknownName
from broker.core.events.views import AttemptView
from broker.core.job.file import parse_job
from broker.core.market.accelerators import canonical
from broker.core.market.offers import Offer, OfferQuery
from broker.core.policy.decisions import inputs_of
from broker.core.policy.policy import Action, Answer

# Slurm arrays: the tasks that `sbatch --array` names, and the holds for tasks that begin.
#
# An array is judged as a whole when it is submitted, without a hold. Before a task begins, Slurm's prolog requests its
# hold, which lasts until the task's end is reported; a task that runs again needs a new hold.
MAX_TASKS = 1_000_000
_RANGE = re.compile(r"(?P<first>[0-9]{1,7})(?:-(?P<last>[0-9]{1,7})(?::(?P<step>[0-9]{1,7}))?)?")
_TASK = re.compile(r"(?P<array>slurm-[0-9a-f]{24})\.[0-9]{1,7}")


def parse_array(indices: str) -> OutsideArray:
    """The array that ``--array`` names, as ``0-99%4``, ``1,3,5-7`` or ``0-15:4``. Without a limit, all run at once.
    Raises `InvalidInput`."""
    ranges_text, _, limit = indices.partition("%")
    ranges = [_RANGE.fullmatch(range_text.strip()) for range_text in ranges_text.split(",")]
    if not all(ranges) or (limit and not limit.isdecimal()):
        raise InvalidInput(f"expected tasks as 0-99%4 or 1,3,5; got {indices[:100]!r}", where="array")
    count = 0
    for range_match in ranges:
        if range_match is not None:
            first, last, step = (int(range_match[name] or 0) for name in ("first", "last", "step"))
            count += len(range(first, max(first, last) + 1, step or 1))
    if count > MAX_TASKS:
        raise InvalidInput(f"an array has at most {MAX_TASKS:,} tasks", where="array")
    return OutsideArray(count, min(int(limit or 0) or count, count))


def begin_task(broker: Broker, task: str, *, by: Actor) -> AdmittedLaunch:
    """Hold the money of a task that begins. ``task``: the array's id and the task's number, as ``slurm-4f1c….17``.
    Idempotent while the task runs. Raises `UnknownName` for an array that was not admitted, `NotAllowed` if as many of
    its tasks run as may run at once, and as `judge_launch`."""
    task_match = _TASK.fullmatch(task.removeprefix(PREFIX))
    array_action = _array_action(broker, PREFIX + task_match["array"]) if task_match else None
    if task_match is None or array_action is None or array_action.placement is None:
        raise UnknownName("array", task, ())
    id, placement, nodes = PREFIX + task_match[0], array_action.placement, array_action.job.num_nodes
    pool = placement.offer.pool
    launch = OutsideLaunch(
        OutsideTool.SLURM, task, array_action.user, array_action.job, lambda offer: offer.pool == pool, known_as=id,
        most=placement.nodes // nodes,
    )  # fmt: skip
    with broker.store.reading() as reader:
        check_task_limit(reader, launch)
    return judge_launch(broker, launch, holds=True, by=by)


def _array_action(broker: Broker, id: str) -> Action | None:
    """The action that was judged when the array was submitted; None if it was not admitted."""
    with broker.store.reading() as reader:
        decisions = reader.decisions(job_id=id, limit=1)
    inputs = inputs_of(decisions[0]) if decisions and decisions[0].answer is Answer.ALLOW else None
    return None if inputs is None else inputs.action


_GRES = re.compile(r"(?:gres[:/])?gpu(?::(?P<type>[A-Za-z][A-Za-z0-9._-]*))?(?:[:=](?P<count>[0-9]+))?")
_INVALID_NAME_CHARS = re.compile(r"[^A-Za-z0-9]+")  # job names here allow fewer characters than Slurm's
_MAX_DURATION = timedelta(days=366)


class SlurmRequest(BaseModel):
    """A submission, as the plugin sees it. ``user``: of the submitter; ``team``: the Slurm account, which names the
    team; ``gres``: the request per node, ``gpu:h100:2``; ``minutes``: the time limit; ``array``: the
    tasks of an array, ``0-99%4``; ``ticket``: of a launch by the broker itself, whose key is ``name``."""

    model_config = ConfigDict(extra="forbid")

    user: str = Field(min_length=1, max_length=64)
    name: str = Field(default="", max_length=1024)
    team: str | None = Field(default=None, max_length=100)
    partition: str = Field(default="", max_length=1024)
    nodes: int = Field(default=1, ge=1, le=100_000)
    gres: str = Field(max_length=1024)
    minutes: int | None = Field(default=None, ge=1, le=5_000_000)
    array: str | None = Field(default=None, min_length=1, max_length=4096)
    ticket: str | None = Field(default=None, max_length=64)


def admit_submission(broker: Broker, request: SlurmRequest, *, by: Actor) -> str:
    """Admit a submission and hold its money; returns the launch's id. For an array, money is held when its tasks begin.
    For a launch of the broker itself, returns its key. Each submission is a separate launch. Raises `InvalidInput`, and
    as `judge_launch` and `attempt_of_ticket`."""
    if request.ticket is not None and request.array is None:
        _check_ticket(attempt_of_ticket(broker, request.name, request.ticket), request)
        return request.name
    return _judge_submission(broker, request, by).id


def _judge_submission(broker: Broker, request: SlurmRequest, by: Actor) -> AdmittedLaunch:
    kind, count = _gpus(request.gres)
    if request.minutes is None or timedelta(minutes=request.minutes) > _MAX_DURATION:
        raise InvalidInput("the job has no time limit, so its cost is unknown", hint="sbatch --time 4:00:00")
    user, team = resolve_submitter(broker, request.user, request.team or None)
    partitions = frozenset(name for name in request.partition.split(",") if name)

    def serves(offer: Offer) -> bool:
        return offer.engine == "slurm" and (not partitions or (offer.zone or "").rpartition(":")[2] in partitions)

    job: dict[str, Any] = {
        "name": _INVALID_NAME_CHARS.sub("-", request.name)[:60].strip("-") or "slurm-job",
        "team": team,
        "run": "true",
        "num_nodes": request.nodes,
        "max_duration": f"{request.minutes}m",
        "constraints": {"providers": ["slurm"]},
        "resources": {"accelerators": dict.fromkeys(_accelerator_names(broker, kind, serves), count)},
    }
    array = parse_array(request.array) if request.array is not None else None
    if array is not None and timedelta(minutes=request.minutes) * array.turns > _MAX_DURATION:
        raise InvalidInput(
            "its tasks take more than a year in sequence", hint="run more at once, or shorten the time limit"
        )
    slurm_job = parse_job(yaml.safe_dump(job), file="Slurm job", now=broker.clock.now())
    launch = OutsideLaunch(OutsideTool.SLURM, secrets.token_hex(16), user, slurm_job, serves, array)
    return judge_launch(broker, launch, holds=array is None, by=by)


def _gpus(gres: str) -> tuple[str | None, int]:
    """The type (None: any) and the number of GPUs per node."""
    matches = [match for part in gres.split(",") if (match := _GRES.fullmatch(part.strip()))]
    if len(matches) != 1:
        raise InvalidInput(f"expected GPUs of one type, as gpu:h100:2; got {gres[:100]!r}", where="gres")
    return matches[0]["type"], int(matches[0]["count"] or 1)


def _accelerator_names(broker: Broker, kind: str | None, serves: Any) -> list[str]:
    """The accelerators that satisfy the request, by the broker's names."""
    if kind is not None:
        try:
            return [canonical(kind)]
        except UnknownName as error:
            raise InvalidInput(str(error), where="gres") from error
    with broker.store.reading() as reader:
        names = sorted(
            {offer.accelerator for offer in reader.offers(OfferQuery()) if offer.accelerator and serves(offer)}
        )
    if not names:
        raise NotAllowed("the broker knows of no GPUs in this cluster", hint="`gpubroker prices poll --provider slurm`")
    return names


def _check_ticket(attempt: AttemptView, request: SlurmRequest) -> None:
    """Raises `NotAllowed` unless the submission is what the broker launches for the attempt."""
    placement, count = attempt.placement, _gpus(request.gres)[1] if request.gres else 0
    fits = request.nodes <= placement.nodes and count <= placement.offer.count
    if placement.offer.engine != "slurm" or not fits:
        raise NotAllowed(f"the ticket of {attempt.key} is for another launch", hint="`gpubroker submit`")
