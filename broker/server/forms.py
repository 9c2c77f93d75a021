"""The fields of HTML forms in requests, from the page and from the login of programs."""

from __future__ import annotations

from urllib.parse import parse_qsl

from fastapi import Request

from broker.core.errors import InvalidInput

_MOST_FIELDS = 100  # a form of policies has two for each file


async def read_form(request: Request) -> None:
    """Parse the form's fields into ``request.state.form``. Of a repeated field the last value counts. Raises
    `InvalidInput`."""
    try:
        text = (await request.body()).decode()
        found = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError as error:
        raise InvalidInput("not a form", hint="open the page again, and send its form") from error
    request.state.form = dict(found)


def form_of(request: Request) -> dict[str, str]:
    """The fields that `read_form` parsed."""
    form: dict[str, str] = request.state.form
    return form
