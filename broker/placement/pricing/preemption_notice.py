"""How long before they take a spot machine back providers say so, as they document it."""

from __future__ import annotations

from datetime import timedelta

# AWS: EC2 user guide, "Spot Instance interruption notices". Google Cloud: Compute Engine, "Preemption process". Azure:
# "Scheduled Events for Linux VMs", Preempt: at least. The agent on the node reckons with the same.
NOTICE = {
    "aws": timedelta(minutes=2),
    "gcp": timedelta(seconds=30),
    "azure": timedelta(seconds=30),
}
