"""Delay Ctrl-C during a step whose result must be printed: money held, a job admitted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def ctrl_c_waits() -> Iterator[Callable[[], bool]]:
    """Within the block the first Ctrl-C is only recorded; a second one interrupts as usual, in case the store hangs.

    Yields a function that says whether Ctrl-C was pressed. Outside the main thread, which receives no signals, nothing
    changes.
    """
    pressed = False

    def note(number: int, frame: object) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: pressed
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)  # None: the handler was not installed from Python
