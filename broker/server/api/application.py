"""The ASGI application: routes with their permissions, problem details for every error, limits for every request."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, wraps
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPBearer
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.app.service.health import Pulses
from broker.app.service.metrics import PUBLIC_PATHS, ServiceResponder
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, did_you_mean
from broker.core.extras import own_version
from broker.server.api import device_flow, problems
from broker.server.api.callers import EntryControl, gate
from broker.server.api.description import describe, extra_of, responses_of
from broker.server.api.limits import RequestRate, UploadQuota, WrongTokens
from broker.server.api.paths import CONTENTS
from broker.server.api.problems import HttpProblem
from broker.server.api.routes import OPENAPI, ROUTES, UPLOADS, DocumentResponse
from broker.server.api.transport import Transport

MAX_BODY = 1_000_000
"""The most bytes in a request's body."""
_MIN_GZIP = 1_000  # bytes
_INCOMPRESSIBLE = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream", "application/vnd.apache.parquet")
_CONTENT_SUFFIX = "/{sha256}"  # the end of the routes that upload or download one file
API_HEADERS = {
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
}


def application(broker: Broker, service: ServiceResponder, health: Pulses, transport: Transport) -> ASGIApp:
    """The API with health and metrics, without the page."""
    return Envelope(api(broker, service, WrongTokens(), transport))


def api(broker: Broker, service: ServiceResponder, wrong_tokens: WrongTokens, transport: Transport) -> FastAPI:
    """The API with health and metrics, without the `Envelope` that a caller puts around it."""
    app = FastAPI(
        title="gpubroker",
        summary="Jobs, offers, budgets and approvals of a team.",
        version=own_version(),
        openapi_url=OPENAPI,
        docs_url=None,  # this page would load scripts from another host
        redoc_url=None,
        redirect_slashes=False,
    )
    problems.install(app)
    app.add_middleware(GZipMiddleware, minimum_size=_MIN_GZIP, compresslevel=5, exclude_content_types=_INCOMPRESSIBLE)
    app.openapi = partial(describe, app)  # type: ignore[method-assign]  # FastAPI's way to change the document
    app.state.uploads = UploadQuota(broker.settings.serve.max_uploads)
    app.state.entry = EntryControl(broker, wrong_tokens, RequestRate(broker.settings.serve.requests_per_minute))
    app.router.routes.extend(_routes())
    device_flow.install(app, broker, transport)
    for path in PUBLIC_PATHS:
        app.add_api_route(path, _service_endpoint(service), methods=["GET"], name=path[1:], include_in_schema=False)
    return app


@cache
def _routes() -> Sequence[BaseRoute]:
    """The routes, the same for every application. Cached, because FastAPI takes 0.1 s to analyze them."""
    router = APIRouter(redirect_slashes=False)
    security = Depends(HTTPBearer(scheme_name="token", description="An API token: gpb_…", auto_error=False))
    for route in ROUTES:
        router.add_api_route(
            route.full_path,
            _endpoint(route.endpoint),
            methods=[route.method],
            name=route.endpoint.__name__,
            operation_id=route.endpoint.__name__,
            dependencies=[
                # Single files are not counted: a job may have ten thousand to upload and to download.
                Depends(gate(route.permission, counted=not route.path.endswith(_CONTENT_SUFFIX))),
                Depends(_known_parameters),
                security,
            ],
            response_model=route.document,
            response_class=JSONResponse if route.document else Response,  # for the description only
            status_code=route.status,
            tags=[route.path.split("/")[1]],
            responses=responses_of(route),
            openapi_extra=extra_of(route),
            max_body_size=None if route.path.startswith(UPLOADS) else MAX_BODY,
        )
    return router.routes


def _endpoint(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """The endpoint with the response to the document that it returns."""
    if iscoroutinefunction(endpoint):
        return endpoint

    @wraps(endpoint)
    def respond(**arguments: Any) -> Response:
        result = endpoint(**arguments)
        return result if isinstance(result, Response) else DocumentResponse(result)

    return respond


def _known_parameters(request: Request) -> None:
    """Raises `InvalidInput` for a query parameter that the route does not declare: a misspelled filter would otherwise
    show everything."""
    if not request.query_params:
        return
    described = request.app.openapi()["paths"][request.scope["route"].path][request.method.lower()]
    declared = [parameter["name"] for parameter in described.get("parameters", ()) if parameter["in"] == "query"]
    for name in request.query_params:
        if name not in declared:
            hint = f"known: {', '.join(sorted(declared))}" if declared else "this address takes no parameters"
            raise InvalidInput(f"unknown parameter {name!r}{did_you_mean(name, declared)}", where="query", hint=hint)


def _service_endpoint(service: ServiceResponder) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        status, kind, body = service.answer(request.url.path, request.headers.get("authorization", ""))
        return Response(body, status, media_type=kind)

    return answer


class Envelope:
    """Wraps every request and answer, including faults: it adds a request id, the common headers, and a size limit."""

    def __init__(self, app: ASGIApp, headers: Mapping[bytes, bytes] = API_HEADERS) -> None:
        self._app = app
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id: str = scope.setdefault("state", {}).setdefault("request_id", secrets.token_hex(8))

        async def send_wrapped(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [header for header in message.get("headers", []) if header[0].lower() not in self._headers]
                message["headers"] = [*headers, *self._headers.items(), (b"x-request-id", id.encode())]
            await send(message)

        problem = _problem_of_body(scope, id)
        if problem is None:
            await self._app(scope, receive, send_wrapped)
            return
        answer = problems.response_of(problem)
        answer.headers["Connection"] = "close"  # the body is not read, so no other request is found behind it
        await answer(scope, receive, send_wrapped)


def _problem_of_body(scope: Scope, id: str) -> HttpProblem | None:
    """The problem of the declared size of a request's body; without a declaration the application counts."""
    headers = dict(scope["headers"])
    size = int(headers.get(b"content-length", b"0"))
    if b"transfer-encoding" in headers and size:  # a proxy may see another end of this request
        return problems.plain_problem(HTTPStatus.BAD_REQUEST, "invalid_input", "two lengths of one body", id)
    if size > MAX_BODY and not scope["path"].startswith(CONTENTS):
        message = f"a request has at most {MAX_BODY:,} bytes"
        return problems.plain_problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", message, id)
    return None
