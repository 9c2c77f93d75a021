"""Cursors of lists that come in pages."""

import base64
import json
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from broker.core.errors import InvalidInput

MAX_ROWS = 200
"""The most rows of a page."""
Limit = Annotated[int, Field(ge=1, le=MAX_ROWS, description="Rows of the page.")]
Cursor = Annotated[str | None, Field(max_length=500, description="`next_cursor` of the page before.")]


def cursor_of(*place: str | int) -> str:
    """The cursor of a place in the order."""
    return base64.urlsafe_b64encode(json.dumps(place, separators=(",", ":")).encode()).decode().rstrip("=")


def parse_cursor(cursor: str, *form: type) -> tuple[Any, ...]:
    """The place that a cursor encodes, with fields of the types ``form``. Raises `InvalidInput` for an invalid one."""
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except ValueError:  # no base64, no UTF-8, no JSON
        place = None
    if not isinstance(place, list) or [type(part) for part in place] != list(form):
        raise InvalidInput("not a cursor of this list", where="cursor", hint="take `next_cursor` of the page before")
    return tuple(place)


def cursor_time(text: str) -> datetime:
    """The time of a cursor. Raises `InvalidInput`."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise InvalidInput("not a cursor of this list", where="cursor", hint="take `next_cursor` of the page before")
    return at
