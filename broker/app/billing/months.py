"""The month of a report, as a person writes it."""

from __future__ import annotations

from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.finops.focus.months import BillingMonth


def month_of(text: str) -> BillingMonth:
    """The month of ``2026-11``. Raises `InvalidInput`."""
    try:
        return BillingMonth.parse(text)
    except ValueError as error:
        hint = "or month, or last-month"
        raise InvalidInput(f"expected a month such as 2026-11, found {text!r}", where="--month", hint=hint) from error


def month_named(broker: Broker, text: str) -> BillingMonth:
    """The month of ``2026-11``, or ``month`` and ``last-month`` as of now (UTC). Raises `InvalidInput`."""
    present = BillingMonth.of(broker.clock.now())
    named = {"month": present, "last-month": present.before}
    return named[text] if text in named else month_of(text)


def begun(broker: Broker, text: str) -> BillingMonth:
    """As `month_named`. Raises `InvalidInput` also for a month that has not begun."""
    month, present = month_named(broker, text), BillingMonth.of(broker.clock.now())
    if month.start > present.start:
        raise InvalidInput(f"{month.name} has not begun", where="--month", hint=f"the month now is {present.name}")
    return month
