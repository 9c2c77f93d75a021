"""Notices that were sent, and notices that could not be delivered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from broker.app.alerts import notify
from broker.app.results.notices import NoticeList, RetriedNotices
from broker.app.wiring import Broker
from broker.store.outbox import Dispatch


def sent(broker: Broker, *, failed: bool = False, limit: int = 100) -> NoticeList:
    """Notices to people, newest first; with ``failed`` only those that could not be delivered yet, or were given up. A
    notice that waits for a recipient who is no longer in the settings has that as its error; it is sent once the
    settings name the recipient again."""
    targets = tuple(broker.settings.notify)
    found = broker.store.outbox.newest(limit, failed=failed, targets=targets)
    return NoticeList.from_parts(notices=[_told(one, targets) for one in found])


def _told(one: Dispatch, targets: Sequence[str]) -> Dispatch:
    if one.delivered_at is not None or one.error or one.target in targets:
        return one
    return replace(one, error=f"no such recipient: {notify.variable(one.target)} is not set")


def retry(broker: Broker) -> RetriedNotices:
    """Try now to deliver every notice that could not be delivered, also those that were given up. Raises
    `StoreProblem`, `MissingExtra` without Apprise."""
    settings = broker.settings
    count = broker.store.outbox.retry(broker.clock.now(), tuple(settings.notify))
    done = notify.deliver(broker.store, broker.clock, settings.notify)
    errors = {one.target: one.error for one in done if not one.ok}
    return RetriedNotices(retried=count, sent=sum(one.ok for one in done), errors=errors)
