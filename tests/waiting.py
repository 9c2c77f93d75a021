"""Waits for events in other processes."""

import time
from collections.abc import Iterator

# Limits an endless wait; no measure of speed: on a busy machine everything takes many times as long as on an idle one.
LONGEST = 240.0  # seconds
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 5.0  # seconds between two checks


def looks(what: str, seconds: float = LONGEST) -> Iterator[None]:
    """One iteration per check; fails if ``what`` has not happened after ``seconds`` of the wall clock.

    Checks take at most a fifth of the time: a check may be a tick of a reconciler, and the awaited process needs the
    processor, too.
    """
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        yield
        now = time.monotonic()
        assert now < deadline, f"waited {seconds:.0f} s in vain: {what}"
        time.sleep(min(max(_SHORTEST_PAUSE, 4 * (now - began)), _LONGEST_PAUSE))
