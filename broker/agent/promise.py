"""Checks that checkpoints are saved as often as the job promises (``checkpoint.every``); reports once if they
are not.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Callable

from broker.agent.clock import NodeClock
from broker.agent.journal import AttemptJournal
from broker.agent.names import escape_unprintable

_INTERVALS = 3  # intervals without a checkpoint until it is reported
_NAMES = 3


class CheckpointPromise:
    """``every``: seconds of the job's clock; None: nothing is promised.

    ``patience``: wall-clock seconds that a program may take to start. ``saved``: returns whether this attempt has saved
    a checkpoint. ``unsaved``: returns the names of entries in the folder of checkpoints that are not saved.
    """

    def __init__(
        self,
        every: float | None,
        patience: float,
        clock: NodeClock,
        journal: AttemptJournal,
        saved: Callable[[], bool],
        unsaved: Callable[[], list[str]],
    ) -> None:
        self._every, self._patience, self._clock, self._journal = every, patience, clock, journal
        self._saved, self._unsaved = saved, unsaved
        self._began: tuple[datetime, float] | None = None
        self._said = False

    def start(self) -> None:
        """Record that the command has started."""
        self._began = self._clock.now(), time.monotonic()

    def look(self, *, ended: bool = False) -> None:
        """Write a journal entry if no checkpoint was saved for three intervals, or, at the end, if none was saved at
        all although there was time for one.
        """
        if self._every is None or self._began is None or self._said or self._saved():
            return
        began, wall = self._began
        elapsed = (self._clock.now() - began).total_seconds()
        # A sandbox clock runs faster, but programs do not start faster on it.
        patience = self._patience if not ended or self._clock.scale != 1 else 0.0
        if elapsed < self._every * (1 if ended else _INTERVALS) or time.monotonic() - wall < patience:
            return
        self._said = True
        unfinished = [escape_unprintable(name)[:100] for name in self._unsaved()[:_NAMES]]
        self._journal.append(
            "checkpoints_missing", every=self._every, seconds=round(elapsed, 3), ended=ended, unfinished=unfinished
        )
