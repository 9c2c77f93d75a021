"""End times of clusters that the API server no longer lists, from the server's records. Fetches one report per
observation for all clusters.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from broker.core.errors import BrokerError, RetryLater
from broker.engines.detached import Slot
from broker.engines.skypilot.sdk import Sdk

log = logging.getLogger(__name__)


class ClusterEnds:
    """``missing``: clusters that the server no longer lists. Fetched on first use."""

    def __init__(self, sdk: Sdk, missing: Sequence[Slot]) -> None:
        self._sdk, self._missing = sdk, missing
        self._report: Mapping[str, datetime] | RetryLater | None = None

    def of(self, cluster: str) -> datetime | None:
        """The cluster's end (UTC); None if the server has no record. Raises `RetryLater`: the next observation asks
        again."""
        if self._report is None:
            self._report = self._ask()
        if isinstance(self._report, RetryLater):
            raise self._report
        return self._report.get(cluster)

    def _ask(self) -> Mapping[str, datetime] | RetryLater:
        now = datetime.now(UTC)
        age = max((now - _start_of(slot, now) for slot in self._missing), default=timedelta(0))
        try:
            return self._sdk.ends(max(age, timedelta(0)).days + 2)
        except RetryLater as error:
            return error
        except BrokerError as error:
            log.warning("SkyPilot reports no end times of clusters: %s", error)
            return {}


def _start_of(slot: Slot, now: datetime) -> datetime:
    start = (slot.read("launch.json") or {}).get("at") or (slot.read("up.json") or {}).get("since")
    return datetime.fromisoformat(start) if start else now


KUBERNETES, GCP = 33, 26
"""The longest name of a cluster, in characters, before the hash of SkyPilot's user."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def name_on_cloud(cluster: str, longest: int) -> str:
    """The name without the hash of SkyPilot's user: shortened to ``longest`` characters, of which the last two are from
    a hash of the whole name.
    """
    name = re.sub(r"[._]", "-", cluster).lower()
    if len(name) <= longest:
        return name
    number, suffix = int(hashlib.md5(cluster.encode(), usedforsecurity=False).hexdigest(), 16), ""
    while number:
        number, digit = divmod(number, 36)
        suffix = _DIGITS[digit] + suffix
    return f"{name[: longest - 3].rstrip('-')}-{suffix[:2]}"
