"""Alerts about jobs that gave way to others of higher priority: one for each attempt that was stopped."""

from broker.app.alerts.routes import recipients
from broker.app.wiring import Broker
from broker.core.notices import Notice


def queue_notices(broker: Broker) -> list[Notice]:
    """Queue the notices of open jobs that gave way; returns the new ones. Sends nothing, and is idempotent, as
    `broker.app.alerts.approvers.queue_notices`. Raises `StoreProblem`."""
    settings, outbox, now = broker.settings, broker.store.outbox, broker.clock.now()
    if not settings.notify or not broker.policy().defaults.preempts:
        return []
    with broker.store.reading() as reader:
        views = reader.unclosed()
    notices = [
        Notice(
            f"preemption/{attempt.key}",
            f"{view.job.name} of {view.user} gives way to {attempt.gave_way.asker}",
            f"It saves a checkpoint and is placed again: gpubroker status {view.id}.",
            thread=f"preemption/{view.id}",
            teams=(view.job.team,) if view.job.team else (),
        )
        for view in views
        for attempt in view.attempts
        if attempt.gave_way
    ]
    return [notice for notice in notices if outbox.add(notice, recipients(settings, notice), now)]
