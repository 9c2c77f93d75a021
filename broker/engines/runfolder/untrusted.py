"""Reads documents that a node wrote.

A node may be faulty or hostile, so every document is limited in size and read field by field.

An unreadable document counts as missing. Stopping, limits and settlement then follow from the engine and from the
broker's own records, never from a document that a node can falsify. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from broker.agent.clock import from_text
from broker.core.events.agent_events import FROM_AGENT
from broker.core.events.events import EventBody
from broker.core.events.outcomes import Cause
from broker.engines.runfolder.mailbox import Dated, ExitRecord

MAX_DOCUMENT = 8 * 1024 * 1024
"""Maximum bytes of a document: about 40,000 journal entries. Documents of a correct agent are far smaller."""
_MAX_ENTRY = 16 * 1024  # bytes of one journal entry
_MAX_TEXT = 2000  # characters of evidence
_MAX_WORD = 200  # characters of a phase
_MAX_STEP = 2**63
_STATUSES = range(-256, 1024)


def document(content: bytes) -> dict[str, Any] | None:
    """The JSON object; None if the content is incomplete, too large, nested too deep, or not an object."""
    if len(content) > MAX_DOCUMENT:
        return None
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        return None
    return parsed if isinstance(parsed, dict) else None


def journal(values: Mapping[str, Any] | None, entries_read: int) -> tuple[Dated, ...]:
    """The entries after the first ``entries_read``, up to the first one that an agent must not write.

    The rest is ignored, so that the number of entries read stays correct.
    """
    entries = (values or {}).get("entries")
    results = []
    for entry in entries[entries_read:] if isinstance(entries, list) else []:
        parsed = _entry(entry)
        if parsed is None:
            break
        results.append(parsed)
    return tuple(results)


def exit_record(values: Mapping[str, Any] | None) -> ExitRecord | None:
    """The agent's record of its end; None if its cause or time is invalid.

    Other invalid fields are dropped individually.
    """
    try:
        cause, at = Cause((values or {})["cause"]), from_text((values or {})["at"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    status = (values or {}).get("exit_status")
    return ExitRecord(
        at,
        cause,
        status if isinstance(status, int) and not isinstance(status, bool) and status in _STATUSES else None,
        text((values or {}).get("evidence"), _MAX_TEXT),
        step((values or {}).get("step")),
    )


def step(value: object) -> int | None:
    """A training step, or None if the value is invalid."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_STEP else None


def text(value: object, max_length: int = _MAX_WORD) -> str:
    """Text without control characters, shortened to ``max_length`` characters; empty if the value is not text."""
    return "".join(c if c.isprintable() else " " for c in value[:max_length]) if isinstance(value, str) else ""


@cache
def _body() -> TypeAdapter[EventBody]:
    """Built at the first event, because plans import this module and read no events."""
    return TypeAdapter(EventBody)


def _entry(values: object) -> Dated | None:
    try:
        if not isinstance(values, dict) or len(json.dumps(values)) > _MAX_ENTRY:
            return None
        body = _body().validate_python({name: value for name, value in values.items() if name != "at"}, extra="forbid")
        at = from_text(values["at"])
    except (ValidationError, KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return None
    figures = [getattr(body, name, None) for name in ("step", "size", "seconds")]
    in_range = all(figure is None or 0 <= figure < _MAX_STEP for figure in figures)
    return Dated(at, body) if isinstance(body, FROM_AGENT) and in_range else None
