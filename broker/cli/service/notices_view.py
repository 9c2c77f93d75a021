"""Delivery of alerts as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.app.results.notices import DeliveryResult, NoticeResult
from broker.cli.render import formats

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.app.alerts.notify import Delivery
    from broker.store.outbox import Dispatch


def dispatch(one: NoticeResult | Dispatch) -> str:
    """The delivery state of one alert to one recipient."""
    told = NoticeResult.model_validate(one)
    if told.delivered_at is not None:
        return f"sent to {told.target} on {formats.moment(told.delivered_at)}: {told.title}"
    why = f" ({told.error})" if told.error else ""
    if told.next_try is None:
        return f"never sent to {told.target}: {told.title}{why}"
    return f"not yet sent to {told.target}, tried {formats.plural(told.tries, 'time')}{why}: {told.title}"


def deliveries(sent: Iterable[DeliveryResult | Delivery]) -> str:
    """The deliveries just made: ``sent to ops``; ``not yet sent to ops (…), will be retried``."""
    return "; ".join(
        f"not yet sent to {one.target} ({one.error}), will be retried" if one.error else f"sent to {one.target}"
        for one in sent
    )
