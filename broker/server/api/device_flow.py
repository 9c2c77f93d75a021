"""The login of programs, with this server as OAuth authorization server: device authorization (RFC 8628) and revocation
(RFC 7009). These routes need no token; bodies are forms, errors those of RFC 6749."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response

from broker.app.access import device_logins, tokens
from broker.app.access.device_logins import TOKEN_LIFETIME, DeviceAnswer
from broker.app.wiring import Broker
from broker.core.access.people import TokenScope
from broker.core.access.sessions import INTERVAL, VALID
from broker.core.actors import EntryPoint
from broker.core.errors import InvalidInput, Throttled
from broker.server.api.callers import address_of
from broker.server.api.paths import CLIENT, DEVICE_AUTHORIZATION, DEVICE_PAGE, GRANT, REVOCATION, TOKEN
from broker.server.api.transport import Transport


def install(app: FastAPI, broker: Broker, transport: Transport) -> None:
    for path, endpoint in (
        (DEVICE_AUTHORIZATION, _authorization(broker, transport)),
        (TOKEN, _token(broker)),
        (REVOCATION, _revocation(broker)),
    ):
        app.add_api_route(
            path, endpoint, methods=["POST"], dependencies=[Depends(read_form)], include_in_schema=False, name=path
        )


def _authorization(broker: Broker, transport: Transport) -> Callable[[Request], Response]:
    def authorization(request: Request) -> Response:
        """A new login: the program's code, and the code for a person."""
        form = form_of(request)
        if form.get("client_id") != CLIENT:
            return _error("invalid_client", f"expected client_id={CLIENT}")
        names = form.get("scope", "").split() or [TokenScope.READ.value]
        unknown = [name for name in names if name not in set(TokenScope)]
        if unknown:
            return _error("invalid_scope", f"unknown scope {unknown[0]!r}; known: {', '.join(TokenScope)}")
        scopes = frozenset(TokenScope(name) for name in names)
        try:
            login = device_logins.begin_login(broker, form.get("client_name", ""), scopes, address=address_of(request))
        except InvalidInput as error:
            return _error("invalid_request", error.message)
        except Throttled as error:
            answer = _error("temporarily_unavailable", error.message, HTTPStatus.TOO_MANY_REQUESTS)
            answer.headers["Retry-After"] = str(round(error.after or 60))
            return answer
        page = transport.own_url(request) + DEVICE_PAGE
        return _json_response(
            {
                "device_code": login.device_code,
                "user_code": login.user_code,
                "verification_uri": page,
                "verification_uri_complete": f"{page}?user_code={quote(login.user_code)}",
                "expires_in": round(VALID.total_seconds()),
                "interval": round(INTERVAL.total_seconds()),
            }
        )

    return authorization


def _token(broker: Broker) -> Callable[[Request], Response]:
    def token(request: Request) -> Response:
        """The token of a granted login, once."""
        form = form_of(request)
        if form.get("grant_type") != GRANT:
            return _error("unsupported_grant_type", f"expected grant_type={GRANT}")
        if form.get("client_id") != CLIENT or not form.get("device_code"):
            return _error("invalid_request", "expected client_id and device_code")
        result = device_logins.collect_token(broker, form["device_code"])
        if isinstance(result, DeviceAnswer):
            return _error(result.value, "")
        return _json_response(
            {
                "access_token": result.text,
                "token_type": "Bearer",
                "expires_in": round(TOKEN_LIFETIME.total_seconds()),
                "scope": " ".join(sorted(result.token.scopes)),
            }
        )

    return token


def _revocation(broker: Broker) -> Callable[[Request], Response]:
    def revocation(request: Request) -> Response:
        """Revoke the given token. The answer is the same for a wrong one."""
        origin = f"{EntryPoint.API} {address_of(request)}"
        tokens.revoke_by_text(broker, form_of(request).get("token", ""), origin=origin)
        return _json_response({})

    return revocation


def _json_response(document: dict[str, Any], status: int = 200) -> Response:
    return JSONResponse(document, status)


def _error(code: str, description: str, status: int = HTTPStatus.BAD_REQUEST) -> Response:
    document = {"error": code} | ({"error_description": description} if description else {})
    return _json_response(document, status)


_MAX_FIELDS = 100  # a form of policies has two for each file


async def read_form(request: Request) -> None:
    """Parse the form's fields into ``request.state.form``. Of a repeated field the last value counts. Raises
    `InvalidInput`."""
    try:
        text = (await request.body()).decode()
        fields = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except ValueError as error:
        raise InvalidInput("not a form", hint="open the page again, and send its form") from error
    request.state.form = dict(fields)


def form_of(request: Request) -> dict[str, str]:
    """The fields that `read_form` parsed."""
    form: dict[str, str] = request.state.form
    return form
