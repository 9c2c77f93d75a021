"""The month that a report is about, as somebody writes it."""

from __future__ import annotations

from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.finops.focus.months import BillingMonth


def month_of(text: str) -> BillingMonth:
    """The month of ``2026-11``. Raises `InvalidInput`."""
    try:
        return BillingMonth.parse(text)
    except ValueError as error:
        raise InvalidInput(f"expected a month such as 2026-11, found {text!r}", where="--month") from error


def begun(broker: Broker, text: str) -> BillingMonth:
    """The month of ``2026-11``, UTC. Raises `InvalidInput`, also for a month that has not begun."""
    month, present = month_of(text), BillingMonth.of(broker.clock.now())
    if month.start > present.start:
        raise InvalidInput(f"{month.name} has not begun", where="--month", hint=f"the month now is {present.name}")
    return month
