"""The duty of `broker.app.service.serve` that asks providers for their charges once a day."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from broker.app.billing.charges import RecordedCharges, fetch
from broker.app.service.periodic_duty import Rounds
from broker.app.wiring import Broker

_FIRST_AFTER, _LOOK_EVERY = 120.0, 900.0  # seconds of the wall clock
_ASK_EVERY = timedelta(hours=23)
_ASKED = "charges_asked_at"


class Charging:
    """``say``: receives each difference over the threshold, and each error, once."""

    name = "charging"

    def __init__(self, broker: Broker, *, say: Callable[[str], None], every: float = _LOOK_EVERY) -> None:
        self._broker = Broker(broker.settings, broker.registries, broker.account)  # its own providers for this thread
        self._rounds = Rounds(say, _FIRST_AFTER, every)

    def run(self, stop: threading.Event) -> None:
        """Run until ``stop`` is set. Errors are reported, and the next round tries again."""
        self._rounds.run(self._broker.store, self.once, stop)

    def once(self) -> RecordedCharges | None:
        """Ask if a day has passed since the last time; else None. Raises `StoreProblem`."""
        store, now = self._broker.store, self._broker.clock.now()
        asked = store.setting(_ASKED)
        if asked is not None and now - datetime.fromisoformat(asked) < _ASK_EVERY:
            return None
        done = fetch(self._broker)
        store.set_setting(_ASKED, now.isoformat())
        troubles = {f"the charges of {name} could not be read: {why}" for name, why in done.trouble.items()}
        self._rounds.tell(troubles | {notice.title for notice in done.alerts})
        return done
