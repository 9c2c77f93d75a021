"""SkyPilot's admin policy: the queries of its server before a launch, and the answers.

Only the launch of a cluster costs money here. Queries that prepare one (validation, the optimizer, a dry run, those of
a client) are answered without a hold. Tasks that SkyPilot's controllers launch later are refused, because nobody can
judge where they will run. The answer pins the task to the offer that was judged.
"""

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from broker.app.outside.launches import (
    PREFIX,
    AdmittedLaunch,
    OutsideLaunch,
    OutsideTool,
    judge_launch,
    resolve_submitter,
)
from broker.app.runs_root import attempt_keys
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput, NotAllowed, UnreadableJob
from broker.core.events.views import AttemptView, JobView
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.market.capacity import TAG
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.units import parse_duration
from broker.engines.runfolder.attempt_keys import TICKET_LABEL, launch_ticket
from broker.engines.skypilot.task import BY_SIZE, CLOUDS, accelerators, cluster_name, infra, machine_type

TEAM_LABEL, PROJECT_LABEL, MAX_DURATION_LABEL, LAUNCH_LABEL = (
    f"gpubroker-{name}" for name in ("team", "project", "max-duration", "launch")
)
"""Labels of a task's resources: the team that pays, the project, the maximum duration; and the launch's id, which the
answer sets."""

_COSTING_REQUEST = "launch"
_FREE_REQUESTS = frozenset(
    {"validate", "optimize", "exec"}
)  # `exec` runs on a cluster that was judged when it was launched
_RESOURCES = frozenset(
    {
        "accelerators", "accelerator_args", "infra", "cloud", "region", "zone", "instance_type", "cpus", "memory",
        "use_spot", "disk_size", "disk_tier", "network_tier", "image_id", "ports", "any_of", "ordered",
    }
)  # fmt: skip
_FORMS = frozenset({"any_of", "ordered"})


class RequestOptions(BaseModel):
    """The user's options next to the task."""

    model_config = ConfigDict(extra="ignore")

    cluster_name: str | None = None
    dryrun: bool = False


class SkyPilotRequest(BaseModel):
    """The request as SkyPilot encodes it. ``task``, ``skypilot_config``, ``user``: YAML."""

    model_config = ConfigDict(extra="ignore")

    task: str
    skypilot_config: str
    request_name: str
    request_options: RequestOptions | None = None
    at_client_side: bool = False
    user: str = ""


@dataclass(frozen=True, slots=True)
class _Task:
    """The parts of a task that are judged. ``labels``: of its resources; the same in all their alternatives."""

    config: dict[str, Any]
    resources: dict[str, Any]
    labels: Mapping[str, str]
    nodes: int


def answer_request(broker: Broker, body: str, *, by: Actor) -> str:
    """The answer, as SkyPilot decodes it: the task and its configuration, changed if necessary.

    Raises `InvalidInput` for a body that SkyPilot does not send and for a cluster without a name, `NotAllowed` for a
    launch by SkyPilot's controllers, and as `resolve_submitter`, `attempt_of_ticket` and `judge_launch`.
    """
    request = _parse_request(body)
    if request.request_name in _FREE_REQUESTS or request.at_client_side:
        return _encode_answer(request, request.task)
    if request.request_name != _COSTING_REQUEST:
        raise NotAllowed(
            f"`{request.request_name}` lets SkyPilot's controller decide later what it launches; no policy can check "
            "it",
            hint="`gpubroker submit` takes the same task file",
        )
    task = _task(request.task)
    if TICKET_LABEL in task.labels:
        attempt = attempt_of_ticket(broker, task.labels.get(TAG, ""), task.labels[TICKET_LABEL])
        _check_ticket_task(attempt, request, task)
        return _encode_answer(request, request.task)
    options = request.request_options or RequestOptions()
    if options.cluster_name is None:
        raise InvalidInput("the cluster has no name", hint="sky launch --cluster NAME")
    user, team = resolve_submitter(broker, _user(request.user), task.labels.get(TEAM_LABEL))
    shape = json.dumps([task.resources, task.nodes], sort_keys=True, default=str)
    launch = OutsideLaunch(
        OutsideTool.SKYPILOT,
        f"{options.cluster_name}\0{shape}",
        user,
        _job(broker, options.cluster_name, team, task),
        _is_rentable,
    )
    admitted = judge_launch(broker, launch, holds=not options.dryrun, by=by)
    return _encode_answer(request, _pin_task(task, admitted))


def _is_rentable(offer: Offer) -> bool:
    """Whether a task that is pinned to the offer gets it at its price: reservations and flex start need settings of
    SkyPilot that only launches of the broker have; without them the machines are on demand."""
    has_plain_price = offer.capacity_type is not CapacityType.RESERVED and machine_type(offer) == offer.instance_type
    return offer.engine == "skypilot" and has_plain_price


def _parse_request(body: str) -> SkyPilotRequest:
    try:
        inner = json.loads(body)
        return SkyPilotRequest.model_validate_json(inner if isinstance(inner, str) else body)
    except (ValueError, ValidationError) as error:
        raise InvalidInput("expected a request of SkyPilot's admin policy", where="body") from error


def _encode_answer(request: SkyPilotRequest, task: str) -> str:
    return json.dumps(json.dumps({"task": task, "skypilot_config": request.skypilot_config}))


def _parse_mapping(text: str, where: str) -> dict[str, Any]:
    try:
        mapping = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput("expected YAML", where=where) from error
    if not isinstance(mapping, dict):
        raise InvalidInput("expected keys and values", where=where)
    return mapping


def _user(text: str) -> str:
    name = _parse_mapping(text, "user").get("name") if text else None
    if not isinstance(name, str) or not name:
        raise NotAllowed("SkyPilot does not say who launches", hint="its API server must authenticate its users")
    return name


def _task(text: str) -> _Task:
    config = _parse_mapping(text, "task")
    resources = config.get("resources") or {}
    nodes = config.get("num_nodes") or 1
    if not isinstance(resources, dict) or not isinstance(nodes, int):
        raise InvalidInput("expected `resources` with keys, and a number in `num_nodes`", where="task")
    forms = [
        alternative for form in _FORMS for alternative in resources.get(form) or () if isinstance(alternative, dict)
    ]
    labels: dict[str, str] = {}
    for alternative in (resources, *forms):
        labels |= {str(name): str(value) for name, value in (alternative.get("labels") or {}).items()}
    return _Task(config, _judged_resources(resources), labels, nodes)


def _judged_resources(resources: Mapping[str, Any]) -> dict[str, Any]:
    judged = {name: value for name, value in resources.items() if name in _RESOURCES and value is not None}
    for form in _FORMS & judged.keys():
        judged[form] = [_judged_resources(alternative) for alternative in judged[form] if isinstance(alternative, dict)]
    return judged


def _job(broker: Broker, name: str, team: str, task: _Task) -> Job:
    """The task's request for resources, without its commands."""
    document = {"name": name, "team": team, "run": "true", "num_nodes": task.nodes, "resources": task.resources}
    if PROJECT_LABEL in task.labels:
        document["project"] = task.labels[PROJECT_LABEL]
    if MAX_DURATION_LABEL in task.labels:
        try:
            max_duration = parse_duration(task.labels[MAX_DURATION_LABEL])
        except ValueError as error:
            raise InvalidInput(str(error), where=MAX_DURATION_LABEL) from error
        document["max_duration"] = f"{max(max_duration // timedelta(minutes=1), 1)}m"
    return parse_job(yaml.safe_dump(document), file="task", now=broker.clock.now())


def _pin_task(task: _Task, admitted: AdmittedLaunch) -> str:
    """The task pinned to the judged offer and labeled with the launch's id (YAML)."""
    offer, resources = admitted.placement.offer, task.config.get("resources") or {}
    pinned_keys = _FORMS | {"cloud", "region", "zone", "infra", "accelerators", "instance_type", "use_spot"}
    kept_resources = {name: value for name, value in resources.items() if name not in pinned_keys}
    if not kept_resources.get("labels"):
        kept_resources["labels"] = dict(task.labels)
    kept_resources["labels"] = {**kept_resources["labels"], LAUNCH_LABEL: admitted.id.removeprefix(PREFIX)}
    return yaml.safe_dump(
        {**task.config, "resources": {**kept_resources, **_placement_resources(offer)}}, sort_keys=False
    )


def _placement_resources(offer: Offer) -> dict[str, Any]:
    cloud = CLOUDS.get(offer.provider)
    if cloud is None:
        raise NotAllowed(f"SkyPilot knows no cloud {offer.provider!r}")
    resources: dict[str, Any] = {
        "infra": infra(offer, cloud, lambda _: {offer.zone or "": offer.zone or ""}),
        "use_spot": offer.capacity_type is CapacityType.SPOT,
    }
    if gpu_request := accelerators(offer, cloud):
        resources["accelerators"] = gpu_request
    if cloud not in BY_SIZE:
        resources["instance_type"] = offer.instance_type
    return resources


def _check_ticket_task(attempt: AttemptView, request: SkyPilotRequest, task: _Task) -> None:
    """Raises `NotAllowed` unless the task is what the broker launches for the attempt."""
    offer, options = attempt.placement.offer, request.request_options or RequestOptions()
    is_spot = offer.capacity_type is CapacityType.SPOT
    is_same_machine = CLOUDS.get(offer.provider) in BY_SIZE or task.resources.get("instance_type") == machine_type(
        offer
    )
    is_same_cloud = str(task.resources.get("infra", "")).split("/")[0] == CLOUDS.get(offer.provider, offer.provider)
    gpus = task.resources.get("accelerators") or {}
    fits_machine = not isinstance(gpus, dict) or all(float(count) <= offer.count for count in gpus.values())
    if (
        options.cluster_name != cluster_name(attempt.key)
        or task.nodes != attempt.placement.nodes
        or bool(task.resources.get("use_spot")) is not is_spot
        or not (is_same_machine and is_same_cloud and fits_machine)
        or _FORMS & task.resources.keys()
    ):
        raise NotAllowed(f"the ticket of {attempt.key} is for another launch", hint="`gpubroker submit`")


def attempt_of_ticket(broker: Broker, key: str, ticket: str) -> AttemptView:
    """The attempt whose launch carries the ticket. Raises `NotAllowed` for a ticket that was not signed here, for an
    attempt that is over, and for one whose machine has already reported, because a ticket starts only one machine."""
    job_id, _, number = key.rpartition("-")
    with broker.store.reading() as reader:
        try:
            view = reader.job(job_id)
        except UnreadableJob:
            view = None
    attempt = None if view is None or not number.isdecimal() else _attempt(view, int(number))
    expected_ticket = launch_ticket(attempt_keys(broker).of(key), key)
    if attempt is None or attempt.key != key or not hmac.compare_digest(expected_ticket.encode(), ticket.encode()):
        raise NotAllowed("the ticket of the launch is not valid", hint="launch it with `gpubroker submit`")
    if attempt.state.final or attempt.claimed_at is not None or attempt.stop_requested is not None:
        raise NotAllowed(f"the ticket of {key} is used up", hint="launch it with `gpubroker submit`")
    return attempt


def _attempt(view: JobView, number: int) -> AttemptView | None:
    return next((attempt for attempt in view.attempts if attempt.number == number), None)
