"""Unused owned and reserved capacity as FOCUS charges: one row per commitment and month, so that its used and unused
hours add up to the purchased ones. Pure.

A commitment is what `charges` calls one: the capacity of one provider, region, accelerator and kind. Use in a
place without recorded capacity counts against capacity of the same accelerator and kind elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.finops.focus.charges import GPU_HOURS, Value, commitment, every_row, gpu_hours
from broker.finops.focus.months import BillingMonth
from broker.finops.idle import paid_for
from broker.ledger.entries import Tags

_KINDS = {HoldingKind.OWNED: CapacityType.OWNED, HoldingKind.RESERVATION: CapacityType.RESERVED}
_MICRO = Decimal(1).scaleb(-6)


@dataclass(slots=True)
class _Held:
    """A commitment in the month: its GPU-hours, their cost, and the number of unused ones."""

    tags: Tags
    since: datetime
    until: datetime
    hours: Decimal
    paid: Money
    unused: Decimal


def unused(
    holdings: Iterable[Holding], used: Mapping[str, Decimal], month: BillingMonth, until: datetime, account: str
) -> Iterator[dict[str, Value]]:
    """The rows of unused capacity in the month until ``until`` (UTC), by the column names of FOCUS 1.2. ``used``: the
    GPU-hours of the month's rows by `CommitmentDiscountId`."""
    held = _held(holdings, month, min(until, month.end))
    for name, hours in sorted(used.items()):
        rest = hours
        kind = name.split("/")[-2:]
        elsewhere = (other for other in sorted(held) if other != name and other.split("/")[-2:] == kind)
        for other in (name, *elsewhere):
            if (one := held.get(other)) is not None:
                taken = min(rest, one.unused)
                one.unused, rest = one.unused - taken, rest - taken
    for name, one in sorted(held.items()):
        if one.unused:
            yield _row(name, one, month, account)


def _held(holdings: Iterable[Holding], month: BillingMonth, end: datetime) -> dict[str, _Held]:
    found: dict[str, _Held] = {}
    for holding in holdings:
        since, until = max(month.start, holding.starts), min(end, holding.ends)
        if holding.kind not in _KINDS or since >= until:
            continue
        tags = Tags(
            "", "", provider=holding.provider, region=holding.site, capacity_type=_KINDS[holding.kind],
            accelerator=holding.accelerator,
        )  # fmt: skip
        hours, paid = gpu_hours(until - since, holding.gpus), paid_for(holding, until - since)
        one = found.setdefault(
            str(commitment(tags)["CommitmentDiscountId"]), _Held(tags, since, until, Decimal(0), Money.ZERO, Decimal(0))
        )
        one.since, one.until = min(one.since, since), max(one.until, until)
        one.hours, one.paid, one.unused = one.hours + hours, one.paid + paid, one.unused + hours
    return found


def _row(name: str, one: _Held, month: BillingMonth, account: str) -> dict[str, Value]:
    share = Decimal(one.paid.micros) * one.unused / one.hours
    micros = int(share.to_integral_value(ROUND_HALF_EVEN))
    tags = one.tags
    price = (Decimal(micros) * _MICRO / one.unused).quantize(Decimal(1).scaleb(-12))
    return {
        **every_row(tags, month, account, micros),
        **commitment(tags),
        "BilledCost": 0,
        "ChargePeriodStart": one.since,
        "ChargePeriodEnd": one.until,
        "ChargeCategory": "Usage",
        "ChargeClass": None,
        "ChargeDescription": f"{tags.accelerator} held at {name}, unused".encode("ascii", "replace").decode(),
        "ChargeFrequency": "Usage-Based",
        "ResourceId": name,
        "ResourceName": name,
        "ResourceType": "Capacity commitment",
        "PricingCategory": "Committed",
        "PricingQuantity": one.unused,
        "PricingUnit": GPU_HOURS,
        "ListUnitPrice": price,
        "ContractedUnitPrice": price,
        "PricingCurrencyListUnitPrice": price,
        "PricingCurrencyContractedUnitPrice": price,
        "SkuId": f"{tags.provider}/{tags.accelerator}",
        "SkuPriceId": name,
        "SkuMeter": "GPU hours held",
        "CommitmentDiscountStatus": "Unused",
        "CommitmentDiscountQuantity": one.unused,
        "CommitmentDiscountUnit": GPU_HOURS,
        "x_MoneyKind": MoneyKind.AMORTISED.value,
        "x_MovementId": f"unused/{name}/{month.name}",
    }
