"""The columns of the dataset Cost and Usage in FOCUS 1.2 (May 2025) and 1.4 (June 2026), and the project's own.

Source: the specification's column library, https://focus.finops.org/focus-specification/. Version 1.4 renames the
columns of the service's provider and of the machines' host. Its new columns are optional: they are for shared costs and
contracts, which the ledger does not have. The project's own columns begin with ``x_``, as the specification requires.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

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
        SubAccountName SubAccountType Tags x_Accelerator x_Attempt x_CapacityType x_Environment x_Gpus x_JobId
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


def header(version: str) -> list[str]:
    """The names of the columns in that version, in the order of `KINDS`."""
    renamed = _RENAMED[version]
    return [renamed.get(name, name) for name in KINDS]
