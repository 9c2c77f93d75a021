"""How much is tried: little in the quick run, everything in the system tests."""

from __future__ import annotations

import os
from datetime import date

FULL = bool(os.environ.get("GPUBROKER_TEST_FULL"))
# 0 or 1: which half of many like cases a full run tries, in all its processes; the other half is the next day's.
HALF = int(os.environ.setdefault("GPUBROKER_TEST_HALF", str(date.today().toordinal() % 2)))
# 0 to 2: which third of those that take seconds each.
THIRD = int(os.environ.setdefault("GPUBROKER_TEST_THIRD", str(date.today().toordinal() % 3)))
# 0 to 3: which quarter of those that take longer still.
QUARTER = int(os.environ.setdefault("GPUBROKER_TEST_QUARTER", str(date.today().toordinal() % 4)))
