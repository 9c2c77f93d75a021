"""The duty of `broker.app.service.serve` that reconciles a store's jobs, as the background reconciler does.

One process of a store has the duty at a time. The others stand by and take over within `STAND_BY` after it ends; on
PostgreSQL, once the database notices that the connection is gone. With the setting ``share_jobs``, several processes
have it at once, each for its share of the jobs (`broker.store.engine.job_shares`); if one ends, the others take over
its share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from broker.app.jobs.sealed_secrets import tell_service_key
from broker.app.service.background import looks
from broker.app.service.health import Pulses
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, StoreProblem

if TYPE_CHECKING:
    from broker.store.engine.job_shares import JobShare
    from broker.store.engine.leader import StillLeading

STAND_BY = 1.0  # seconds of the wall clock between two tries to take the lead


class Reconciling:
    """``say``: receives messages about taking and losing the lead. ``health``: is informed of each pass."""

    name = "jobs"

    def __init__(self, broker: Broker, *, health: Pulses, say: Callable[[str], None]) -> None:
        self._broker = Broker(broker.settings, broker.registries, replace(broker.account, for_others=True))
        self._health = health
        self._say = say

    def run(self, stop: threading.Event) -> None:
        """Reconcile until ``stop`` is set; a pass that has begun is finished first. An unreachable store is reported
        and tried again."""
        with suppress(BrokerError):  # the first pass reports what is wrong with the store
            tell_service_key(self._broker)
        said = ""
        while not stop.is_set():
            try:
                with self._part() as (still_leading, share):
                    if still_leading is None:
                        self._health.stands_by(self.name)
                        if said != (said := "standing by: another process looks after the jobs of this store"):
                            self._say(said)
                    else:
                        self._say("looking after jobs" if share is None else "looking after a share of the jobs")
                        said = ""
                        self._lead(stop, still_leading, share)
            except StoreProblem as problem:
                if said != (said := str(problem)):
                    self._say(said)
            stop.wait(STAND_BY)

    @contextmanager
    def _part(self) -> Iterator[tuple[StillLeading | None, JobShare | None]]:
        store = self._broker.store
        if not self._broker.settings.serve.share_jobs:
            with store.lead() as still_leading:
                yield still_leading, None
            return
        with store.share() as share:
            yield (None if share is None else share.still), share

    def _lead(self, stop: threading.Event, still_leading: StillLeading, share: JobShare | None) -> None:
        for look in looks(self._broker, lambda: not stop.is_set() and still_leading(), stop.wait, share):
            if look.brought is None:
                self._health.failed(self.name)
            else:
                self._health.looked(self.name, look.seconds, look.brought.steps)
