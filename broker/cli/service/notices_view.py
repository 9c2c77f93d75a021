"""Delivery of alerts as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.cli.render import formats

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.app.alerts.notify import Delivery
    from broker.store.outbox import Dispatch


def dispatch(one: Dispatch) -> str:
    """The delivery state of one alert to one recipient."""
    if one.delivered_at is not None:
        return f"sent to {one.target} on {formats.moment(one.delivered_at)}: {one.notice.title}"
    if one.given_up:
        return f"never sent to {one.target}: {one.notice.title} ({one.error})"
    why = f" ({one.error})" if one.error else ""
    return f"not yet sent to {one.target}, tried {formats.plural(one.tries, 'time')}{why}: {one.notice.title}"


def deliveries(sent: Iterable[Delivery]) -> str:
    """The deliveries just made: ``sent to ops``; ``not yet sent to ops (…), will be retried``."""
    return "; ".join(
        f"sent to {one.target}" if one.ok else f"not yet sent to {one.target} ({one.error}), will be retried"
        for one in sent
    )
