"""The page and the API at one address, each with its own authentication and headers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import quote

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.app.access import provider_sign_ins
from broker.app.access.identity_provider import IdentityProvider, SignInFailed
from broker.app.service.health import Pulses
from broker.app.service.metrics import ServiceAnswers
from broker.app.wiring import Broker
from broker.core.access.provider_sign_ins import PENDING
from broker.core.access.sessions import LINK_PATH
from broker.core.actors import EntryPoint
from broker.core.errors import BrokerError
from broker.page import signing
from broker.page.drawing import STATIC, drawn
from broker.page.routes import PAGES
from broker.page.signing import inside, sign_in_form
from broker.page.visitors import Cookie, SignInState, Visitor, by_script, gate
from broker.server import problems
from broker.server.application import MOST_BODY, Envelope, api
from broker.server.callers import SignInNeeded, address_of
from broker.server.device_flow import read_form
from broker.server.limits import RequestRate, WrongTokens
from broker.server.problems import HttpProblem
from broker.server.transport import Transport

log = logging.getLogger(__name__)

TO_PROVIDER, BACK = "/sign-in/provider", "/sign-in/callback"
_LONGEST = 4_000  # characters of a code or a state


class ProviderPages:
    """The two addresses of a sign-in. A cookie binds them to one browser; it is `Lax`, so that the browser sends it
    when it returns from the provider."""

    def __init__(self, broker: Broker, provider: IdentityProvider, cookie: Cookie, transport: Transport) -> None:
        self._broker = broker
        self._provider = provider
        self._cookie = cookie
        self._transport = transport

    @property
    def _begun(self) -> str:
        return f"{self._cookie.name}_begun"

    def routes(self) -> tuple[tuple[str, Callable[..., Response]], ...]:
        """The paths (GET) and their endpoints."""
        return (TO_PROVIDER, self.to_provider), (BACK, self.back)

    def to_provider(self, request: Request) -> Response:
        """Send the browser to the provider."""
        after = inside(request.query_params.get("next", "/"))
        try:
            begun = provider_sign_ins.begin(self._broker, self._provider, after, self._own_address(request))
        except BrokerError as error:
            return self._refused(request, error, after)
        answer = RedirectResponse(begun.address, 303)
        answer.set_cookie(self._begun, begun.browser, max_age=round(PENDING.total_seconds()), **self._cookie.kind)
        return answer

    def back(self, request: Request) -> Response:
        """Begin a session for the person who signed in at the provider."""
        given = request.query_params
        code, state = given.get("code", "")[:_LONGEST], given.get("state", "")[:_LONGEST]
        try:
            if not code or not state:
                raise SignInFailed("the identity provider refused the sign-in")
            id, after = provider_sign_ins.finish(
                self._broker,
                self._provider,
                state=state,
                code=code,
                browser=request.cookies.get(self._begun, ""),
                back=self._own_address(request),
                origin=f"{EntryPoint.PAGE} {address_of(request)}",
            )
        except BrokerError as error:
            return self._refused(request, error, "/")
        answer = self._cookie.given(id, after)
        answer.delete_cookie(self._begun, **self._cookie.kind)
        return answer

    def _own_address(self, request: Request) -> str:
        return self._transport.own_url(request.headers.get("host", "")) + BACK

    def _refused(self, request: Request, error: BrokerError, after: str) -> Response:
        log.warning("a sign-in failed (request %s): %s", request.state.request_id, error)
        hint = f" {error.hint}." if error.hint else ""
        status = 401 if isinstance(error, SignInFailed) else 503
        return sign_in_form(self._broker, after, f"Not signed in: {error.message}.{hint}", status)


_OF_ALL = {
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"same-origin",  # without a referrer, `from_here` could not tell the origin of forms
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"content-security-policy": (
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
}
OF_PAGES = _OF_ALL | {b"cache-control": b"no-store"}
OF_LINKS = OF_PAGES | {b"referrer-policy": b"strict-origin"}  # without the path, which is a secret
OF_FILES = _OF_ALL | {b"cache-control": b"public, max-age=31536000, immutable"}
_ONLY_TLS = {b"strict-transport-security": b"max-age=31536000"}
_FILES, _API = "/static", ("/api/", "/healthz", "/metrics")


def with_page(broker: Broker, service: ServiceAnswers, health: Pulses, transport: Transport) -> ASGIApp:
    """The application of API, health, metrics and page. They share the count of wrong tokens."""
    wrong, more = WrongTokens(), _ONLY_TLS if transport.encrypted else {}
    described = Envelope(api(broker, service, wrong, transport))
    app = page(broker, health, transport, wrong)
    pages, links = Envelope(app, OF_PAGES | more), Envelope(app, OF_LINKS | more)
    files = Envelope(_files(), OF_FILES | more)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        prefixed = ((_API, described), (f"{_FILES}/", files), (f"{LINK_PATH}/", links))
        await next((one for prefix, one in prefixed if path.startswith(prefix)), pages)(scope, receive, send)

    return answer


def page(broker: Broker, health: Pulses, transport: Transport, wrong: WrongTokens) -> FastAPI:
    """The page alone, without the `Envelope` that a caller puts around it."""
    cookie = Cookie(transport.encrypted)
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, max_body_size=MOST_BODY)
    app.state.health, app.state.signing, app.state.transport = health, SignInState(broker, cookie, wrong), transport
    app.state.wrong_codes = WrongTokens(most=10)  # limits by person the tries of programs' codes
    form, rate = Depends(read_form), RequestRate(broker.settings.serve.requests_per_minute)
    app.add_api_route(signing.SIGN_IN, signing.asking, methods=["GET"])
    app.add_api_route(signing.SIGN_IN, signing.signing_in, methods=["POST"], dependencies=[form])
    app.add_api_route(signing.LINK, signing.link_asking, methods=["GET"])
    app.add_api_route(signing.LINK, signing.link_signing_in, methods=["POST"])
    if broker.settings.sign_in is not None:
        provider = ProviderPages(broker, IdentityProvider(broker.settings.sign_in), cookie, transport)
        for path, endpoint in provider.routes():
            app.add_api_route(path, endpoint, methods=["GET"])
    for route in PAGES:
        gated = Depends(gate(broker, cookie, route.permission, rate))
        app.add_api_route(
            route.path,
            route.endpoint,
            methods=[route.method],
            dependencies=[gated] if route.method == "GET" else [form, gated],
        )
    app.add_exception_handler(BrokerError, _of_broker)
    app.add_exception_handler(RequestValidationError, _of_request)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(Exception, _of_fault)
    return app


def _files() -> ASGIApp:
    found = StaticFiles(directory=str(STATIC))

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = dict(scope) | {"path": scope["path"].removeprefix(_FILES), "root_path": ""}
        try:
            await found(scope, receive, send)
        except HTTPException as error:
            await Response("not found", error.status_code, media_type="text/plain")(scope, receive, send)

    return answer


def _of_broker(request: Request, error: Exception) -> Response:
    assert isinstance(error, BrokerError)
    if isinstance(error, SignInNeeded):
        if by_script(request):  # the sign-in form must not replace the figures: the browser loads the page again
            return Response(status_code=401, headers={"HX-Refresh": "true"})
        asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        after = f"?next={quote(asked)}" if request.method == "GET" and asked != "/" else ""
        return RedirectResponse(f"{signing.SIGN_IN}{after}", 303)
    problems.log_refusal(request, error)
    return _drawn(request, problems.problem_of(error, request.state.request_id))


def _of_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _drawn(request, problems.of_validation(error, request.state.request_id))


def _of_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = HTTPStatus(error.status_code).name.lower()
    return _drawn(request, problems.plain(error.status_code, kind, str(error.detail), request.state.request_id))


def _of_fault(request: Request, error: Exception) -> Response:
    return _drawn(request, problems.of_fault(error, request.state.request_id))


def _drawn(request: Request, problem: HttpProblem) -> Response:
    visitor: Visitor | None = getattr(request.state, "visitor", None)
    title = problem.title.capitalize()
    return drawn("problem.html", visitor, {"problem": problem}, title=title, status=problem.status)
