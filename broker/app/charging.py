"""The duty of asking providers once a day what they charged, for `broker.app.serve`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from broker.app.charges import Recorded, fetch
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.store.leader import Duty

_FIRST_AFTER, _LOOK_EVERY = 120.0, 900.0  # seconds of the wall clock
_ASK_EVERY = timedelta(hours=23)
_ASKED = "charges_asked_at"


class Charging:
    """``say``: told of differences over the threshold, and of trouble, once each time it changes."""

    name = "charging"

    def __init__(self, broker: Broker, *, say: Callable[[str], None], every: float = _LOOK_EVERY) -> None:
        # A broker belongs to one thread; the store itself may be shared, but not the providers made from it.
        self._broker = Broker(broker.settings, broker.registries)
        self._say = say
        self._every = every
        self._said: set[str] = set()

    def run(self, stop: threading.Event) -> None:
        """Until ``stop`` is set. What goes wrong is said, and tried again with the next look."""
        pause = min(_FIRST_AFTER, self._every)
        while not stop.wait(pause):
            pause = self._every
            try:
                with self._broker.store.lead(Duty.SWEEP) as leading:
                    if leading is not None:
                        self.once()
            except BrokerError as error:
                self._tell({str(error)})

    def once(self) -> Recorded | None:
        """Ask, if a day has passed; None before that. Raises `StoreProblem`."""
        store, now = self._broker.store, self._broker.clock.now()
        asked = store.setting(_ASKED)
        if asked is not None and now - datetime.fromisoformat(asked) < _ASK_EVERY:
            return None
        done = fetch(self._broker)
        store.set_setting(_ASKED, now.isoformat())
        troubles = {f"{name} does not tell what it charged: {why}" for name, why in done.trouble.items()}
        self._tell(troubles | {notice.title for notice in done.alerts})
        return done

    def _tell(self, said: set[str]) -> None:
        for sentence in sorted(said - self._said):
            self._say(sentence)
        self._said = said
