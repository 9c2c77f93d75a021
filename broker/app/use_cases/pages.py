"""Lists in pages: which rows, in which order, and the cursor of the next page."""

import base64
import json
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Annotated, Any

from pydantic import Field, create_model

from broker.app.documents import Result
from broker.app.use_cases.table import Listing
from broker.core.errors import InvalidInput
from broker.core.policy.approvals import matches_any

MAX_ROWS = 200
"""The most rows of a page."""
_MAX_INTEGER = 2**63 - 1  # that a database takes
Limit = Annotated[int, Field(ge=1, le=MAX_ROWS, description="Rows of the page.")]
Cursor = Annotated[str | None, Field(max_length=500, description="`next_cursor` of the page before.")]
PageLimit = Annotated[int | None, Field(ge=1, le=1_000, description="Rows of the page. Default: all.")]
Names = Annotated[list[str] | None, Field(max_length=100, description="Only rows with one of these, or patterns.")]


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
        raise _bad_cursor()
    if any(isinstance(part, int) and abs(part) > _MAX_INTEGER for part in place):
        raise _bad_cursor()
    return tuple(place)


def cursor_time(text: str) -> datetime:
    """The time of a cursor. Raises `InvalidInput`."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise _bad_cursor()
    return at


def _bad_cursor() -> InvalidInput:
    return InvalidInput("not a cursor of this list", where="cursor", hint="take `next_cursor` of the page before")


_classes: dict[type[Any], type[Any]] = {}


def page_class(document: type[Any]) -> type[Any]:
    """The class of pages of a list: with ``next_cursor``, null on the last page."""
    if document not in _classes:
        name = f"{document.__name__.removesuffix('List')}Page"
        made = create_model(name, __base__=document, __doc__=document.__doc__, next_cursor=(str | None, ...))
        _classes[document] = made
    return _classes[document]


def page_of(
    page: type[Any], document: Result, listing: Listing, limit: int | None = None, cursor: str | None = None,
    **filters: Sequence[str] | None,
) -> Result:  # fmt: skip
    """The page of a list that begins behind ``cursor``, of rows that match all ``filters``: names or patterns by field.

    It begins behind the row that ended the page before; if that has gone, at its place. Raises `InvalidInput` for a bad
    cursor.
    """
    wanted = [item for item in filters.items() if item[1]]
    rows = [row for row in getattr(document, listing.rows) if all(_has(row, *item) for item in wanted)]
    names = [str(getattr(row, listing.key, "")) for row in rows]
    start = 0
    if cursor is not None:
        last, place = parse_cursor(cursor, str, int)
        start = max(place, 0)
        if listing.key and last in names and names[start - 1 : start] != [last]:
            start = len(names) - names[::-1].index(last)
    end = len(rows) if limit is None else start + limit
    next_cursor = cursor_of(names[end - 1], end) if end < len(rows) else None
    fields = {name: getattr(document, name) for name in type(document).model_fields}
    made: Result = page.model_construct(**fields | {listing.rows: rows[start:end], "next_cursor": next_cursor})
    return made


def _has(row: object, field: str, patterns: Sequence[str] | None) -> bool:
    value: Any = getattr(row, field) if hasattr(row, field) else getattr(row, f"{field}s")  # a role: of its roles
    values = value if isinstance(value, list | dict) else [value]
    texts = [str(one.value if isinstance(one, Enum) else one) for one in values if one is not None]
    return any(matches_any(patterns or (), text) for text in texts)
