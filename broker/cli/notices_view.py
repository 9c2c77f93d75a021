"""What became of notices, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.cli import words

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from broker.app.notify import Delivery
    from broker.store.outbox import Dispatch


def dispatch(one: Dispatch) -> str:
    """One notice to one target, as it stands."""
    if one.delivered_at is not None:
        return f"{one.target} was told on {words.moment(one.delivered_at)}: {one.notice.title}"
    if one.given_up:
        return f"{one.target} was never told: {one.notice.title} ({one.error})"
    why = f" ({one.error})" if one.error else ""
    return f"{one.target} is still to be told, tried {words.plural(one.tries, 'time')}{why}: {one.notice.title}"


def deliveries(sent: Iterable[Delivery]) -> str:
    """Who was told just now: ``ops was told``; ``ops could not be told yet (…); it is tried again``."""
    return "; ".join(
        f"{one.target} was told" if one.ok else f"{one.target} could not be told yet ({one.error}); it is tried again"
        for one in sent
    )


def document(one: Dispatch) -> dict[str, Any]:
    """One notice to one target as JSON."""
    return {
        "target": one.target,
        "title": one.notice.title,
        "made_at": one.made_at,
        "delivered_at": one.delivered_at,
        "tries": one.tries,
        "next_try": one.next_try,
        "error": one.error,
    }
