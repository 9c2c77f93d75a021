"""Unused owned and reserved capacity as FOCUS charges: one row per commitment and month, so that its used and unused
hours add up to the purchased ones. Pure.

A commitment is what `charges` calls one: the capacity of one provider, region, accelerator and kind. Use in a
place without recorded capacity counts against capacity of the same accelerator and kind elsewhere.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.ledger.entries import Tags
from broker.ledger.finops.focus.charges import GPU_HOURS, Value, commitment_columns, common_columns, gpu_hours
from broker.ledger.finops.focus.months import BillingMonth
from broker.ledger.finops.idle import paid_for

_CAPACITY_TYPES = {HoldingKind.OWNED: CapacityType.OWNED, HoldingKind.RESERVATION: CapacityType.RESERVED}
_MICRO = Decimal(1).scaleb(-6)


@dataclass(slots=True)
class _Commitment:
    """A commitment in the month: its GPU-hours, their cost, and the number of unused ones."""

    tags: Tags
    since: datetime
    until: datetime
    hours: Decimal
    paid: Money
    unused: Decimal


def unused_rows(
    holdings: Iterable[Holding], used: Mapping[str, Decimal], month: BillingMonth, until: datetime, account: str
) -> Iterator[dict[str, Value]]:
    """The rows of unused capacity in the month until ``until`` (UTC), by the column names of FOCUS 1.2. ``used``: the
    GPU-hours of the month's rows by `CommitmentDiscountId`."""
    commitments = _commitments(holdings, month, min(until, month.end))
    for name, hours in sorted(used.items()):
        uncovered = hours
        kind = name.split("/")[-2:]
        elsewhere = (other for other in sorted(commitments) if other != name and other.split("/")[-2:] == kind)
        for other in (name, *elsewhere):
            if (capacity := commitments.get(other)) is not None:
                offset = min(uncovered, capacity.unused)
                capacity.unused, uncovered = capacity.unused - offset, uncovered - offset
    for name, capacity in sorted(commitments.items()):
        if capacity.unused:
            yield _row(name, capacity, month, account)


def _commitments(holdings: Iterable[Holding], month: BillingMonth, end: datetime) -> dict[str, _Commitment]:
    commitments: dict[str, _Commitment] = {}
    for holding in holdings:
        since, until = max(month.start, holding.starts), min(end, holding.ends)
        if holding.kind not in _CAPACITY_TYPES or since >= until:
            continue
        tags = Tags(
            "", "", provider=holding.provider, region=holding.site, capacity_type=_CAPACITY_TYPES[holding.kind],
            accelerator=holding.accelerator,
        )  # fmt: skip
        hours, paid = gpu_hours(until - since, holding.gpus), paid_for(holding, until - since)
        entry = commitments.setdefault(
            str(commitment_columns(tags)["CommitmentDiscountId"]),
            _Commitment(tags, since, until, Decimal(0), Money.ZERO, Decimal(0)),
        )
        entry.since, entry.until = min(entry.since, since), max(entry.until, until)
        entry.hours, entry.paid, entry.unused = entry.hours + hours, entry.paid + paid, entry.unused + hours
    return commitments


def _row(name: str, held: _Commitment, month: BillingMonth, account: str) -> dict[str, Value]:
    share = Decimal(held.paid.micros) * held.unused / held.hours
    micros = int(share.to_integral_value(ROUND_HALF_EVEN))
    tags = held.tags
    price = (Decimal(micros) * _MICRO / held.unused).quantize(Decimal(1).scaleb(-12))
    return {
        **common_columns(tags, month, account, micros),
        **commitment_columns(tags),
        "BilledCost": 0,
        "ChargePeriodStart": held.since,
        "ChargePeriodEnd": held.until,
        "ChargeCategory": "Usage",
        "ChargeClass": None,
        "ChargeDescription": f"{tags.accelerator} held at {name}, unused".encode("ascii", "replace").decode(),
        "ChargeFrequency": "Usage-Based",
        "ResourceId": name,
        "ResourceName": name,
        "ResourceType": "Capacity commitment",
        "PricingCategory": "Committed",
        "PricingQuantity": held.unused,
        "PricingUnit": GPU_HOURS,
        "ListUnitPrice": price,
        "ContractedUnitPrice": price,
        "PricingCurrencyListUnitPrice": price,
        "PricingCurrencyContractedUnitPrice": price,
        "SkuId": f"{tags.provider}/{tags.accelerator}",
        "SkuPriceId": name,
        "SkuMeter": "GPU hours held",
        "CommitmentDiscountStatus": "Unused",
        "CommitmentDiscountQuantity": held.unused,
        "CommitmentDiscountUnit": GPU_HOURS,
        "x_MoneyKind": MoneyKind.AMORTISED.value,
        "x_MovementId": f"unused/{name}/{month.name}",
    }
