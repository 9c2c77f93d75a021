"""The ledger's spent money as FOCUS charges. Pure.

Cash has a billed cost: the provider bills it, at the price that the broker metered. Use of amortized capacity (owned
machines, prepaid hours) has only an effective cost, under a commitment that represents the prepaid capacity of one
provider, region and accelerator; its purchase has a billed cost and no effective cost. Simulated money is not exported.

The columns are those of the dataset Cost and Usage in FOCUS 1.2 (May 2025) and 1.4 (June 2026), and the project's own.
Source: the specification's column library, https://focus.finops.org/focus-specification/. Version 1.4 renames the
columns of the service's provider and of the machines' host, and has those of allocated charges, which are the project's
own in 1.2; others of its new columns are optional. The project's own columns begin with ``x_``, as the specification
requires.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from broker.core.market.accelerators import card_share
from broker.core.market.offers import CapacityType, MoneyKind
from broker.ledger.entries import EGRESS, Entry, Movement, Tags
from broker.ledger.finops.focus.months import BillingMonth, MonthlyPart, parts

VERSIONS = ("1.2", "1.4")


class ColumnKind(StrEnum):
    """The type of a column's values: ``MONEY`` in micro-dollars, ``DECIMAL`` as `decimal.Decimal`, ``TIME`` in UTC."""

    TEXT = "text"
    MONEY = "money"
    DECIMAL = "decimal"
    TIME = "time"


_NAMES = {
    ColumnKind.TEXT: """
        AvailabilityZone BillingAccountId BillingAccountName BillingAccountType BillingCurrency CapacityReservationId
        CapacityReservationStatus ChargeCategory ChargeClass ChargeDescription ChargeFrequency
        CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName CommitmentDiscountStatus
        CommitmentDiscountType CommitmentDiscountUnit ConsumedUnit InvoiceId InvoiceIssuerName PricingCategory
        PricingCurrency PricingUnit ProviderName PublisherName RegionId RegionName ResourceId ResourceName ResourceType
        ServiceCategory ServiceName ServiceSubcategory SkuId SkuMeter SkuPriceDetails SkuPriceId SubAccountId
        SubAccountName SubAccountType Tags x_Accelerator x_AllocatedMethodDetails x_AllocatedMethodId
        x_AllocatedResourceId x_Attempt x_CapacityType x_Environment x_Gpus x_JobId
        x_MoneyKind x_MovementId x_Note x_Project x_Team x_User x_Workload""",
    ColumnKind.MONEY: "BilledCost ContractedCost EffectiveCost ListCost PricingCurrencyEffectiveCost",
    ColumnKind.DECIMAL: """
        CommitmentDiscountQuantity ConsumedQuantity ContractedUnitPrice ListUnitPrice
        PricingCurrencyContractedUnitPrice PricingCurrencyListUnitPrice PricingQuantity""",
    ColumnKind.TIME: "BillingPeriodEnd BillingPeriodStart ChargePeriodEnd ChargePeriodStart",
}

KINDS: Mapping[str, ColumnKind] = dict(sorted((name, kind) for kind, names in _NAMES.items() for name in names.split()))
"""The columns by their names in 1.2, in the order of the file."""

_RENAMED = {"1.2": {}, "1.4": {"ProviderName": "ServiceProviderName", "PublisherName": "HostProviderName"}}
_RENAMED["1.4"] |= {name: name.removeprefix("x_") for name in KINDS if name.startswith("x_Allocated")}


def header(version: str) -> list[str]:
    """The names of the columns in that version, in the order of `KINDS`."""
    renamed = _RENAMED[version]
    return [renamed.get(name, name) for name in KINDS]


Value = str | int | Decimal | datetime | None
"""The value of a column; money in micro-dollars."""

GPU_HOURS = "GPU-Hours"
_HOURS = "Hours"
_NANO, _PICO = 10**9, 10**12
_HOUR_IN_MICROSECONDS = 3_600_000_000
_MICROSECOND = timedelta(microseconds=1)
_MIN_PERIOD = timedelta(seconds=1)  # a charge without duration still needs an end after its start


@dataclass(frozen=True, slots=True)
class SpentEntry:
    """An entry of the account ``spent`` and its machines: ``nodes`` of ``instance_type``, None if no machine is
    known."""

    entry: Entry
    instance_type: str | None = None
    nodes: int | None = None


def charges(spent: SpentEntry, month: BillingMonth, account: str) -> Iterator[dict[str, Value]]:
    """The rows of one entry that are billed in the month, by the column names of FOCUS 1.2; absent columns are null.
    ``account``: the id of this store."""
    entry = spent.entry
    if entry.money is MoneyKind.SANDBOX:
        return
    for part in parts(entry.amount.micros, entry.covers_from, entry.covers_to, entry.at, month):
        yield _row(spent, part, month, account)


def is_purchase(entry: Entry) -> bool:
    """Whether the entry is a prepayment for capacity, not for an attempt's machines."""
    tags = entry.tags
    return entry.money is MoneyKind.CASH and tags.attempt is None and tags.capacity_type is CapacityType.RESERVED


def _row(spent: SpentEntry, part: MonthlyPart, month: BillingMonth, account: str) -> dict[str, Value]:
    entry, tags = spent.entry, spent.entry.tags
    is_bought, is_prepaid = is_purchase(entry), entry.money is MoneyKind.AMORTISED
    is_transfer = EGRESS in entry.movement_id.split("/")
    # Refunds and charges without a time are adjustments, which have no price and no quantity.
    is_adjustment = not is_bought and (entry.movement is not Movement.SETTLE or part.micros < 0)
    row = common_columns(tags, month, account, part.micros)
    row |= {
        "BilledCost": 0 if is_prepaid else part.micros,
        "EffectiveCost": 0 if is_bought else part.micros,
        "PricingCurrencyEffectiveCost": 0 if is_bought else part.micros,
        "ChargePeriodStart": part.since,
        "ChargePeriodEnd": max(part.until, part.since + _MIN_PERIOD),
        "ChargeCategory": "Purchase" if is_bought else "Adjustment" if is_adjustment else "Usage",
        "ChargeClass": "Correction" if part.correction else None,
        "ChargeDescription": _description(tags, entry.movement),
        "ChargeFrequency": _frequency(entry, is_bought=is_bought, is_adjustment=is_adjustment),
        "x_MoneyKind": entry.money.value,
        "x_MovementId": entry.movement_id,
        "x_Note": entry.note or None,
    }
    if is_transfer:
        row |= _TRANSFER_SERVICE
    if tags.attempt is not None:
        row["ResourceId"] = row["ResourceName"] = f"{tags.job_id}-{tags.attempt}"
        row["ResourceType"] = "GPU machine"
    elif is_bought:
        row["ResourceId"] = row["ResourceName"] = tags.job_id
        row["ResourceType"] = "Capacity purchase"
    if is_prepaid or is_bought:
        row |= commitment_columns(tags)
    if not is_adjustment:
        _set_price(row, spent, part, per_hour=not (is_bought or is_transfer))
        if is_prepaid and not is_bought:
            row["CommitmentDiscountStatus"] = "Used"
            if tags.gpus:
                row["CommitmentDiscountQuantity"] = gpu_hours(
                    part.until - part.since, tags.gpus * card_share(tags.accelerator)[1]
                )
                row["CommitmentDiscountUnit"] = GPU_HOURS
            else:
                row["CommitmentDiscountQuantity"] = row["PricingQuantity"]
                row["CommitmentDiscountUnit"] = row["PricingUnit"]
    return row


def common_columns(tags: Tags, month: BillingMonth, account: str, micros: int) -> dict[str, Value]:
    """The columns that every row about machines with these tags has in the month: costs without a discount
    (micro-dollars), owner, and purpose."""
    return {
        **_tag_columns(tags),
        "BillingAccountId": account,
        "BillingPeriodStart": month.start,
        "BillingPeriodEnd": month.end,
        "ListCost": micros,
        "ContractedCost": micros,
        "EffectiveCost": micros,
        "PricingCurrencyEffectiveCost": micros,
    }


def gpu_hours(time: timedelta, gpus: int | Fraction) -> Decimal:
    """GPU-hours of ``gpus`` for ``time``, rounded to a billionth."""
    return Decimal(time // _MICROSECOND * gpus * _NANO // _HOUR_IN_MICROSECONDS) / _NANO


_TRANSFER_SERVICE: Mapping[str, Value] = {
    "ServiceCategory": "Networking",
    "ServiceSubcategory": "Other (Networking)",
    "ServiceName": "Data transfer",
}


@lru_cache(maxsize=4096)
def _tag_columns(tags: Tags) -> Mapping[str, Value]:
    provider = tags.provider or "unknown"
    return {
        "BillingAccountName": "gpubroker",
        "BillingAccountType": "Store",
        "BillingCurrency": "USD",
        "PricingCurrency": "USD",
        "InvoiceIssuerName": provider,
        "ProviderName": provider,
        "PublisherName": provider,
        "ServiceCategory": "Compute",
        "ServiceSubcategory": "Virtual Machines",
        "ServiceName": "GPU machines",
        "RegionId": tags.region,
        "RegionName": tags.region,
        "SubAccountId": tags.team,
        "SubAccountName": tags.team,
        "SubAccountType": "Team" if tags.team else None,
        "Tags": _tags_json(tags.team, tags.project, tags.user, tags.workload, tags.environment),
        "x_Accelerator": tags.accelerator,
        "x_Attempt": None if tags.attempt is None else f"#{tags.attempt}",
        "x_CapacityType": tags.capacity_type.value if tags.capacity_type else None,
        "x_Environment": tags.environment,
        "x_Gpus": f"{tags.gpus} GPUs",
        "x_JobId": tags.job_id or None,
        "x_Project": tags.project,
        "x_Team": tags.team,
        "x_User": tags.user or None,
        "x_Workload": tags.workload,
    }


def _set_price(row: dict[str, Value], spent: SpentEntry, part: MonthlyPart, *, per_hour: bool) -> None:
    """Sets quantity, unit price and SKU. The price is cost / quantity, so that price × quantity is exactly the cost."""
    entry, tags = spent.entry, spent.entry.tags
    time = (part.until - part.since) // _MICROSECOND * (spent.nodes or 1)
    nano = time * _NANO // _HOUR_IN_MICROSECONDS if per_hour and time else 0
    quantity = Decimal(nano) / _NANO if nano else Decimal(1)
    pico = round(part.micros * 10**15 / nano) if nano else part.micros * 10**6
    price = Decimal(pico) / _PICO
    unit = _HOURS if nano else "Count"
    kind = tags.capacity_type.value if tags.capacity_type else "unknown"
    sku = f"{tags.provider}/{spent.instance_type or tags.accelerator or 'machine'}"
    row |= {
        "PricingQuantity": quantity,
        "PricingUnit": unit,
        "ListUnitPrice": price,
        "ContractedUnitPrice": price,
        "PricingCurrencyListUnitPrice": price,
        "PricingCurrencyContractedUnitPrice": price,
        "PricingCategory": _category(entry),
        "SkuId": sku,
        "SkuPriceId": f"{sku}/{tags.region}/{kind}",
        "SkuMeter": "Machine hours" if nano else "Payment",
    }
    if row["ChargeCategory"] == "Usage":
        row |= {"ConsumedQuantity": quantity, "ConsumedUnit": unit}


def _frequency(entry: Entry, *, is_bought: bool, is_adjustment: bool) -> str:
    """The charge frequency of a purchase: payments over its period recur daily; upfront payments are one-time."""
    if is_bought and entry.covers_to > entry.covers_from:
        return "Recurring"
    return "One-Time" if is_bought or is_adjustment else "Usage-Based"


def _category(entry: Entry) -> str:
    if entry.money is MoneyKind.AMORTISED:
        return "Committed"
    return "Dynamic" if entry.tags.capacity_type is CapacityType.SPOT else "Standard"


def commitment_columns(tags: Tags) -> dict[str, Value]:
    """The id of the commitment that capacity with these tags belongs to, the same for its use, its purchase and its
    unused part."""
    kind = tags.capacity_type.value if tags.capacity_type else "prepaid"
    card = card_share(tags.accelerator or "cpu")[0]
    commitment_id = f"{tags.provider}/{tags.region}/{card}/{kind}"
    return {
        "CommitmentDiscountId": commitment_id,
        "CommitmentDiscountName": commitment_id,
        "CommitmentDiscountCategory": "Usage",
        "CommitmentDiscountType": "Owned machines" if tags.capacity_type is CapacityType.OWNED else "Prepaid capacity",
    }


@lru_cache(maxsize=4096)
def _description(tags: Tags, movement: Movement) -> str:
    machines = f"{tags.gpus} x {tags.accelerator}" if tags.accelerator and tags.gpus else tags.accelerator or "machines"
    place = " ".join(filter(None, (tags.provider, tags.region)))
    kind = tags.capacity_type.value if tags.capacity_type else ""
    subject = f"{tags.job_id}, attempt {tags.attempt}" if tags.attempt is not None else tags.job_id
    text = ", ".join(filter(None, (machines, kind, place, movement.value, subject)))
    return text.encode("ascii", "replace").decode()  # required by the specification


@lru_cache(maxsize=4096)
def _tags_json(team: str | None, project: str | None, user: str, workload: str | None, environment: str | None) -> str:
    tags_by_name = {"team": team, "project": project, "user": user, "workload": workload, "environment": environment}
    return json.dumps(
        {name: value for name, value in tags_by_name.items() if value}, ensure_ascii=False, sort_keys=True
    )
