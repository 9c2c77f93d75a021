"""Which month a report is about."""

from __future__ import annotations

import pytest

from broker.app.billing.months import begun, month_named, month_of
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput


@pytest.mark.parametrize("text", ["2026-13", "November", "", "0001-01", "9999-12", "2026-11-01"])
def test_what_is_no_month_to_report_about_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="expected a month such as 2026-11"):
        month_of(text)


def test_this_month_and_the_last_have_names(broker: Broker) -> None:
    this, last = month_named(broker, "month"), begun(broker, "last-month")
    assert this.start <= broker.clock.now() < this.end
    assert last.end == this.start


def test_a_month_begins(broker: Broker) -> None:
    now = broker.clock.now()
    assert begun(broker, f"{now:%Y-%m}").start <= now
    with pytest.raises(InvalidInput, match="9000-01 has not begun"):
        begun(broker, "9000-01")
