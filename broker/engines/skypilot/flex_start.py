"""Google's flex start: machines that are started once there is capacity, for a requested time of up to seven days, at
separate prices. Pure.

The machine type of such an offer ends in `SUFFIX` (`providers/gcp/provider.py`). SkyPilot requests its machines through
a managed instance group with a resize request of `requested_run_duration`: Google starts all of them or none, and
deletes them at the end of that time. Limits: Compute Engine documentation, "About Flex-start VMs", read 2026-11-26: the
run duration is ten minutes to seven days.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from broker.core.market.offers import Offer
from broker.core.ports import Launch

SUFFIX = "+flex-start"
_SHORTEST, _LONGEST = timedelta(minutes=10), timedelta(days=7)
# Added to the job's time: Google's time begins with the machine, the job's begins later, and a job that is stopped at
# its end still saves a checkpoint.
_MARGIN = timedelta(minutes=20)
# How long a launch waits for machines; then the job is placed again.
_PROVISION_TIMEOUT = timedelta(minutes=15)


def machine_type(offer: Offer) -> str:
    """The name of its machine type at Google."""
    return offer.instance_type.removesuffix(SUFFIX)


def flex_settings(launch: Launch) -> dict[str, Any]:
    """SkyPilot's settings for a launch with flex start; empty for other launches.

    The requested time is the job's maximum running time plus its start and end, as shorter requests are served sooner.
    """
    if not launch.placement.offer.instance_type.endswith(SUFFIX):
        return {}
    longest = min(max((launch.job.max_duration or _LONGEST) + _MARGIN, _SHORTEST), _LONGEST)
    group = {"run_duration": int(longest.total_seconds()), "provision_timeout": int(_PROVISION_TIMEOUT.total_seconds())}
    return {"gcp": {"managed_instance_group": group}}
