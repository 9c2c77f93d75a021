"""CPUs of processes that this process starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def bound_to(cpus: Sequence[int]) -> Iterator[None]:
    """Binds processes that this thread starts in the block, and their children, to these CPUs; if none are given, to
    the thread's own.
    """
    if not cpus or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
