"""Turns off garbage collection while many objects without reference cycles are created."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Within the block no thread collects reference cycles; the block should last a few seconds at most. After nested
    or concurrent blocks the collector is on again. It may be switched on early, which costs only time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
