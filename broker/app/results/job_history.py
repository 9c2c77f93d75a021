"""A job and everything that happened to it, as a result."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, InstanceOf, JsonValue, PlainSerializer, ValidationInfo, WithJsonSchema

from broker.app.results import reasons
from broker.app.results.jobs import FailedTask, JobDetails
from broker.app.results.values import Figure, Moment, moment_text
from broker.core.events import events as ev


def event_document(event: ev.Event) -> dict[str, JsonValue]:
    """``seq``, ``at``, ``attempt``, ``kind``, the fields of that kind, and for a reason also ``because``, the reason in
    words."""
    told: dict[str, JsonValue] = {"seq": event.seq, "at": moment_text(event.at), "attempt": event.attempt}
    told |= event.body.model_dump(mode="json")
    match event.body:
        case ev.JobEnded(reason=reason):
            return told | {"because": reasons.ended(reason)}
        case ev.NothingFeasible(reason=reason) | ev.Paused(reason=reason) | ev.LaunchDelayed(reason=reason):
            return told | {"because": reasons.waits(reason)}
        case _:
            return told


def _read(value: Any, info: ValidationInfo) -> Any:
    """The event that `event_document` wrote."""
    if not isinstance(value, dict):
        return value
    body = dict(value)
    try:
        seq, at, attempt = body.pop("seq"), datetime.fromisoformat(body.pop("at")), body.pop("attempt")
        if "reason" in body:
            body.pop("because", None)
        return ev.Event(info.data["id"], seq, at, attempt, ev.body_from(body))
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an event of a job: {error}") from error


HistoryEvent = Annotated[
    InstanceOf[ev.Event],
    BeforeValidator(_read),
    PlainSerializer(event_document, return_type=dict[str, JsonValue]),
    WithJsonSchema({"type": "object"}, mode="serialization"),
]
"""An event of a job, as JSON what `event_document` makes of it."""


class JobHistory(JobDetails):
    """A job and everything that happened to it, in order. ``as_of``: when it was looked at; ``time_scale``: how many
    times as fast as real time the times pass, 1 unless they are simulated. ``reconciled``: whether a reconciler is
    running. ``troubles``: why what is shown may be out of date, in words. ``failed_tasks``: of an array, the first of
    them. ``kept_until``: of an ended job, when the active policy lets its ``checkpoints`` (all but the newest),
    ``results`` and ``logs`` go; null: it does not."""

    as_of: Moment
    time_scale: Figure
    reconciled: bool
    troubles: list[str]
    events: list[HistoryEvent]
    failed_tasks: list[FailedTask]
    kept_until: dict[str, Moment | None]
