"""Delivery of alerts as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.app.results.notices import NoticeResult
from broker.cli.render import formats

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.app.alerts.notify import Delivery


def dispatch(one: NoticeResult) -> str:
    """The delivery state of one alert to one recipient."""
    if one.delivered_at is not None:
        return f"sent to {one.target} on {formats.moment(one.delivered_at)}: {one.title}"
    if one.next_try is None:
        return f"never sent to {one.target}: {one.title} ({one.error})"
    why = f" ({one.error})" if one.error else ""
    return f"not yet sent to {one.target}, tried {formats.plural(one.tries, 'time')}{why}: {one.title}"


def deliveries(sent: Iterable[Delivery]) -> str:
    """The deliveries just made: ``sent to ops``; ``not yet sent to ops (…), will be retried``."""
    return "; ".join(
        f"not yet sent to {one.target} ({one.error}), will be retried" if one.error else f"sent to {one.target}"
        for one in sent
    )
