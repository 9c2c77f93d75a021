"""The agent's clock: the machine's, or the sandbox's, which runs faster.

Times are UTC; waits are in wall-clock seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any


def wall_now() -> datetime:
    return datetime.now(timezone.utc)


def to_text(at: datetime) -> str:
    """ISO 8601 in UTC with microseconds, so that the texts sort by time."""
    return at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_text(text: str) -> datetime:
    """The inverse of `to_text`; any ISO 8601 time with an offset. Raises ValueError."""
    at = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    if at.tzinfo is None:
        raise ValueError(f"a time without an offset: {text!r}")
    return at.astimezone(timezone.utc)


@dataclass(frozen=True)
class NodeClock:
    """From ``origin`` (wall clock) on, time runs ``scale`` times as fast, starting at ``starts_at``.

    None: the wall clock.

    The values equal those of the broker's scaled clock, so that both agree on the time without communication.
    """

    origin: datetime | None = None
    starts_at: datetime | None = None
    scale: float = 1.0

    def at(self, wall: datetime) -> datetime:
        """The time on this clock at that wall-clock time."""
        if self.origin is None or self.starts_at is None:
            return wall
        return self.starts_at + (wall - self.origin) * self.scale

    def now(self) -> datetime:
        return self.at(wall_now())

    def wall_seconds_until(self, at: datetime) -> float:
        """Wall-clock seconds until this clock shows ``at``; negative if past."""
        return (at - self.now()) / timedelta(seconds=1) / self.scale

    def to_json(self) -> dict[str, Any] | None:
        if self.origin is None or self.starts_at is None:
            return None
        return {"origin": to_text(self.origin), "starts_at": to_text(self.starts_at), "scale": self.scale}

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None) -> NodeClock:
        if values is None:
            return cls()
        return cls(from_text(values["origin"]), from_text(values["starts_at"]), float(values["scale"]))
