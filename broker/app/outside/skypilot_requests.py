"""SkyPilot's admin policy: the queries of its server before a launch, and the answers.

Only the launch of a cluster costs money here. Queries that prepare one (validation, the optimizer, a dry run, those of
a client) are answered without a hold. Tasks that SkyPilot's controllers launch later are refused, because nobody can
judge where they will run. The answer pins the task to the offer that was judged.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from broker.app.jobs.runs_root import attempt_keys
from broker.app.outside.launches import PREFIX, Admitted, OutsideLaunch, OutsideTool, judge, submitter
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput, NotAllowed, UnreadableJob
from broker.core.events.views import AttemptView, JobView
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.market.machines import TAG
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.units import parse_duration
from broker.engines.skypilot.flex_start import machine_type
from broker.engines.skypilot.places import BY_SIZE, CLOUDS, accelerators, infra
from broker.engines.skypilot.task import cluster_name
from broker.runfolder.signing import TICKET_LABEL, launch_ticket

TEAM, PROJECT, LONGEST, LAUNCH = (f"gpubroker-{name}" for name in ("team", "project", "max-duration", "launch"))
"""Labels of a task's resources: the team that pays, the project, the maximum duration; and the launch's id, which the
answer sets."""

_COSTS = "launch"
_HARMLESS = frozenset({"validate", "optimize", "exec"})  # `exec` runs on a cluster that was judged when it was launched
_RESOURCES = frozenset(
    {
        "accelerators", "accelerator_args", "infra", "cloud", "region", "zone", "instance_type", "cpus", "memory",
        "use_spot", "disk_size", "disk_tier", "network_tier", "image_id", "ports", "any_of", "ordered",
    }
)  # fmt: skip
_FORMS = frozenset({"any_of", "ordered"})


class AskedOptions(BaseModel):
    """The user's options next to the task."""

    model_config = ConfigDict(extra="ignore")

    cluster_name: str | None = None
    dryrun: bool = False


class AskedRequest(BaseModel):
    """The request as SkyPilot encodes it. ``task``, ``skypilot_config``, ``user``: YAML."""

    model_config = ConfigDict(extra="ignore")

    task: str
    skypilot_config: str
    request_name: str
    request_options: AskedOptions | None = None
    at_client_side: bool = False
    user: str = ""


@dataclass(frozen=True, slots=True)
class _Task:
    """The parts of a task that are judged. ``labels``: of its resources; the same in all their alternatives."""

    config: dict[str, Any]
    resources: dict[str, Any]
    labels: Mapping[str, str]
    nodes: int


def answered(broker: Broker, body: str, *, by: Actor) -> str:
    """The answer, as SkyPilot decodes it: the task and its configuration, changed if necessary.

    Raises `InvalidInput` for a body that SkyPilot does not send and for a cluster without a name, `NotAllowed` for a
    launch by SkyPilot's controllers, and as `submitter`, `ticket_holder` and `judge`.
    """
    asked = _read(body)
    if asked.request_name in _HARMLESS or asked.at_client_side:
        return _answer(asked, asked.task)
    if asked.request_name != _COSTS:
        raise NotAllowed(
            f"`{asked.request_name}` lets SkyPilot's controller decide later what it launches; no policy can check it",
            hint="`gpubroker submit` takes the same task file",
        )
    task = _task(asked.task)
    if TICKET_LABEL in task.labels:
        attempt = ticket_holder(broker, task.labels.get(TAG, ""), task.labels[TICKET_LABEL])
        _as_placed(attempt, asked, task)
        return _answer(asked, asked.task)
    options = asked.request_options or AskedOptions()
    if options.cluster_name is None:
        raise InvalidInput("the cluster has no name", hint="sky launch --cluster NAME")
    user, team = submitter(broker, _user(asked.user), task.labels.get(TEAM))
    shape = json.dumps([task.resources, task.nodes], sort_keys=True, default=str)
    launch = OutsideLaunch(
        OutsideTool.SKYPILOT,
        f"{options.cluster_name}\0{shape}",
        user,
        _job(broker, options.cluster_name, team, task),
        _rents,
    )
    found = judge(broker, launch, holds=not options.dryrun, by=by)
    return _answer(asked, _pinned(task, found))


def _rents(offer: Offer) -> bool:
    """Whether a task that is pinned to the offer gets it at its price: reservations and flex start need settings of
    SkyPilot that only launches of the broker have; without them the machines are on demand."""
    plain = offer.capacity_type is not CapacityType.RESERVED and machine_type(offer) == offer.instance_type
    return offer.engine == "skypilot" and plain


def _read(body: str) -> AskedRequest:
    try:
        inner = json.loads(body)
        return AskedRequest.model_validate_json(inner if isinstance(inner, str) else body)
    except (ValueError, ValidationError) as error:
        raise InvalidInput("expected a request of SkyPilot's admin policy", where="body") from error


def _answer(asked: AskedRequest, task: str) -> str:
    return json.dumps(json.dumps({"task": task, "skypilot_config": asked.skypilot_config}))


def _mapping(text: str, what: str) -> dict[str, Any]:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput("expected YAML", where=what) from error
    if not isinstance(found, dict):
        raise InvalidInput("expected keys and values", where=what)
    return found


def _user(text: str) -> str:
    name = _mapping(text, "user").get("name") if text else None
    if not isinstance(name, str) or not name:
        raise NotAllowed("SkyPilot does not say who launches", hint="its API server must authenticate its users")
    return name


def _task(text: str) -> _Task:
    config = _mapping(text, "task")
    resources = config.get("resources") or {}
    nodes = config.get("num_nodes") or 1
    if not isinstance(resources, dict) or not isinstance(nodes, int):
        raise InvalidInput("expected `resources` with keys, and a number in `num_nodes`", where="task")
    forms = [one for form in _FORMS for one in resources.get(form) or () if isinstance(one, dict)]
    labels: dict[str, str] = {}
    for one in (resources, *forms):
        labels |= {str(name): str(value) for name, value in (one.get("labels") or {}).items()}
    return _Task(config, _judged_part(resources), labels, nodes)


def _judged_part(resources: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in resources.items() if name in _RESOURCES and value is not None}
    for form in _FORMS & kept.keys():
        kept[form] = [_judged_part(one) for one in kept[form] if isinstance(one, dict)]
    return kept


def _job(broker: Broker, name: str, team: str, task: _Task) -> Job:
    """The task's request for resources, without its commands."""
    asked = {"name": name, "team": team, "run": "true", "num_nodes": task.nodes, "resources": task.resources}
    if PROJECT in task.labels:
        asked["project"] = task.labels[PROJECT]
    if LONGEST in task.labels:
        try:
            longest = parse_duration(task.labels[LONGEST])
        except ValueError as error:
            raise InvalidInput(str(error), where=LONGEST) from error
        asked["max_duration"] = f"{max(longest // timedelta(minutes=1), 1)}m"
    return parse_job(yaml.safe_dump(asked), file="task", now=broker.clock.now())


def _pinned(task: _Task, found: Admitted) -> str:
    """The task pinned to the judged offer and labeled with the launch's id (YAML)."""
    offer, resources = found.placement.offer, task.config.get("resources") or {}
    pinned = _FORMS | {"cloud", "region", "zone", "infra", "accelerators", "instance_type", "use_spot"}
    kept = {name: value for name, value in resources.items() if name not in pinned}
    if not kept.get("labels"):
        kept["labels"] = dict(task.labels)
    kept["labels"] = {**kept["labels"], LAUNCH: found.id.removeprefix(PREFIX)}
    return yaml.safe_dump({**task.config, "resources": {**kept, **_place(offer)}}, sort_keys=False)


def _place(offer: Offer) -> dict[str, Any]:
    cloud = CLOUDS.get(offer.provider)
    if cloud is None:
        raise NotAllowed(f"SkyPilot knows no cloud {offer.provider!r}")
    place: dict[str, Any] = {
        "infra": infra(offer, cloud, lambda _: {offer.zone or "": offer.zone or ""}),
        "use_spot": offer.capacity_type is CapacityType.SPOT,
    }
    if attached := accelerators(offer, cloud):
        place["accelerators"] = attached
    if cloud not in BY_SIZE:
        place["instance_type"] = offer.instance_type
    return place


def _as_placed(attempt: AttemptView, asked: AskedRequest, task: _Task) -> None:
    """Raises `NotAllowed` unless the task is what the broker launches for the attempt."""
    offer, options = attempt.placement.offer, asked.request_options or AskedOptions()
    spot = offer.capacity_type is CapacityType.SPOT
    same_machine = CLOUDS.get(offer.provider) in BY_SIZE or task.resources.get("instance_type") == machine_type(offer)
    same_place = str(task.resources.get("infra", "")).split("/")[0] == CLOUDS.get(offer.provider, offer.provider)
    gpus = task.resources.get("accelerators") or {}
    no_more = not isinstance(gpus, dict) or all(float(count) <= offer.count for count in gpus.values())
    if (
        options.cluster_name != cluster_name(attempt.key)
        or task.nodes != attempt.placement.nodes
        or bool(task.resources.get("use_spot")) is not spot
        or not (same_machine and same_place and no_more)
        or _FORMS & task.resources.keys()
    ):
        raise NotAllowed(f"the ticket of {attempt.key} is for another launch", hint="`gpubroker submit`")


def ticket_holder(broker: Broker, key: str, ticket: str) -> AttemptView:
    """The attempt whose launch carries the ticket. Raises `NotAllowed` for a ticket that was not signed here, for an
    attempt that is over, and for one whose machine has already reported, because a ticket starts only one machine."""
    job_id, _, number = key.rpartition("-")
    with broker.store.reading() as look:
        try:
            view = look.job(job_id)
        except UnreadableJob:
            view = None
    attempt = None if view is None or not number.isdecimal() else _attempt(view, int(number))
    expected = launch_ticket(attempt_keys(broker).of(key), key)
    if attempt is None or attempt.key != key or not hmac.compare_digest(expected.encode(), ticket.encode()):
        raise NotAllowed("the ticket of the launch is not valid", hint="launch it with `gpubroker submit`")
    if attempt.state.final or attempt.claimed_at is not None or attempt.stop_requested is not None:
        raise NotAllowed(f"the ticket of {key} is used up", hint="launch it with `gpubroker submit`")
    return attempt


def _attempt(view: JobView, number: int) -> AttemptView | None:
    return next((one for one in view.attempts if one.number == number), None)
