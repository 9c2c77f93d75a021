"""The number of tested cases: few in the quick run, more in the system tests."""

import os
from datetime import date

FULL = bool(os.environ.get("GPUBROKER_TEST_FULL"))
_DAY = int(os.environ.setdefault("GPUBROKER_TEST_DAY", str(date.today().toordinal())))


def part(of: int) -> int:
    """The part of many similar cases that a full run tests today, in all its processes: from 0 to ``of`` - 1."""
    return _DAY % of
