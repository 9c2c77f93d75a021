"""Azure's charges for machines per day and attempt, from Cost Management's query API; with a login.

Days are UTC. Charges come 8 to 72 hours late and may change until some days after their month has ended, so younger
ones are marked as estimates (Microsoft Learn, "Understand Cost Management data"). They are grouped by gpubroker's tag;
``key`` is empty for untagged charges. USD whatever the currency of the bill; rounded half-even to the micro-dollar. The
SDK for it (azure-mgmt-costmanagement) is not needed: one documented request through the same pipeline.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from broker.core.errors import Malformed
from broker.core.market.capacity import TAG, Charge
from broker.core.values.money import Money
from providers.azure.login import AzureLogin
from providers.azure.settings import NAME
from providers.rows import short

VERSION = "2023-11-01"

_WHERE = f"{NAME}/charges"
_DAY = timedelta(days=1)
_SETTLED_AFTER = timedelta(days=5)  # after the end of a month
_MAX_PAGES = 500
_MAX_AMOUNT = 10**9


def read_charges(login: AzureLogin, since: datetime, now: datetime) -> Iterator[Charge]:
    """The charges of the days from ``since`` up to and with today. Raises what `AzureLogin.call` raises, and
    `Malformed` for an invalid amount."""
    first, last = _midnight(since), _midnight(now)
    if first > last:
        return
    body = _query_body(first, last)
    path = f"/subscriptions/{login.subscription}/providers/Microsoft.CostManagement/query"
    seen: set[str] = set()
    for _ in range(_MAX_PAGES):
        answer = login.request("charges", "POST", path, body, version=VERSION)
        properties = answer.get("properties") if isinstance(answer, Mapping) else None
        columns, rows = (
            (properties.get("columns"), properties.get("rows")) if isinstance(properties, Mapping) else (None, None)
        )
        if not isinstance(columns, list) or not isinstance(rows, list):
            raise Malformed("no table of charges in the answer", where=_WHERE)
        names = [str(column.get("name")).lower() if isinstance(column, Mapping) else "" for column in columns]
        for row in rows:
            charge = _charge(names, row, now)
            if charge.amount:
                yield charge
        next_link = properties.get("nextLink") if isinstance(properties, Mapping) else None
        if not isinstance(next_link, str) or not next_link:
            return
        if next_link in seen:
            break
        seen.add(next_link)
        path = next_link
    raise Malformed("endless pages: a page link was repeated", where=_WHERE)


def _query_body(first: datetime, last: datetime) -> Mapping[str, Any]:
    return {
        "type": "ActualCost",
        "timeframe": "Custom",
        "timePeriod": {"from": first.isoformat(), "to": (last + _DAY - timedelta(seconds=1)).isoformat()},
        "dataset": {
            "granularity": "Daily",
            "aggregation": {
                "totalCost": {"name": "Cost", "function": "Sum"},
                "totalCostUSD": {"name": "CostUSD", "function": "Sum"},
            },
            "grouping": [{"type": "TagKey", "name": TAG}],
            "filter": {"dimensions": {"name": "MeterCategory", "operator": "In", "values": ["Virtual Machines"]}},
        },
    }


def _charge(names: Sequence[str], row: object, now: datetime) -> Charge:
    if not isinstance(row, list) or len(row) != len(names):
        raise Malformed(f"expected a charge; got {short(row)}", where=_WHERE)
    values = dict(zip(names, row, strict=True))
    starts = _day(values.get("usagedate"))
    in_usd = str(values.get("currency", "")).upper() == "USD"
    amount = values.get("costusd", values.get("cost") if in_usd else None)
    key = values.get("tagvalue")
    return Charge(
        NAME, starts, starts + _DAY, _amount(amount), key if isinstance(key, str) else "", _may_change(starts, now)
    )


def _amount(value: object) -> Money:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise Malformed(f"expected an amount in USD, got {short(value)}", where=_WHERE)
    amount = Decimal(value)
    if not amount.is_finite() or abs(amount) > _MAX_AMOUNT:
        raise Malformed(f"expected an amount in USD, got {short(value)}", where=_WHERE)
    return Money.usd(amount)


def _day(value: object) -> datetime:
    """A day as in the answer: 20261118, or the text of a date."""
    try:
        return datetime.fromisoformat(str(value)[:10]).replace(tzinfo=UTC)
    except ValueError as error:
        raise Malformed(f"expected a date; got {short(value)}", where=_WHERE) from error


def _may_change(day: datetime, now: datetime) -> bool:
    next_month = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
    return now < next_month + _SETTLED_AFTER


def _midnight(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
