"""Polls a provider that is going to fail."""

from collections.abc import Callable

from broker.core.errors import BrokerError
from broker.core.market.offers import Offer, OfferQuery, SkippedRow
from broker.core.ports import Provider


def until_error(
    provider: Provider, after_first: Callable[[], None] = lambda: None
) -> tuple[list[Offer | SkippedRow], BrokerError | None]:
    """The rows before the error, and the error. ``after_first``: called once the first row has arrived."""
    found: list[Offer | SkippedRow] = []
    try:
        for row in provider.offers(OfferQuery()):
            found.append(row)
            if len(found) == 1:
                after_first()
    except BrokerError as error:
        return found, error
    return found, None
