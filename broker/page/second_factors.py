"""Setting up one's second factor, and removing it. Both take the password again."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from broker.app.access import second_factors
from broker.page.drawing import drawn, shown_error
from broker.page.people import confirmed
from broker.page.visitors import By, Form
from broker.server.callers import TooManyWrongTokens

_TITLE = "Second factor"
_EDGE = 4  # light modules around the picture, which readers need


def setting_up(by: By, request: Request, form: Form) -> Response:
    """Begin a new second factor; the app takes it as a picture or a key. Codes are required once the first one is
    confirmed."""
    confirmed(by, request, form)
    new = second_factors.begin(by.caller.broker, by.caller.access.person.name, origin=by.caller.origin)
    letters = " ".join(new.letters[at : at + 4] for at in range(0, len(new.letters), 4))
    size, path = _picture(new.uri)
    values = {"letters": letters, "uri": new.uri, "size": size, "path": path, "trouble": ""}
    return drawn("second_factor.html", by, values, title=_TITLE, at="/me")


def confirming(by: By, request: Request, form: Form) -> Response:
    """Confirm the first code: codes are required from now on. Shows the recovery codes, once; all sessions end. Raises
    `TooManyWrongTokens` after too many wrong codes."""
    broker, name, code = by.caller.broker, by.caller.access.person.name, form.get("code", "")
    wrong = request.app.state.wrong_codes
    if wait := wrong.wait(name, code):
        raise TooManyWrongTokens(wait)
    try:
        codes = second_factors.confirm(broker, name, code, origin=by.caller.origin)
    except second_factors.WrongCode as error:
        wrong.wrong(name, code)
        values = {"letters": "", "uri": "", "size": 0, "path": "", "trouble": shown_error(error)}
        return drawn("second_factor.html", by, values, title=_TITLE, at="/me", status=422)
    return drawn("recovery_codes.html", None, {"codes": codes}, title="Recovery codes")


def removing(by: By, request: Request, form: Form) -> Response:
    """Remove one's own second factor; needs a code, and ends all sessions."""
    confirmed(by, request, form, code=form.get("code", ""))
    second_factors.remove(by.caller.broker, by.caller.access.person.name, origin=by.caller.origin)
    return RedirectResponse("/sign-in", 303)


def _picture(text: str) -> tuple[int, str]:
    """A QR code as the path of an SVG, and its size in modules."""
    import segno

    rows = segno.make(text, error="m", micro=False).matrix
    dark = (f"M{x + _EDGE} {y + _EDGE}h1v1h-1z" for y, row in enumerate(rows) for x, one in enumerate(row) if one)
    return len(rows) + 2 * _EDGE, "".join(dark)
