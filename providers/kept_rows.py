"""The rows of a document, stored for polls that find it unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

from broker.core.market.offers import Offer, SkippedRow
from providers.rows import Found

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@cache
def _adapter() -> TypeAdapter[list[Offer | SkippedRow]]:
    from pydantic import TypeAdapter

    return TypeAdapter(list[Offer | SkippedRow])


def rows_to_keep(rows: Sequence[Offer | SkippedRow]) -> bytes:
    """The rows in the form that `kept_rows` reads."""
    return _adapter().dump_json(list(rows))


def kept_rows(content: bytes, now: datetime) -> Found:
    """The rows of a document that its server calls unchanged at ``now`` (UTC), so that its prices hold as of then."""
    for row in _adapter().validate_json(content):
        yield replace(row, as_of=now) if isinstance(row, Offer) else row
