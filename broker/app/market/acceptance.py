"""Accepting doubtful prices on a person's word."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import UnknownName
from broker.store.records import AcceptedDoubts

log = logging.getLogger(__name__)


def accept_prices(
    broker: Broker, provider: str, pools: Sequence[str] = (), *, by: Actor, note: str = ""
) -> AcceptedDoubts:
    """Accept the last poll of ``provider`` on the word of ``by``: missing offers are gone, odd prices are right.
    Recorded with the offers concerned. ``pools``: only these. Raises `UnknownName` for a provider that was never
    polled, `InvalidInput` if nothing is in doubt."""
    polled = broker.store.last_polls()
    if provider not in polled:
        raise UnknownName("provider", provider, polled)
    accepted = broker.store.accept_doubts(provider, pools, by=by.identity, note=note)
    log.info("%s accepted the prices of %s (%d)", by.identity, provider, accepted.number)
    return accepted
