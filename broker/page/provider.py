"""Signing in at the organisation's identity provider: the way there and back."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from broker.app.access import provider_sign_ins
from broker.app.access.identity_provider import IdentityProvider, SignInFailed
from broker.app.wiring import Broker
from broker.core.access.provider_sign_ins import PENDING
from broker.core.actors import EntryPoint
from broker.core.errors import BrokerError
from broker.page.signing import inside, sign_in_form
from broker.page.visitors import Cookie
from broker.server.callers import address_of
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
                raise SignInFailed("the identity provider did not let you in")
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
