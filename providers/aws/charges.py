"""AWS charges per day and attempt, from Cost Explorer; with a login. Each query costs the account $0.01.

Days are UTC. A day's figure changes for a day or two and is marked as an estimate until AWS closes it. Charges are
grouped by gpubroker's tag, which must be activated once as a cost allocation tag (Billing console); before that, and
without a tag, ``key`` is empty. Amounts are rounded half-even to the micro-dollar; AWS bills finer.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from broker.core.errors import Malformed
from broker.core.market.capacity import Charge
from broker.core.market.machines import TAG
from broker.core.values.money import Money
from providers.aws.login import AwsLogin
from providers.aws.settings import NAME

_ASKED_IN = "us-east-1"  # the region of Cost Explorer
_METRIC = "UnblendedCost"
_SERVICE = "Amazon Elastic Compute Cloud - Compute"
_DAY = timedelta(days=1)


def read_charges(login: AwsLogin, since: datetime, now: datetime) -> Iterator[Charge]:
    """EC2's charges of the days from ``since`` up to and with today. Raises what `AwsLogin.rows` raises, and
    `Malformed` for an invalid amount or another currency."""
    first, last = since.astimezone(UTC).date(), now.astimezone(UTC).date()
    if first > last:
        return
    rows = login.rows(
        "ce",
        _ASKED_IN,
        "get_cost_and_usage",
        "ResultsByTime",
        page_key="NextPageToken",
        TimePeriod={"Start": first.isoformat(), "End": (last + _DAY).isoformat()},
        Granularity="DAILY",
        Metrics=[_METRIC],
        Filter={"Dimensions": {"Key": "SERVICE", "Values": [_SERVICE]}},
        GroupBy=[{"Type": "TAG", "Key": TAG}],
    )
    for day in rows:
        starts = _midnight((day.get("TimePeriod") or {}).get("Start"))
        for group in day.get("Groups") or ():
            amount = _amount((group.get("Metrics") or {}).get(_METRIC) or {})
            if amount:
                key = str((group.get("Keys") or [""])[0]).removeprefix(f"{TAG}$")
                yield Charge(NAME, starts, starts + _DAY, amount, key, bool(day.get("Estimated", True)))


def _midnight(day: Any) -> datetime:
    try:
        return datetime.fromisoformat(str(day)[:10]).replace(tzinfo=UTC)
    except ValueError as error:
        raise Malformed(f"expected a date; got {day!r}", where=f"{NAME}: Cost Explorer") from error


def _amount(metric: Any) -> Money:
    try:
        amount, unit = Decimal(str(metric.get("Amount"))), metric.get("Unit")
    except InvalidOperation as error:
        raise Malformed(f"expected an amount; got {metric!r}", where=f"{NAME}: Cost Explorer") from error
    if unit != "USD" or not amount.is_finite() or abs(amount) > 10**9:
        raise Malformed(f"expected an amount in USD, got {metric!r}", where=f"{NAME}: Cost Explorer")
    return Money.usd(amount)
