"""How much is tried: little in the quick run, everything in the system tests."""

from __future__ import annotations

import os

FULL = bool(os.environ.get("GPUBROKER_TEST_FULL"))
