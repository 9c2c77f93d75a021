"""An HTTP document that is downloaded only if it changed since an earlier poll (RFC 9110, conditional requests), and
the rows of such a document.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

from broker.core.market import cached_answers
from broker.core.market.cached_answers import CachedAnswer
from broker.core.market.offers import Offer, SkippedRow
from providers.rows import OfferRows

if TYPE_CHECKING:
    from pydantic import TypeAdapter


_NOT_MODIFIED = 304


class ConditionalRead:
    """``address``: of the document, without a login, because it is stored. Outside a poll nothing is kept."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._answers = cached_answers.current_answers()
        self._kept = self._answers.earlier.get(address)

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's conditions; none if nothing is kept."""
        earlier = self._kept
        if earlier is None:
            return {}
        conditions = {"If-None-Match": earlier.etag, "If-Modified-Since": earlier.last_modified}
        return {name: value for name, value in conditions.items() if value}

    def unchanged(self, status: int) -> bytes | None:
        """The kept document, if the server's status says that it is unchanged."""
        return zlib.decompress(self._kept.content) if self._kept is not None and status == _NOT_MODIFIED else None

    def keep(self, headers: Mapping[str, str], content: bytes) -> None:
        """Keep the rows of a complete answer with these headers; nothing if they name no version."""
        etag, modified = headers.get("ETag", ""), headers.get("Last-Modified", "")
        if etag or modified:
            self._answers.read[self._address] = CachedAnswer(etag, modified, zlib.compress(content))


@cache
def _adapter() -> TypeAdapter[list[Offer | SkippedRow]]:
    from pydantic import TypeAdapter

    return TypeAdapter(list[Offer | SkippedRow])


def dump_rows(rows: Sequence[Offer | SkippedRow]) -> bytes:
    """The rows in the form that `load_rows` reads."""
    return _adapter().dump_json(list(rows))


def load_rows(content: bytes, now: datetime) -> OfferRows:
    """The rows of a document that its server calls unchanged at ``now`` (UTC), so that its prices hold as of then."""
    for row in _adapter().validate_json(content):
        yield replace(row, as_of=now) if isinstance(row, Offer) else row
