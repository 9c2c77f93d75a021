"""Ctrl-C while something is done that must not be left half told: money held, a job admitted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def ctrl_c_waits() -> Iterator[Callable[[], bool]]:
    """Within the block the first Ctrl-C is only noted; a second one interrupts as ever, for a store that hangs.

    Gives whether it was pressed, for whoever goes on after the block. Outside a program's main thread, where no signal
    arrives, it changes nothing.
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
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)  # None: not one of Python's own
