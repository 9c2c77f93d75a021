"""Google's flex start: machines that come when there are some, for a stated time of up to seven days, at prices of
their own. Pure.

Such an offer's machine type ends in `SUFFIX` (`providers/gcp/listed.py`). SkyPilot asks for its machines through a
managed instance group with a resize request of `requested_run_duration`: Google starts all of them or none, and deletes
them at the end of that time. Limits: Compute Engine documentation, "About Flex-start VMs", read 2026-11-26: the run
duration is ten minutes to seven days.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from broker.core.market.offers import Offer
from broker.core.ports import Launch

SUFFIX = "+flex-start"
_SHORTEST, _LONGEST = timedelta(minutes=10), timedelta(days=7)
# Google's time begins with the machine, that of a job later, and a job that is stopped then saves its last checkpoint.
_AROUND = timedelta(minutes=20)
# How long a launch waits for them; then the job is placed anew.
_WAITS = timedelta(minutes=15)


def machine_type(offer: Offer) -> str:
    """The name of its machine type at Google."""
    return offer.instance_type.removesuffix(SUFFIX)


def flex_settings(launch: Launch) -> dict[str, Any]:
    """SkyPilot's settings for a launch with flex start; none for any other. The machines are asked for as long as the
    job may run, and its start and end with it: shorter times are served sooner."""
    if not launch.placement.offer.instance_type.endswith(SUFFIX):
        return {}
    longest = min(max((launch.job.max_duration or _LONGEST) + _AROUND, _SHORTEST), _LONGEST)
    group = {"run_duration": int(longest.total_seconds()), "provision_timeout": int(_WAITS.total_seconds())}
    return {"gcp": {"managed_instance_group": group}}
