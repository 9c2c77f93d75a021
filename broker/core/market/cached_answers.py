"""Documents that a poll need not download again: the content that the adapter extracted from each, and the HTTP headers
that identify its version.

A poll gives its adapter the answers that earlier polls of any process stored, and stores the new ones with its result.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """One document as last read. ``etag`` and ``last_modified``: the server's headers, at least one not empty;
    ``content``: what the adapter needs of it, in the adapter's own format."""

    etag: str
    last_modified: str
    content: bytes


@dataclass(slots=True)
class PollAnswers:
    """The answers of one poll by address: ``earlier`` ones, and those that it has ``read`` itself."""

    earlier: Mapping[str, CachedAnswer] = field(default_factory=dict)
    read: dict[str, CachedAnswer] = field(default_factory=dict)


_ANSWERS: ContextVar[PollAnswers | None] = ContextVar("kept_answers", default=None)


@contextmanager
def provide_answers(answers: PollAnswers) -> Iterator[None]:
    """Makes these answers available, within the block, to the adapter that is called in this thread."""
    token = _ANSWERS.set(answers)
    try:
        yield
    finally:
        _ANSWERS.reset(token)


def current_answers() -> PollAnswers:
    """The answers available in this thread. Outside of a poll: no answers, and what is added is not stored."""
    return _ANSWERS.get() or PollAnswers()
