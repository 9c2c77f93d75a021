"""The garbage collector, kept from searching a hundred thousand objects for cycles that they do not have."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Collects no cycles meanwhile, in no thread: for a few seconds at most. Nested and concurrent uses leave it on at
    the end, which costs time, never memory for long."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
