"""Notices that were sent, and notices that could not be delivered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from broker.app.alerts import notify
from broker.app.results.notices import NoticeList, RetriedNotices
from broker.app.wiring import Broker
from broker.store.outbox import Dispatch


def notice_list(broker: Broker, *, failed: bool = False, limit: int = 100) -> NoticeList:
    """Notices to people, newest first; with ``failed`` only those that could not be delivered yet, or were given up. A
    notice that waits for a recipient who is no longer in the settings has that as its error; it is sent once the
    settings name the recipient again."""
    targets = tuple(broker.settings.notify)
    dispatches = broker.store.outbox.newest(limit, failed=failed, targets=targets)
    return NoticeList.from_parts(notices=[_with_target_error(dispatch, targets) for dispatch in dispatches])


def _with_target_error(dispatch: Dispatch, targets: Sequence[str]) -> Dispatch:
    if dispatch.delivered_at is not None or dispatch.error or dispatch.target in targets:
        return dispatch
    return replace(dispatch, error=f"no such recipient: {notify.setting_variable(dispatch.target)} is not set")


def retry_failed(broker: Broker) -> RetriedNotices:
    """Try now to deliver every notice that could not be delivered, also those that were given up. Raises
    `StoreProblem`, `MissingExtra` without Apprise."""
    settings = broker.settings
    count = broker.store.outbox.retry(broker.clock.now(), tuple(settings.notify))
    deliveries = notify.deliver(broker.store, broker.clock, settings.notify)
    errors = {delivery.target: delivery.error for delivery in deliveries if not delivery.ok}
    return RetriedNotices(retried=count, sent=sum(delivery.ok for delivery in deliveries), errors=errors)
