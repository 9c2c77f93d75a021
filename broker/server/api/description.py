"""What the OpenAPI document says of a route besides its parameters and its result: statuses, problems and examples."""

import threading
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI

from broker.server.api.examples import BODIES, PROBLEM
from broker.server.api.problems import MEDIA_TYPE, HttpProblem
from broker.server.api.routes import ApiRoute, judge_skypilot

_PROBLEMS = (401, 403, 404, 422, 429, 500, 501, 503)
_PROBLEMS_OF_BODIES = (400, 409, 413)
_PROBLEM = "#/components/responses/Problem"
_describing = threading.Lock()


def responses_of(route: ApiRoute) -> dict[int | str, dict[str, Any]]:
    """The responses of a route beside that with its document."""
    problems = _PROBLEMS if route.method in ("GET", "HEAD") else _PROBLEMS + _PROBLEMS_OF_BODIES
    responses: dict[int | str, dict[str, Any]] = {
        status: {"model": HttpProblem, "description": HTTPStatus(status).phrase} for status in problems
    }
    if route.method == "GET" and route.document is not None:
        responses[304] = {"description": "It is still as the `ETag` in `If-None-Match` says"}
    if route.method == "PUT" and route.document is not None:
        responses[201] = {"model": route.document, "description": "It is new"}
    if route.waits:
        responses[202] = {"model": route.document, "description": "It needs an approval first"}
    if route.media:
        responses[200] = {"content": {media: {"schema": _schema_of(media)} for media in route.media}}
    if route.endpoint is judge_skypilot:
        responses[400] = {"description": "A veto, in words", "content": {"text/plain": {"schema": _schema_of("text/")}}}
    return responses


def _schema_of(media: str) -> dict[str, str]:
    if media == "application/json":
        return {"type": "object"}
    if media == "text/event-stream":
        return {"description": "Messages, each with an `event` and its `data`."}  # a type would be that of each message
    return {"type": "string"} if media.startswith("text/") else {"type": "string", "format": "binary"}


def extra_of(route: ApiRoute) -> dict[str, Any]:
    """What FastAPI does not say by itself: the permission, and an example of the body."""
    extra: dict[str, Any] = {"x-permission": route.permission}
    if (example := BODIES.get(route.endpoint.__name__)) is not None:
        extra["requestBody"] = {"content": {"application/json": {"example": example}}}
    return extra


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document. Every problem refers to one response, which says of what media type it is."""
    with _describing:  # it is made once, whoever asks first
        if app.openapi_schema is None:
            _refer_to_problem(FastAPI.openapi(app))
    assert app.openapi_schema is not None
    return app.openapi_schema


def _refer_to_problem(document: dict[str, Any]) -> None:
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    for responses in (operation["responses"] for operation in operations):
        for status, response in responses.items():
            if int(status) >= 400 and "application/json" in response["content"]:
                responses[status] = {"$ref": _PROBLEM, "description": response["description"]}
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/HttpProblem"}, "example": PROBLEM}}
    document["components"]["responses"] = {
        "Problem": {"description": "A problem detail (RFC 9457)", "content": content}
    }
