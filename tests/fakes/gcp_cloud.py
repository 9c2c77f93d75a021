"""Compute Engine and Cloud Billing on loopback: every request and answer is checked against the discovery documents
that Google ships with google-api-python-client, so an invented field or method is an error.

Lists have pages of ``page`` rows; ``stuck`` repeats the second page's token, ``gap`` adds an empty page after the
first.
"""

import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

from tests.fakes.gcp_shop import GcpShop
from tests.fakes.server import HttpAnswer, HttpRequest

Json = dict[str, Any]
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float, Decimal),
    "object": dict,
    "array": list,
}


class DiscoveryDocument:
    """One discovery document: the methods, and the schemas of their bodies."""

    def __init__(self, document: str) -> None:
        path = files("googleapiclient") / "discovery_cache" / "documents" / document
        self._document = json.loads(path.read_text("utf-8"))
        self._methods: dict[str, list[tuple[re.Pattern[str], Json]]] = {}
        self._collect(self._document)

    def _collect(self, node: Json) -> None:
        for method in node.get("methods", {}).values():
            path = f"/{self._document['servicePath']}{method.get('flatPath') or method['path']}".replace("//", "/")
            pattern = re.compile(re.sub(r"\{\+?(\w+)\}", r"(?P<\1>[^/]+)", path))
            self._methods.setdefault(method["httpMethod"], []).append((pattern, method))
        for resource in node.get("resources", {}).values():
            self._collect(resource)

    def route(self, verb: str, path: str) -> tuple[Json, dict[str, str]] | None:
        for pattern, method in self._methods.get(verb, ()):
            if found := pattern.fullmatch(path):
                return method, found.groupdict()
        return None

    def check_query(self, method: Json, query: dict[str, str]) -> None:
        known = {*method.get("parameters", {}), *self._document["parameters"], "$alt"}
        if unknown := set(query) - known:
            raise ValueError(f"no such parameter: {unknown}")
        for key in query:
            parameter = method.get("parameters", {}).get(key, {})
            if parameter.get("type") == "integer":
                int(query[key])

    def check(self, schema: Json, value: Any, at: str = "$") -> None:
        if "$ref" in schema:
            schema = self._document["schemas"][schema["$ref"]]
        kind = schema.get("type")
        if kind in _TYPES and (not isinstance(value, _TYPES[kind]) or (kind != "boolean" and isinstance(value, bool))):
            raise ValueError(f"{at}: {value!r} is not a {kind}")
        if kind == "string" and schema.get("format") in ("int64", "uint64") and not re.fullmatch(r"-?\d+", value):
            raise ValueError(f"{at}: an int64 is written as a decimal string, not as {value!r}")
        if kind == "string" and "enum" in schema and value not in schema["enum"]:
            raise ValueError(f"{at}: {value!r} is none of {schema['enum']}")
        if kind == "object":
            known = schema.get("properties", {})
            for key, inner in value.items():
                if key not in known and "additionalProperties" not in schema:
                    raise ValueError(f"{at}: no field {key!r}")
                self.check(known.get(key) or schema["additionalProperties"], inner, f"{at}.{key}")
        if kind == "array":
            for index, inner in enumerate(value):
                self.check(schema["items"], inner, f"{at}[{index}]")


@cache
def _specs() -> tuple[DiscoveryDocument, DiscoveryDocument]:
    return DiscoveryDocument("compute.v1.json"), DiscoveryDocument("cloudbilling.v1.json")


class GcpCloud:
    """A project's view of Google Cloud; tests add rows to its lists.

    ``skus``; ``machine_types``, ``accelerator_types``, ``reservations``, ``future_reservations``, ``instances`` and
    ``operations`` by zone; ``commitments`` by region; ``regions``: the rows of `compute.regions.list`; ``project``: the
    result of `compute.projects.get`. ``unreachable``: zones that Google reports as unreachable. ``lenient``: answers
    are not checked, so that they may be invalid. ``before``: called with the method before each answer. ``refuse``:
    method id → an answer to return instead. ``log``: (method id, path parameters, query, body) of each request.
    """

    def __init__(self, *, page: int = 1000) -> None:
        self.page = page
        self.stuck = False
        self.gap = False
        self.lenient = False
        self.unreachable: list[str] = []
        self.before: Callable[[str], None] = lambda called: None
        self.skus: list[Json] = []
        self.machine_types: dict[str, list[Json]] = {}
        self.accelerator_types: dict[str, list[Json]] = {}
        self.reservations: dict[str, list[Json]] = {}
        self.future_reservations: dict[str, list[Json]] = {}
        self.commitments: dict[str, list[Json]] = {}
        self.instances: dict[str, list[Json]] = {}
        self.operations: dict[str, list[Json]] = {}
        self.regions: list[Json] = []
        self.project: Json = {"name": "team-ml", "quotas": []}
        self.advice: Callable[[str, Json], Json] | None = None
        self.history: Callable[[str, Json], Json] | None = None
        self.shop = GcpShop()
        self.refuse: dict[str, HttpAnswer] = {}
        self.log: list[tuple[str, dict[str, str], dict[str, str], Any]] = []

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        for spec in _specs():
            if routed := spec.route(request.method, request.path):
                return self._answer(spec, *routed, request)
        return refusal(404, "notFound", f"no method {request.method} {request.path}")

    def _answer(self, spec: DiscoveryDocument, method: Json, path: dict[str, str], request: HttpRequest) -> HttpAnswer:
        self.log.append((method["id"], path, request.query, request.body))
        try:
            spec.check_query(method, request.query)
            if "request" in method:
                spec.check(method["request"], request.body)
        except ValueError as error:
            return refusal(400, "invalid", str(error))
        if method["id"] in self.refuse:
            return self.refuse[method["id"]]
        answer = self._serve(method["id"], path, request)
        self.before(method["id"])
        if answer.status == 200 and not self.lenient:
            spec.check(method["response"], answer.body)
        return answer

    def _serve(self, called: str, path: dict[str, str], request: HttpRequest) -> HttpAnswer:
        query = request.query
        match called:
            case "cloudbilling.services.skus.list":
                rows, token = self._paged(self.skus if path["servicesId"] == "6F81-5844-456A" else [], query)
                return HttpAnswer(200, {"skus": rows, "nextPageToken": token})
            case "compute.regions.list":
                rows, token = self._paged(self.regions, query)
                return HttpAnswer(200, {"kind": "compute#regionList", "items": rows, **_token(token)})
            case "compute.projects.get":
                return HttpAnswer(200, self.project)
            case "compute.advice.capacity":
                return self._advised(self.advice, path, request.body)
            case "compute.advice.capacityHistory":
                return self._advised(self.history, path, request.body)
            case "compute.instances.delete":
                return self._delete(path)
        lists = {
            "compute.machineTypes.aggregatedList": (self.machine_types, "machineTypes", "zones"),
            "compute.acceleratorTypes.aggregatedList": (self.accelerator_types, "acceleratorTypes", "zones"),
            "compute.reservations.aggregatedList": (self.reservations, "reservations", "zones"),
            "compute.futureReservations.aggregatedList": (self.future_reservations, "futureReservations", "zones"),
            "compute.instances.aggregatedList": (self.instances, "instances", "zones"),
            "compute.globalOperations.aggregatedList": (self.operations, "operations", "zones"),
            "compute.regionCommitments.aggregatedList": (self.commitments, "commitments", "regions"),
        }
        if called in lists:
            return self._aggregated(*lists[called], query)
        if (sold := self.shop.serve(self, called, path, query, request.body)) is not None:
            return sold
        return refusal(404, "notFound", f"the fake has no {called}")

    def _aggregated(self, by_place: dict[str, list[Json]], key: str, places: str, query: dict[str, str]) -> HttpAnswer:
        everything = [
            (place, row) for place, rows in by_place.items() for row in rows if self.lenient or fits(row, query)
        ]
        rows, token = self._paged(everything, query)
        items: Json = {
            f"{places}/nowhere-north1-a": {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "no results"}}
        }
        for place, row in rows:
            items.setdefault(f"{places}/{place}", {key: []})[key].append(row)
        missed = {"unreachables": self.unreachable} if self.unreachable else {}
        return HttpAnswer(200, {"id": f"projects/team-ml/aggregated/{key}", "items": items, **missed, **_token(token)})

    def _paged(self, rows: list[Any], query: dict[str, str]) -> tuple[list[Any], str]:
        """A page of the rows, and the token of the next one."""
        size = min(self.page, int(query.get("pageSize") or query.get("maxResults") or self.page))
        pages = [rows[at : at + size] for at in range(0, len(rows), size)] or [[]]
        if self.gap:
            pages.insert(1, [])
        number = int(query.get("pageToken", "page-0").removeprefix("page-"))
        if self.stuck and len(pages) > 1:
            return pages[min(number, 1)], "page-1"
        return pages[number], f"page-{number + 1}" if number + 1 < len(pages) else ""

    def _advised(self, advise: Callable[[str, Json], Json] | None, path: dict[str, str], body: Json) -> HttpAnswer:
        if advise is None:
            return refusal(404, "notFound", "no advice here")
        try:
            return HttpAnswer(200, advise(path["region"], body))
        except LookupError as error:
            return refusal(400, "invalid", f"no advice on {error}")

    def _delete(self, path: dict[str, str]) -> HttpAnswer:
        held = self.instances.get(path["zone"], [])
        for row in held:
            if row["name"] == path["instance"]:
                held.remove(row)
                return HttpAnswer(200, {"kind": "compute#operation", "name": "operation-1", "status": "RUNNING"})
        return refusal(404, "notFound", f"The resource {path['instance']!r} was not found")


def refusal(status: int, reason: str, message: str, headers: dict[str, str] | None = None) -> HttpAnswer:
    """An error in the form of Google's REST services."""
    error = {"code": status, "message": message, "errors": [{"message": message, "reason": reason, "domain": "global"}]}
    return HttpAnswer(status, {"error": error}, headers or {})


def _token(token: str) -> Json:
    return {"nextPageToken": token} if token else {}


def fits(row: Json, query: dict[str, str]) -> bool:
    """Whether the filter matches the row.

    Supports the forms that are sent: ``name ne "regexp"``, ``labels.key:*``, ``labels.key = "value"`` and
    ``operationType = "type"``.
    """
    wanted = query.get("filter", "")
    if found := re.fullmatch(r'name ne "(.*)"', wanted):
        return not re.fullmatch(found[1], row["name"])
    if found := re.fullmatch(r"labels\.([a-z_-]+):\*", wanted):
        return found[1] in row.get("labels", {})
    if found := re.fullmatch(r'labels\.([a-z_-]+) = "(.*)"', wanted):
        return bool(row.get("labels", {}).get(found[1]) == found[2])
    if found := re.fullmatch(r'operationType = "(.*)"', wanted):
        return bool(row["operationType"] == found[1])
    if wanted:
        raise ValueError(f"a filter that the fake does not know: {wanted}")
    return True
