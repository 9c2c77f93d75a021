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
    told = json.loads(body)
    if not isinstance(told, dict):
        raise ValueError(f"not a JSON object: {short(told)}")
    page = _message(client, answer)
    if scoped:
        kept: Any = {}
        for scope, inner in _scopes(told.get("items"), unread):
            scoped_list = page.DESCRIPTOR.fields_by_name["items"].message_type.fields_by_name["value"]
            row_type = _type_of(scoped_list.message_type.fields_by_camelcase_name[key])
            kept[scope] = {key: list(_readable(inner.get(key), row_type, unread))}
        rest = {"items": kept}
    else:
        rest = {key: list(_readable(told.get(key), _type_of(page.DESCRIPTOR.fields_by_camelcase_name[key]), unread))}
    _read({**rest, "nextPageToken": told.get("nextPageToken")}, page)
    return page


def _message(client: str, answer: str) -> Any:
    types = import_module(f"google.cloud.{'billing_v1' if client == 'CloudCatalogClient' else 'compute_v1'}.types")
    plus = getattr(types, answer)
    return plus.pb(plus())


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


def _readable(rows: object, row_type: Any, unread: list[SkippedRow]) -> Iterator[dict[str, Any]]:
    if rows is None:
        return
    if not isinstance(rows, list):
        unread.append(SkippedRow("malformed_row", f"not a list of rows: {short(rows)}"))
        return
    for row in rows:
        try:
            if not isinstance(row, dict):
                raise ValueError(f"not a JSON object: {short(row)}")
            _read(row, row_type())
        except unreadable() as error:
            unread.append(SkippedRow("malformed_row", " ".join(str(error).split())[:200] or type(error).__name__))
        else:
            yield row


def _read(told: dict[str, Any], message: Any) -> None:
    from google.protobuf import json_format

    json_format.ParseDict(told, message, ignore_unknown_fields=True)


def _type_of(field: Any) -> Any:
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(field.message_type)
