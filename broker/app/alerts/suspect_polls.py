"""Alerts about suspect polls: one for each time that a provider's prices become doubtful."""

from __future__ import annotations

from broker.app.alerts.routes import recipients
from broker.app.wiring import Broker
from broker.core.notices import Notice, Severity
from broker.market.poller import PollResult
from broker.store.records import PollStatus


def queue(broker: Broker, result: PollResult) -> bool:
    """Queue an alert, once until a poll of the provider is accepted again; whether it is new. Raises `StoreProblem`."""
    if result.status is not PollStatus.SUSPECT:
        return False
    fresh = broker.store.market.freshness(broker.clock.now()).get(result.provider)
    believed = fresh.last_success if fresh is not None else None
    notice = Notice(
        key=f"suspect/{result.provider}/{believed.isoformat() if believed else 'never'}",
        title=f"gpubroker: the prices of {result.provider} are suspect",
        body="\n".join([result.error, "", result.hint]),
        severity=Severity.WARNING,
        thread=f"suspect/{result.provider}",
    )
    return bool(broker.store.outbox.add(notice, recipients(broker.settings, notice), broker.clock.now()))
