"""Overdue launches: launches of other tools whose approved run time is over and whose end was not reported. Their
machines may still run, at a cost that is in no budget. They stay recorded until the end is reported, or for 30 days."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from broker.app.outside.launches import PREFIX, OpenLaunch, end, is_overdue, open_launches, spend_beyond, spend_overdue
from broker.app.results.outside import OverdueLaunch
from broker.app.results.values import json_text
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.values.money import Money

_KEY = "overdue/"  # prefix of the settings in which they are kept
_KEPT = timedelta(days=30)


def end_overdue(broker: Broker) -> Sequence[OpenLaunch]:
    """Spend the hold of every launch whose end should have been reported by now, and record it as overdue; delete
    records older than 30 days. Returns the launches that became overdue."""
    now = broker.clock.now()
    with broker.store.reading() as look:
        late = [one for one in open_launches(look) if is_overdue(one, now)]
    for one in late:  # first, so that every one that is spent is also shown
        keep_on_record(broker, OverdueLaunch.noted_at(one, now))
    if late:
        spend_overdue(broker, late)
    for known in overdue(broker):
        if known.noted + _KEPT <= now:
            broker.store.drop_setting(_KEY + known.id)
    return late


def overdue(broker: Broker) -> Sequence[OverdueLaunch]:
    """The overdue launches, the longest overdue first."""
    found = [OverdueLaunch.model_validate_json(text) for text in broker.store.settings_under(_KEY).values()]
    return sorted(found, key=lambda one: (one.until, one.id))


def keep_on_record(broker: Broker, one: OverdueLaunch) -> None:
    """Record an overdue launch. Idempotent."""
    broker.store.set_setting(_KEY + one.id, json_text(one))


def reported(broker: Broker, id: str, ran: timedelta | None = None, *, by: Actor) -> Money:
    """As `end`, and raises as it; the launch is then no longer overdue. What an overdue launch cost beyond the judged
    time, according to ``ran``, is spent now. Returns the cost (USD)."""
    whole = id if id.startswith(PREFIX) else PREFIX + id
    cost = end(broker, whole, ran, by=by)
    if (text := broker.store.setting(_KEY + whole)) is not None:
        if ran is not None:
            cost += spend_beyond(broker, whole, OverdueLaunch.model_validate_json(text).since, ran, by=by)
        broker.store.drop_setting(_KEY + whole)
    return cost
