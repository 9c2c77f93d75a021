"""Notice before a spot preemption, as providers document it."""

from __future__ import annotations

from datetime import timedelta

# AWS: EC2 user guide, "Spot Instance interruption notices". Google Cloud: Compute Engine, "Preemption process". Azure:
# "Scheduled Events for Linux VMs", Preempt (minimum). The agent uses the same values.
NOTICE = {
    "aws": timedelta(minutes=2),
    "gcp": timedelta(seconds=30),
    "azure": timedelta(seconds=30),
}
