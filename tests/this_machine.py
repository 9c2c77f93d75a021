"""This machine, as the local engine divides it."""

import os

CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""The number of CPUs that a job requests to have the whole machine."""
