"""Waiting for something to happen in other processes."""

from __future__ import annotations

import time
from collections.abc import Iterator

# Against a wait without end, not a measure of speed: on a busy machine all takes many times as long as on an idle one.
LONGEST = 240.0  # seconds
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5  # seconds between two looks


def looks(what: str, seconds: float = LONGEST) -> Iterator[None]:
    """One turn a look; fails if ``what`` has not happened after so many seconds of the wall clock. Looking takes at
    most a fifth of the time: a look may be a pass of a reconciler, and what is waited for needs the processor itself.
    """
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        yield
        now = time.monotonic()
        assert now < deadline, f"waited {seconds:.0f} s in vain: {what}"
        time.sleep(min(max(_SHORTEST_PAUSE, 4 * (now - began)), _LONGEST_PAUSE))
