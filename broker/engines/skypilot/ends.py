"""When clusters were gone that the API server knows no more, by its own records: one report a look for all of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from broker.core.errors import BrokerError, RetryLater
from broker.engines.detached import Slot
from broker.engines.skypilot.sdk import Sdk

log = logging.getLogger(__name__)


class Ends:
    """``missing``: of a look, those that the server does not know any more. Nothing is asked before it is needed."""

    def __init__(self, sdk: Sdk, missing: Sequence[Slot]) -> None:
        self._sdk, self._missing = sdk, missing
        self._report: Mapping[str, datetime] | RetryLater | None = None

    def of(self, cluster: str) -> datetime | None:
        """None where the server has no record of it, or keeps none. Raises `RetryLater`: ask with another look."""
        if self._report is None:
            self._report = self._ask()
        if isinstance(self._report, RetryLater):
            raise self._report
        return self._report.get(cluster)

    def _ask(self) -> Mapping[str, datetime] | RetryLater:
        now = datetime.now(UTC)
        age = max((now - _began(slot, now) for slot in self._missing), default=timedelta(0))
        try:
            return self._sdk.ends(max(age, timedelta(0)).days + 2)
        except RetryLater as error:
            return error
        except BrokerError as error:
            log.warning("SkyPilot does not tell when clusters were gone: %s", error)
            return {}


def _began(slot: Slot, now: datetime) -> datetime:
    said = (slot.read("launch.json") or {}).get("at") or (slot.read("up.json") or {}).get("since")
    return datetime.fromisoformat(said) if said else now
