"""Paged lists. A cursor is a place in the sort order, not a row number, so that rows added or removed meanwhile are
neither repeated nor skipped. A cursor grants no permission: each page is filtered again."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Any

from broker.app.results.jobs import JobList
from broker.app.results.offers import OfferList
from broker.core.errors import InvalidInput

MOST = 200
"""The most rows of a page."""


class JobPage(JobList):
    """``next_cursor``: that of the next page; null on the last page."""

    next_cursor: str | None


class OfferPage(OfferList):
    """Offers, cheapest GPU first. ``matching``: their number on all pages."""

    next_cursor: str | None


def cursor_of(*place: str | int) -> str:
    """The cursor of a place in the order."""
    return base64.urlsafe_b64encode(json.dumps(place, separators=(",", ":")).encode()).decode().rstrip("=")


def place_of(cursor: str, *form: type) -> tuple[Any, ...]:
    """The place that a cursor encodes, with fields of the types ``form``. Raises `InvalidInput` for an invalid one."""
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except ValueError:  # no base64, no UTF-8, no JSON
        place = None
    if not isinstance(place, list) or [type(part) for part in place] != list(form):
        raise InvalidInput("not a cursor of this list", where="cursor", hint="take `next_cursor` of the page before")
    return tuple(place)


def moment_of(text: str) -> datetime:
    """The time of a cursor. Raises `InvalidInput`."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise InvalidInput("not a cursor of this list", where="cursor", hint="take `next_cursor` of the page before")
    return at
