"""The page and the API at one address, each with its own authentication and headers; all pages with the permission
that each needs."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from fastapi import Depends, FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.app.access import identity_provider
from broker.app.access.identity_provider import IdentityProvider, SignInFailed
from broker.app.service.health import Pulses
from broker.app.service.metrics import PUBLIC_PATHS, ServiceResponder
from broker.app.wiring import Broker
from broker.core.access.people import Permission
from broker.core.access.sessions import LINK_PATH, PENDING
from broker.core.actors import EntryPoint
from broker.core.errors import BrokerError
from broker.server.api import contents, problems
from broker.server.api.application import MAX_BODY, Envelope, api
from broker.server.api.callers import SignInNeeded, address_of
from broker.server.api.device_flow import read_form
from broker.server.api.limits import RequestRate, WrongTokens
from broker.server.api.problems import HttpProblem
from broker.server.api.transport import Transport
from broker.server.page import admin, capacity, jobs, market, policies, reports, signing, submission
from broker.server.page.overview import overview
from broker.server.page.render import STATIC, render_page
from broker.server.page.signing import local_path, sign_in_form
from broker.server.page.visitors import Cookie, SignInState, Visitor, gate, is_scripted


@dataclass(frozen=True, slots=True)
class PageRoute:
    """One page, or the target of a form. ``permission``: required in some team before the endpoint checks the team
    concerned; None: everybody signed in."""

    method: str
    path: str
    permission: Permission | None
    endpoint: Callable[..., Response]


PAGES = (
    PageRoute("GET", "/", None, overview),
    PageRoute("GET", "/jobs", Permission.SEE_JOBS, jobs.job_list),
    PageRoute("GET", "/jobs/cancel", Permission.CHANGE_OWN_JOBS, jobs.cancel_several_form),
    PageRoute("POST", "/jobs/cancel", Permission.CHANGE_OWN_JOBS, jobs.cancel_several),
    PageRoute("GET", "/jobs/{id}", Permission.SEE_JOBS, jobs.job),
    PageRoute("GET", "/jobs/{id}/news", Permission.SEE_JOBS, jobs.job_news),
    PageRoute("GET", "/jobs/{id}/output", Permission.SEE_OUTPUT, jobs.job_output),
    PageRoute("GET", "/jobs/{id}/accelerators", Permission.SEE_OUTPUT, jobs.job_usage),
    PageRoute("GET", "/jobs/{id}/cancel", Permission.CHANGE_OWN_JOBS, jobs.cancel_form),
    PageRoute("POST", "/jobs/{id}/cancel", Permission.CHANGE_OWN_JOBS, jobs.cancel),
    PageRoute("GET", "/jobs/{id}/ledger", Permission.SEE_JOBS, reports.job_ledger),
    PageRoute("GET", "/submit", Permission.SUBMIT, submission.job_form),
    PageRoute("POST", "/submit/plan", Permission.SUBMIT, submission.plan_job),
    PageRoute("POST", "/submit", Permission.SUBMIT, submission.submit),
    PageRoute("GET", "/queue", Permission.SEE_JOBS, market.queue),
    PageRoute("GET", "/approvals", Permission.SEE_JOBS, jobs.approval_list),
    PageRoute("POST", "/approvals/{id}/grant", Permission.APPROVE, jobs.grant),
    PageRoute("POST", "/approvals/{id}/refuse", Permission.APPROVE, jobs.refuse),
    PageRoute("GET", "/budgets", Permission.SEE_BUDGETS, reports.budget_list),
    PageRoute("GET", "/budgets/{id}", Permission.SEE_BUDGETS, reports.budget),
    PageRoute("GET", "/reports", Permission.SEE_BUDGETS, reports.spending),
    PageRoute("GET", "/reports/month", Permission.SEE_ALL_TEAMS, reports.month),
    PageRoute("POST", "/reports/month/{month}/advice/{advice}", Permission.ANSWER_ADVICE, reports.answer_advice),
    PageRoute("POST", "/reports/anomalies/{team}/{first}", Permission.CHANGE_OWN_JOBS, reports.answer_anomaly),
    PageRoute("GET", "/policies", Permission.SEE_POLICIES, policies.policy_list),
    PageRoute("GET", "/policies/versions/{number}", Permission.SEE_ALL_TEAMS, policies.policy_version),
    PageRoute("GET", "/policies/change", Permission.CHANGE_POLICIES, policies.change_form),
    PageRoute("POST", "/policies/preview", Permission.CHANGE_POLICIES, policies.preview_change),
    PageRoute("GET", "/policies/preview/{preview}", Permission.CHANGE_POLICIES, policies.show_preview),
    PageRoute("POST", "/policies/apply", Permission.CHANGE_POLICIES, policies.apply_change),
    PageRoute("GET", "/capacity", Permission.SEE_ALL_TEAMS, capacity.capacity_list),
    PageRoute("GET", "/capacity/quote", Permission.BUY, capacity.quote_form),
    PageRoute("POST", "/capacity/buy", Permission.BUY, capacity.buy),
    PageRoute("GET", "/purchases/{purchase}", Permission.SEE_BUDGETS, capacity.purchase),
    PageRoute("GET", "/purchases/{purchase}/undo", Permission.BUY, capacity.undo_form),
    PageRoute("POST", "/purchases/{purchase}/approve", Permission.APPROVE, capacity.approve),
    PageRoute("POST", "/purchases/{purchase}/reject", Permission.APPROVE, capacity.reject),
    PageRoute("POST", "/purchases/{purchase}/cancel", Permission.BUY, capacity.cancel_purchase),
    PageRoute("POST", "/purchases/{purchase}/withdraw", Permission.BUY, capacity.withdraw),
    PageRoute("GET", "/prices", Permission.SEE_MARKET, market.price_history),
    PageRoute("GET", "/jobs/{id}/files", Permission.SEE_OUTPUT, jobs.job_files),
    PageRoute("GET", "/jobs/{id}/files/{sha256}", Permission.SEE_OUTPUT, contents.file_content),
    PageRoute("GET", "/offers", Permission.SEE_MARKET, market.offer_list),
    PageRoute("GET", "/me", None, admin.me),
    PageRoute("POST", "/sign-out", None, signing.sign_out),
    PageRoute("GET", "/device", None, signing.code_form),
    PageRoute("POST", "/device", None, signing.decide_login),
    PageRoute("GET", "/people", Permission.SEE_PEOPLE, admin.people_and_tokens),
    PageRoute("POST", "/people", Permission.SEE_PEOPLE, admin.add_person),
    PageRoute("GET", "/people/{name}", Permission.SEE_PEOPLE, admin.person),
    PageRoute("POST", "/people/{name}", Permission.SEE_PEOPLE, admin.change_person),
    PageRoute("GET", "/health", Permission.SEE_MARKET, admin.health),
)


log = logging.getLogger(__name__)

TO_PROVIDER, CALLBACK = "/sign-in/provider", "/sign-in/callback"
_MAX_LENGTH = 4_000  # characters of a code or a state


class ProviderPages:
    """The two addresses of a sign-in. A cookie binds them to one browser; it is `Lax`, so that the browser sends it
    when it returns from the provider."""

    def __init__(self, broker: Broker, provider: IdentityProvider, cookie: Cookie, transport: Transport) -> None:
        self._broker = broker
        self._provider = provider
        self._cookie = cookie
        self._transport = transport

    @property
    def _browser_cookie(self) -> str:
        return f"{self._cookie.name}_begun"

    def send_to_provider(self, request: Request) -> Response:
        next_path = local_path(request.query_params.get("next", "/"))
        try:
            pending_login = identity_provider.begin(
                self._broker, self._provider, next_path, self._callback_url(request)
            )
        except BrokerError as error:
            return self._refused(request, error, next_path)
        answer = RedirectResponse(pending_login.address, 303)
        answer.set_cookie(
            self._browser_cookie, pending_login.browser, max_age=round(PENDING.total_seconds()), **self._cookie.kind
        )
        return answer

    def back(self, request: Request) -> Response:
        """Begin a session for the person who signed in at the provider."""
        params = request.query_params
        code, state = params.get("code", "")[:_MAX_LENGTH], params.get("state", "")[:_MAX_LENGTH]
        try:
            if not code or not state:
                raise SignInFailed("the identity provider refused the sign-in")
            id, next_path = identity_provider.finish(
                self._broker,
                self._provider,
                state=state,
                code=code,
                browser=request.cookies.get(self._browser_cookie, ""),
                back=self._callback_url(request),
                origin=f"{EntryPoint.PAGE} {address_of(request)}",
            )
        except BrokerError as error:
            return self._refused(request, error, "/")
        answer = self._cookie.given(id, next_path)
        answer.delete_cookie(self._browser_cookie, **self._cookie.kind)
        return answer

    def _callback_url(self, request: Request) -> str:
        return self._transport.own_url(request) + CALLBACK

    def _refused(self, request: Request, error: BrokerError, next_path: str) -> Response:
        log.warning("a sign-in failed (request %s): %s", request.state.request_id, error)
        hint = f" {error.hint}." if error.hint else ""
        status = 401 if isinstance(error, SignInFailed) else 503
        return sign_in_form(self._broker, next_path, f"Not signed in: {error.message}.{hint}", status)


_COMMON_HEADERS = {
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
PAGE_HEADERS = _COMMON_HEADERS | {b"cache-control": b"no-store"}
LINK_HEADERS = PAGE_HEADERS | {b"referrer-policy": b"strict-origin"}  # without the path, which is a secret
FILE_HEADERS = _COMMON_HEADERS | {b"cache-control": b"public, max-age=31536000, immutable"}
_TLS_HEADERS = {b"strict-transport-security": b"max-age=31536000"}
_STATIC_PREFIX, _API_PREFIXES = "/static", ("/api/", *PUBLIC_PATHS)


def api_and_page(broker: Broker, service: ServiceResponder, health: Pulses, transport: Transport) -> ASGIApp:
    """The application of API, health, metrics and page. They share the count of wrong tokens."""
    wrong_tokens, extra_headers = WrongTokens(), _TLS_HEADERS if transport.encrypted else {}
    api_app = Envelope(api(broker, service, wrong_tokens, transport))
    app = page(broker, health, transport, wrong_tokens)
    pages, links = Envelope(app, PAGE_HEADERS | extra_headers), Envelope(app, LINK_HEADERS | extra_headers)
    files = Envelope(_static_files(), FILE_HEADERS | extra_headers)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        prefixed = ((_API_PREFIXES, api_app), (f"{_STATIC_PREFIX}/", files), (f"{LINK_PATH}/", links))
        await next((prefixed_app for prefix, prefixed_app in prefixed if path.startswith(prefix)), pages)(
            scope, receive, send
        )

    return answer


def page(broker: Broker, health: Pulses, transport: Transport, wrong_tokens: WrongTokens) -> FastAPI:
    """The page alone, without the `Envelope` that a caller puts around it."""
    cookie = Cookie(transport.encrypted)
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, max_body_size=MAX_BODY)
    app.state.health, app.state.transport = health, transport
    app.state.signing = SignInState(broker, cookie, wrong_tokens)
    app.state.wrong_codes = WrongTokens(most=10)  # limits by person the tries of programs' codes
    form, rate = Depends(read_form), RequestRate(broker.settings.serve.requests_per_minute)
    app.add_api_route(signing.SIGN_IN, signing.sign_in_page, methods=["GET"])
    app.add_api_route(signing.SIGN_IN, signing.sign_in, methods=["POST"], dependencies=[form])
    app.add_api_route(signing.LINK, signing.link_page, methods=["GET"])
    app.add_api_route(signing.LINK, signing.sign_in_by_link, methods=["POST"])
    if broker.settings.sign_in is not None:
        provider = ProviderPages(broker, IdentityProvider(broker.settings.sign_in), cookie, transport)
        app.add_api_route(TO_PROVIDER, provider.send_to_provider, methods=["GET"])
        app.add_api_route(CALLBACK, provider.back, methods=["GET"])
    for route in PAGES:
        gate_check = Depends(gate(broker, cookie, route.permission, rate))
        app.add_api_route(
            route.path,
            route.endpoint,
            methods=[route.method],
            dependencies=[gate_check] if route.method == "GET" else [form, gate_check],
        )
    problems.install(app, _respond)
    return app


def _static_files() -> ASGIApp:
    static_files = StaticFiles(directory=str(STATIC))

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = dict(scope) | {"path": scope["path"].removeprefix(_STATIC_PREFIX), "root_path": ""}
        try:
            await static_files(scope, receive, send)
        except HTTPException as error:
            await Response("not found", error.status_code, media_type="text/plain")(scope, receive, send)

    return answer


def _respond(request: Request, problem: HttpProblem, error: Exception) -> Response:
    if isinstance(error, SignInNeeded):
        if is_scripted(request):  # the sign-in form must not replace the figures: the browser loads the page again
            return Response(status_code=401, headers={"HX-Refresh": "true"})
        requested_path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        next_query = f"?next={quote(requested_path)}" if request.method == "GET" and requested_path != "/" else ""
        return RedirectResponse(f"{signing.SIGN_IN}{next_query}", 303)
    visitor: Visitor | None = getattr(request.state, "visitor", None)
    title = problem.title.capitalize()
    return render_page("problem.html", visitor, {"problem": problem}, title=title, status=problem.status)
