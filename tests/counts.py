"""The number of tested cases: few in the quick run, all in the system tests."""

from __future__ import annotations

import os
from datetime import date

FULL = bool(os.environ.get("GPUBROKER_TEST_FULL"))
# 0 or 1: the half of many similar cases that a full run tests, in all its processes; the next day tests the other half.
HALF = int(os.environ.setdefault("GPUBROKER_TEST_HALF", str(date.today().toordinal() % 2)))
# 0 to 2: the third of cases that take seconds each.
THIRD = int(os.environ.setdefault("GPUBROKER_TEST_THIRD", str(date.today().toordinal() % 3)))
# 0 to 3: the quarter of cases that take even longer.
QUARTER = int(os.environ.setdefault("GPUBROKER_TEST_QUARTER", str(date.today().toordinal() % 4)))
