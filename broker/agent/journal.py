"""The agent's journal: its events, in order, for the broker to fold into the job's events.

Entries have the shape of the event bodies in `broker.core.events.events` (those of ``FROM_AGENT``) plus ``at``. The
whole document is rewritten with each change; entries never change or disappear, so a reader may remember how many it
has read.
"""

from __future__ import annotations

import json
import threading
from datetime import datetime, timedelta
from typing import Any

from broker.agent.clock import NodeClock, to_text, wall_now
from broker.agent.formats import VERSION
from broker.agent.masking import NO_MASK, Mask
from broker.agent.names import escape_unprintable
from broker.agent.store import ObjectFolder

# From this number of entries on, checkpoint entries are thinned to at most one a minute, so that the document stays
# small.
_THIN_FROM = 500
_REPEAT_TROUBLE_AFTER = timedelta(minutes=10)
_LARGEST_ENTRY = 15 * 1024  # bytes; the broker reads at most 16 KiB
_EXACT = ("kind", "at", "checkpoint", "since", "until", "terminates_at")
_LONGEST_TEXT, _MAX_VALUES = 1000, 20


class AttemptJournal:
    """Thread-safe; `flush` writes it. ``path`` None keeps it in memory (ranks above 0). ``mask``: for all texts but
    names of checkpoints."""

    def __init__(self, store: ObjectFolder, path: str | None, clock: NodeClock, mask: Mask = NO_MASK) -> None:
        self._store, self._path, self._clock, self._mask = store, path, clock, mask
        self._lock = threading.Lock()
        self._entries: list[dict[str, Any]] = []
        self._written = 0
        self._last_save: datetime | None = None
        self._deferred: dict[str, Any] | None = None
        self._troubles: dict[str, datetime] = {}  # when each was recorded

    def append(self, kind: str, **fields: Any) -> None:
        with self._lock:
            self._append({"kind": kind, "at": to_text(self._clock.now()), **fields})

    def checkpoint_saved(self, checkpoint: str, step: int | None, size: int, seconds: float) -> None:
        entry = {
            "kind": "checkpoint_saved",
            "at": to_text(self._clock.now()),
            "checkpoint": checkpoint,
            "step": step,
            "size": size,
            "seconds": round(seconds, 3),
        }
        with self._lock:
            pause = timedelta(minutes=len(self._entries) / _THIN_FROM)
            if len(self._entries) >= _THIN_FROM and self._last_save and wall_now() - self._last_save < pause:
                self._deferred = entry
                return
            self._last_save, self._deferred = wall_now(), None
            self._append(entry)

    def trouble(self, kind: str, because: str) -> None:
        """Record a problem with checkpoints or results, once, and every ten minutes while it lasts."""
        with self._lock:
            now = wall_now()
            if now - self._troubles.get(because, now - _REPEAT_TROUBLE_AFTER) < _REPEAT_TROUBLE_AFTER:
                return
            self._troubles[because] = now
            self._append({"kind": kind, "at": to_text(self._clock.now()), "because": because})

    def close(self) -> None:
        """End the journal; always records the last checkpoint."""
        with self._lock:
            if self._deferred:
                self._append(self._deferred)
                self._deferred = None

    def flush(self) -> None:
        """Write the journal if it has changed. Raises StoreTrouble; then the next call writes it."""
        if self._path is None:
            return
        with self._lock:
            entries = list(self._entries)
        if len(entries) > self._written:
            self._store.write_json(self._path, {"version": VERSION, "entries": entries})
            self._written = len(entries)

    def _append(self, entry: dict[str, Any]) -> None:
        """Add the entry in a form that the broker accepts: it stops reading at an entry that is too large or not
        valid Unicode."""
        limit = _LONGEST_TEXT
        while len(json.dumps(printable := self._printable(entry, limit))) > _LARGEST_ENTRY:
            limit //= 2
        self._entries.append(printable)

    def _printable(self, value: Any, limit: int, *, own_names: bool = False) -> Any:
        """``own_names``: those of the value are the program's, and not the journal's."""
        if isinstance(value, str):
            return escape_unprintable(self._mask.text(value))[:limit]
        if isinstance(value, list):
            return [self._printable(item, limit) for item in value[:_MAX_VALUES]]
        if isinstance(value, dict):
            return {
                self._mask.text(name) if own_names else name: item
                if name in _EXACT
                else self._printable(item, limit, own_names=name == "metrics")
                for name, item in value.items()
            }
        return value
