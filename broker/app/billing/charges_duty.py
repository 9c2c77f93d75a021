"""The duty of `broker.app.service.serve` that asks providers for their charges once a day."""

from __future__ import annotations

from datetime import datetime, timedelta

from broker.app.billing.charges import RecordedCharges, fetch
from broker.app.service.periodic_duty import PeriodicDuty

_ASK_EVERY = timedelta(hours=23)
_ASKED = "charges_asked_at"


class Charging(PeriodicDuty):
    """``say``: receives each difference over the threshold, and each error, once."""

    name = "charging"
    first_after, every = 120.0, 900.0

    def once(self) -> RecordedCharges | None:
        """Ask if a day has passed since the last time; else None. Raises `StoreProblem`."""
        store, now = self._broker.store, self._broker.clock.now()
        asked = store.setting(_ASKED)
        if asked is not None and now - datetime.fromisoformat(asked) < _ASK_EVERY:
            return None
        done = fetch(self._broker)
        store.set_setting(_ASKED, now.isoformat())
        troubles = {f"the charges of {name} could not be read: {why}" for name, why in done.trouble.items()}
        self._tell(troubles | {notice.title for notice in done.alerts})
        return done
