"""Reads a page of an answer row by row, with the SDK's own message types, when the SDK could not read it as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from broker.core.market.offers import SkippedRow
from providers.rows import short


def unreadable() -> tuple[type[Exception], ...]:
    """The exceptions of Google's parsers: their own error, and those that they pass on unchanged."""
    from google.protobuf.json_format import Error

    return Error, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError


def row_by_row(body: bytes, client: str, answer: str, key: str, scoped: bool, unread: list[SkippedRow]) -> Any:
    """The answer without the rows that cannot be read; those are added to ``unread``. ``answer``: the name of the
    SDK's message. Raises one of `unreadable` when nothing of it makes sense."""
    document = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError(f"not a JSON object: {short(document)}")
    page = _message(client, answer)
    if scoped:
        scopes: Any = {}
        for scope, inner in _scopes(document.get("items"), unread):
            scoped_list = page.DESCRIPTOR.fields_by_name["items"].message_type.fields_by_name["value"]
            row_type = _message_type(scoped_list.message_type.fields_by_camelcase_name[key])
            scopes[scope] = {key: list(_readable_rows(inner.get(key), row_type, unread))}
        fields = {"items": scopes}
    else:
        fields = {
            key: list(
                _readable_rows(document.get(key), _message_type(page.DESCRIPTOR.fields_by_camelcase_name[key]), unread)
            )
        }
    _parse_into({**fields, "nextPageToken": document.get("nextPageToken")}, page)
    return page


def _message(client: str, answer: str) -> Any:
    types = import_module(f"google.cloud.{'billing_v1' if client == 'CloudCatalogClient' else 'compute_v1'}.types")
    wrapper = getattr(types, answer)
    return wrapper.pb(wrapper())


def _scopes(items: object, unread: list[SkippedRow]) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(items, dict):
        if items is not None:
            raise ValueError(f"no places in the answer: {short(items)}")
        return
    for scope, inner in items.items():
        if isinstance(inner, dict):
            yield scope, inner
        else:
            unread.append(SkippedRow("malformed_row", f"{short(scope)}: {short(inner)}"))


def _readable_rows(rows: object, row_type: Any, unread: list[SkippedRow]) -> Iterator[dict[str, Any]]:
    if rows is None:
        return
    if not isinstance(rows, list):
        unread.append(SkippedRow("malformed_row", f"not a list of rows: {short(rows)}"))
        return
    for row in rows:
        try:
            if not isinstance(row, dict):
                raise ValueError(f"not a JSON object: {short(row)}")
            _parse_into(row, row_type())
        except unreadable() as error:
            unread.append(SkippedRow("malformed_row", " ".join(str(error).split())[:200] or type(error).__name__))
        else:
            yield row


def _parse_into(document: dict[str, Any], message: Any) -> None:
    from google.protobuf import json_format

    json_format.ParseDict(document, message, ignore_unknown_fields=True)


def _message_type(field: Any) -> Any:
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(field.message_type)
