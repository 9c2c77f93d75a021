"""Work counted in steps instead of seconds: as many on any machine, however busy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def calls(work: Callable[[], object]) -> int:
    """How many functions the work calls, those written in C included, once what is kept between two times is kept."""
    made = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    work()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made
