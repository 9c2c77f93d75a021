"""Who is asked, and for how long: what every rule says that asks before it lets something through."""

from __future__ import annotations

from datetime import timedelta

from pydantic import StrictBool

from broker.core.units import PositiveDuration
from policies.fields import Part, Patterns


class Asking(Part):
    """``approvers``: names of operating-system users, or patterns; any one of them decides. An ask nobody answers ends
    after ``expires``. ``own_requests``: whether approvers may approve what they ask for themselves."""

    approvers: Patterns
    expires: PositiveDuration = timedelta(hours=24)
    own_requests: StrictBool = False
