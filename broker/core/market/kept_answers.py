"""Documents that a poll need not read again: what an adapter made of each, and by what its server knows that version.

A poll lends its adapter the answers that earlier polls of any process kept, and stores the new ones with its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """One document as last read. ``etag`` and ``last_modified``: the server's headers, at least one not empty;
    ``content``: what the adapter needs of it, in a form that it alone reads."""

    etag: str
    last_modified: str
    content: bytes


@dataclass(slots=True)
class LentAnswers:
    """The answers of one poll by address: ``earlier`` ones, and those that it ``read`` anew."""

    earlier: Mapping[str, KeptAnswer] = field(default_factory=dict)
    read: dict[str, KeptAnswer] = field(default_factory=dict)


_ANSWERS: ContextVar[LentAnswers | None] = ContextVar("kept_answers", default=None)


@contextmanager
def lent(answers: LentAnswers) -> Iterator[None]:
    """Lends these to the adapter that is asked in this thread."""
    token = _ANSWERS.set(answers)
    try:
        yield
    finally:
        _ANSWERS.reset(token)


def here() -> LentAnswers:
    """The answers lent to this thread; outside a poll empty ones, which are not stored."""
    return _ANSWERS.get() or LentAnswers()
