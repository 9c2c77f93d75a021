"""The products that Google Cloud sells: reservations, future reservations in calendar mode and commitments, with their
operations.

`GcpCloud` checks every request and answer against Google's discovery documents. A repeated request id starts nothing
again; a second resource with the same name is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tests.fakes.server import HttpAnswer

if TYPE_CHECKING:
    from tests.fakes.gcp_cloud import GcpCloud

Json = dict[str, Any]
_KINDS = {
    "compute.reservations": ("reservation", "zone"),
    "compute.futureReservations": ("futureReservation", "zone"),
    "compute.regionCommitments": ("commitment", "region"),
}


@dataclass
class GcpShop:
    """``now``: Google's clock.

    ``free``: zone, start and end of the calendar's capacity, by machine type. ``fails``: the error with which the
    operation of a new order ends. ``states``: of new orders, by kind.
    """

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    free: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    fails: str = ""
    operations: list[Json] = field(default_factory=list)
    bodies: dict[str, Any] = field(default_factory=dict)
    states: dict[str, str] = field(
        default_factory=lambda: {
            "compute.reservations": "CREATING",
            "compute.futureReservations": "PENDING_APPROVAL",
            "compute.regionCommitments": "CREATING",
        }
    )

    def serve(self, cloud: GcpCloud, called: str, path: Json, query: Json, body: Any) -> HttpAnswer | None:
        """The answer to a call about orders; None for others."""
        resource, _, verb = called.rpartition(".")
        if resource in _KINDS:
            rows = _rows(cloud, resource, path[_KINDS[resource][1]])
            match verb:
                case "insert":
                    return self._insert(resource, rows, path, query, body)
                case "get":
                    row = _named(rows, path[_KINDS[resource][0]])
                    return HttpAnswer(200, row) if row else _error(404, "notFound", "was not found")
                case "delete" | "cancel":
                    return self._undo(resource, verb, rows, path, query)
        match called:
            case "compute.zoneOperations.list" | "compute.regionOperations.list":
                found = [one for one in self.operations if _matches(one, query["filter"])]
                return HttpAnswer(200, {"kind": "compute#operationList", "items": found})
            case "compute.machineTypes.get":
                row = _named(cloud.machine_types.get(path["zone"], []), path["machineType"])
                return HttpAnswer(200, row) if row else _error(404, "notFound", "was not found")
            case "compute.advice.calendarMode":
                return HttpAnswer(200, self._calendar(path["region"], body))
        return None

    def _insert(self, resource: str, rows: list[Json], path: Json, query: Json, body: Json) -> HttpAnswer:
        id = query["requestId"]
        if (before := self.bodies.get(id)) is not None:
            if before != body:
                return _error(400, "invalid", "the request id was used with another request")
            return HttpAnswer(200, next(one for one in self.operations if one["clientOperationId"] == id))
        if _named(rows, body["name"]):
            return _error(409, "alreadyExists", f"The resource {body['name']!r} already exists")
        self.bodies[id] = body
        operation = self._operation(id, "insert", path, body["name"])
        if self.fails:
            running = {**operation, "status": "RUNNING"}
            operation["error"] = {"errors": [{"code": self.fails, "message": "there is none"}]}
            return HttpAnswer(200, running)
        row: Json = {**body, "creationTimestamp": self.now().isoformat()}
        if resource == "compute.futureReservations":
            row["status"] = {"procurementStatus": self.states[resource]}
        else:
            row["status"] = self.states[resource]
        rows.append(row)
        return HttpAnswer(200, operation)

    def _undo(self, resource: str, verb: str, rows: list[Json], path: Json, query: Json) -> HttpAnswer:
        row = _named(rows, path[_KINDS[resource][0]])
        if row is None:
            return _error(404, "notFound", "was not found")
        if verb == "cancel":
            if row["status"]["procurementStatus"] not in ("PENDING_APPROVAL", "APPROVED"):
                return _error(400, "invalid", "it is locked")
            row["status"]["procurementStatus"] = "CANCELLED"
        else:
            rows.remove(row)
        return HttpAnswer(200, self._operation(query["requestId"], verb, path, row["name"]))

    def delete_by_hand(self, rows: list[Json], name: str, place: Json, at: datetime) -> None:
        """Delete a resource, as a person would in Google's console."""
        rows.remove(next(row for row in rows if row["name"] == name))
        self._operation("", "delete", place, name).update(user="mo@example.com", endTime=at.isoformat())

    def _operation(self, id: str, verb: str, path: Json, name: str) -> Json:
        place: Json = {name: path[name] for name in ("zone", "region") if name in path}
        operation: Json = {
            "kind": "compute#operation",
            "id": str(len(self.operations) + 1),
            "name": f"operation-{len(self.operations)}",
            "clientOperationId": id,
            "operationType": verb,
            "targetLink": f"https://compute.googleapis.com/compute/v1/projects/team-ml/{name}",
            "endTime": self.now().isoformat(),
            "status": "DONE",
            **place,
        }
        self.operations.append(operation)
        return operation

    def _calendar(self, region: str, body: Json) -> Json:
        found = []
        for name, spec in body["futureResourcesSpecs"].items():
            asked, times = spec["targetResources"]["specificSkuResources"], spec["timeRangeSpec"]
            zone, starts, ends = self.free.get(asked["machineType"], ("", "", ""))
            begins = datetime.fromisoformat(starts) if starts else None
            fits = begins is not None and (
                datetime.fromisoformat(times["startTimeNotEarlierThan"])
                <= begins
                <= datetime.fromisoformat(times["startTimeNotLaterThan"])
            )
            if fits and zone.startswith(region):
                told = {"location": f"zones/{zone}", "startTime": starts, "endTime": ends}
                told["recommendationType"] = "FUTURE_RESERVATION"
                found.append({"recommendationsPerSpec": {name: told}})
        return {"recommendations": found}


def _matches(operation: Json, wanted: str) -> bool:
    """Whether the operation matches a filter of one of two forms: a field is equal to a value, or matches a regular
    expression completely.
    """
    found = re.fullmatch(r'(\w+) (=|eq) "(.*)"', wanted)
    assert found, f"no filter of Compute Engine: {wanted}"
    name, how, text = found.groups()
    value = operation.get(name, "")
    return value == text if how == "=" else re.fullmatch(text, value) is not None


def _rows(cloud: GcpCloud, resource: str, place: str) -> list[Json]:
    by_place = {
        "compute.reservations": cloud.reservations,
        "compute.futureReservations": cloud.future_reservations,
        "compute.regionCommitments": cloud.commitments,
    }[resource]
    return by_place.setdefault(place, [])


def _named(rows: list[Json], name: str) -> Json | None:
    return next((row for row in rows if row["name"] == name), None)


def _error(status: int, reason: str, message: str) -> HttpAnswer:
    error = {"code": status, "message": message, "errors": [{"message": message, "reason": reason, "domain": "global"}]}
    return HttpAnswer(status, {"error": error})
