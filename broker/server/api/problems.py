"""Errors as problem details (RFC 9457), with the codes, reasons and hints of the command line."""

import logging
import math
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from broker.app.access.callers import RoleMissing
from broker.app.access.idempotency import ChangeUnderWay
from broker.app.documents import AlternativeResult, ErrorDetails, Result, is_none
from broker.app.jobs.preview import NoFeasibleCapacity, NothingToJudge
from broker.app.jobs.submit import DearerNow
from broker.core.errors import (
    ApprovalNeeded,
    BrokerError,
    Conflict,
    InvalidInput,
    MissingExtra,
    NotAllowed,
    Problem,
    RetryLater,
    StoreProblem,
    UnknownName,
    UnreadableJob,
)
from broker.server.api.callers import SignInNeeded, TooManyWrongTokens
from broker.server.api.limits import TooManyRequests

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_STATUS: tuple[tuple[type[BrokerError], HTTPStatus], ...] = (
    (SignInNeeded, HTTPStatus.UNAUTHORIZED),
    (Conflict, HTTPStatus.CONFLICT),
    (NotAllowed, HTTPStatus.FORBIDDEN),
    (ApprovalNeeded, HTTPStatus.FORBIDDEN),
    (UnknownName, HTTPStatus.NOT_FOUND),
    (InvalidInput, HTTPStatus.UNPROCESSABLE_ENTITY),
    (NoFeasibleCapacity, HTTPStatus.CONFLICT),
    (NothingToJudge, HTTPStatus.CONFLICT),
    (DearerNow, HTTPStatus.CONFLICT),
    (UnreadableJob, HTTPStatus.CONFLICT),
    (ChangeUnderWay, HTTPStatus.CONFLICT),
    (TooManyWrongTokens, HTTPStatus.TOO_MANY_REQUESTS),
    (TooManyRequests, HTTPStatus.TOO_MANY_REQUESTS),
    (MissingExtra, HTTPStatus.NOT_IMPLEMENTED),
    (StoreProblem, HTTPStatus.SERVICE_UNAVAILABLE),
    (RetryLater, HTTPStatus.SERVICE_UNAVAILABLE),
)
_KEY_HINT = (
    "send the header Idempotency-Key: 8 to 128 printable characters without spaces that name this one request, such as"
    " a UUID; keep it when you ask again"
)


class HttpProblem(Result):
    """A problem detail of RFC 9457. ``kind``, ``hint``, ``where``, ``problems``, ``alternatives`` and ``others`` are
    those of the command line's errors, ``exit_code`` is its exit code. For a server fault it gives only ``request_id``;
    the server's log has the details."""

    type: str
    title: str
    status: int
    detail: str
    kind: str
    hint: str
    where: str
    problems: list[Problem]
    alternatives: list[AlternativeResult] | None = Field(default=None, exclude_if=is_none)
    others: list[ErrorDetails] | None = Field(default=None, exclude_if=is_none)
    exit_code: int
    request_id: str


def status_of(error: BrokerError) -> HTTPStatus:
    """The HTTP status for what the caller should do next; 500 if only the server's operators can fix it."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)


def problem_of(error: BrokerError, request_id: str) -> HttpProblem:
    """The error as a document. The message of a server fault may reveal details of its machine, so only the log has
    it."""
    status, details = status_of(error), ErrorDetails.of(error)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, MissingExtra):
        log.error("request %s: %s (%s)", request_id, error, error.hint)
        return plain_problem(status, details.kind, "the server cannot answer this now", request_id)
    return HttpProblem(
        type=_type(details.kind),
        title=details.kind.replace("_", " "),
        status=status,
        detail=details.message,
        kind=details.kind,
        hint=details.hint,
        where=details.where,
        problems=details.problems,
        alternatives=details.alternatives,
        others=details.others,
        exit_code=error.exit_code,
        request_id=request_id,
    )


def response_of(problem: HttpProblem, after: float | None = None) -> Response:
    """The response with the problem. ``after``: seconds until a retry makes sense."""
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == HTTPStatus.UNAUTHORIZED else {}
    if after is not None:
        headers["Retry-After"] = str(math.ceil(after))
    return Response(problem.model_dump_json(), problem.status, headers, MEDIA_TYPE)


Respond = Callable[[Request, HttpProblem, Exception], Response]


def respond(request: Request, problem: HttpProblem, error: Exception) -> Response:  # the web UI needs it
    answer = response_of(problem, error.after if isinstance(error, TooManyWrongTokens | TooManyRequests) else None)
    if isinstance(error, HTTPException):
        answer.headers.update(error.headers or {})
    return answer


def install(app: FastAPI, respond: Respond = respond) -> None:
    """Make the application answer every error with a problem detail, including FastAPI's own errors. ``respond``: the
    response with a problem."""

    def handle(problem: Callable[[Any, str], HttpProblem], request: Request, error: Exception) -> Response:
        if isinstance(error, RoleMissing):  # with the route's template: the values that were sent are not logged
            log.warning("request %s: %s (%s)", request.state.request_id, error, request.scope["route"].path)
        return respond(request, problem(error, request.state.request_id), error)

    app.add_exception_handler(BrokerError, partial(handle, problem_of))
    app.add_exception_handler(ClientDisconnect, partial(handle, _disconnect_problem))
    app.add_exception_handler(RequestValidationError, partial(handle, _validation_problem))
    app.add_exception_handler(HTTPException, partial(handle, _http_problem))
    app.add_exception_handler(Exception, partial(handle, _fault_problem))


def _validation_problem(error: RequestValidationError, request_id: str) -> HttpProblem:
    """The problem of an invalid parameter or body. It does not repeat the values sent."""
    problems = [
        Problem(
            line=0,
            column=0,
            key=".".join(str(part) for part in item["loc"]),
            message=item["msg"],
            unknown_key=item["type"] == "extra_forbidden",
        )
        for item in error.errors()
    ]
    text = "; ".join(f"{item.key}: {item.message}" for item in problems)
    problem = plain_problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_input", text, request_id, exit_code=2)
    hint = _KEY_HINT if any(item.key == "header.Idempotency-Key" for item in problems) else ""
    return problem.model_copy(update={"problems": problems, "hint": hint})


def _http_problem(error: HTTPException, request_id: str) -> HttpProblem:
    return plain_problem(error.status_code, HTTPStatus(error.status_code).name.lower(), str(error.detail), request_id)


def _disconnect_problem(_: Exception, request_id: str) -> HttpProblem:
    """The problem of a client that ended the connection within the body, for the log: nobody receives it."""
    log.warning("request %s: the client closed the connection before the end of the body", request_id)
    return plain_problem(HTTPStatus.BAD_REQUEST, "disconnected", "the body is incomplete", request_id)


def _fault_problem(error: Exception, request_id: str) -> HttpProblem:
    """The problem of an unexpected exception; the log has its traceback."""
    log.error("request %s broke off", request_id, exc_info=error)
    return plain_problem(HTTPStatus.INTERNAL_SERVER_ERROR, "unexpected", "unexpected error", request_id, exit_code=1)


def plain_problem(status: int, kind: str, detail: str, request_id: str, exit_code: int = 5) -> HttpProblem:
    """A problem without an error of the broker."""
    return HttpProblem(
        type=_type(kind),
        title=kind.replace("_", " "),
        status=status,
        detail=detail,
        kind=kind,
        hint="",
        where="",
        problems=[],
        exit_code=exit_code,
        request_id=request_id,
    )


def _type(kind: str) -> str:
    return f"urn:gpubroker:problem:{kind}"
