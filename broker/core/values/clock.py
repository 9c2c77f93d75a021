"""Clocks. Pure code takes ``now`` as a value; code that waits or records times takes a `Clock`.

All times are timezone-aware and in UTC.
"""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """The source of time for the shell."""

    @property
    def scale(self) -> float:
        """Broker seconds per second of the wall clock: 1, except in a sandbox that runs faster."""

    def now(self) -> datetime:
        """The current time (UTC, timezone-aware)."""

    def sleep(self, seconds: float) -> None:
        """Wait that many seconds *of the wall clock*."""


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The machine's clock."""

    scale: float = 1.0

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class ScaledClock:
    """A sandbox clock: from ``origin`` (wall) on, time runs ``scale`` times as fast, starting at ``starts_at``.

    Every process of one sandbox (broker, machines, agents) builds the same clock from the same three values, so they
    agree on the time without communication.
    """

    origin: datetime
    starts_at: datetime
    scale: float

    def now(self) -> datetime:
        return self.starts_at + (datetime.now(UTC) - self.origin) * self.scale

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(slots=True)
class ManualClock:
    """A clock that moves only on request: for tests and replays. ``sleep`` moves it."""

    time: datetime
    scale: float = 1.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(timedelta(seconds=seconds * self.scale))

    def advance(self, by: timedelta) -> None:
        """Move forward. Raises ValueError for a step backwards: use ``time`` to jump."""
        if by < timedelta(0):
            raise ValueError("the clock does not go backwards")
        self.time += by
