"""Azure's reservations and savings plans, which are discounts without capacity; with a login.

They belong to a billing account and are visible across subscriptions with the roles Reservations Reader and Savings
Plan Reader. They hold no capacity, and their use is unknown here, so they are reported but make no offers. Documented
in Microsoft Learn as "Reservation - List All" and "Savings Plan - List All".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from broker.core.market.capacity import Reservation
from broker.core.purchases.purchases import is_purchase
from providers.azure.errors import NotPermitted
from providers.azure.fields import count, inside, parts_of, region_of, utc
from providers.azure.login import AzureLogin
from providers.azure.machines import listed
from providers.azure.settings import NAME

RESERVED_INSTANCES = "reserved_instances"
SAVINGS_PLAN = "savings_plan"

RESERVATIONS = "/providers/Microsoft.Capacity/reservations"
RESERVATIONS_VERSION = "2022-11-01"
SAVINGS_PLANS = "/providers/Microsoft.BillingBenefits/savingsPlans"
SAVINGS_PLANS_VERSION = "2022-11-01"

_ACTIVE = "succeeded"


def reserved_instances(login: AzureLogin, now: datetime) -> Iterator[Reservation]:
    """Reservations of machines with accelerators that are in force. Raises what `AzureLogin.rows` raises."""
    for row in _rows(login, "reservations", RESERVATIONS, RESERVATIONS_VERSION, "Reservations Reader"):
        about, instance_type = inside(row, "properties"), listed(str(inside(row, "sku").get("name")))
        id = parts_of(row.get("id")).get("reservations")
        ends = utc(about.get("expiryDateTime")) or utc(about.get("expiryDate"))
        if instance_type is None or not id or not _is_active(about.get("provisioningState"), ends, now):
            continue
        yield Reservation(
            id=id,
            provider=NAME,
            region=region_of(row) or "*",
            zone=None,
            instance_type=instance_type,
            machines=count(about.get("quantity")) or 0,
            kind=RESERVED_INSTANCES,
            starts=utc(about.get("effectiveDateTime")),
            ends=ends,
            holds_capacity=False,
            mark=_mark(about),
        )


def savings_plans(login: AzureLogin, now: datetime) -> Iterator[Reservation]:
    """Savings plans for compute that are in force; they apply everywhere. Raises what `AzureLogin.rows` raises."""
    for row in _rows(login, "savings plans", SAVINGS_PLANS, SAVINGS_PLANS_VERSION, "Savings Plan Reader"):
        about, id = inside(row, "properties"), parts_of(row.get("id")).get("savingsplans")
        ends = utc(about.get("expiryDateTime"))
        if not id or not _is_active(about.get("provisioningState"), ends, now):
            continue
        yield Reservation(
            id=id,
            provider=NAME,
            region="*",
            zone=None,
            instance_type="*",
            machines=0,
            kind=SAVINGS_PLAN,
            starts=utc(about.get("effectiveDateTime")),
            ends=ends,
            holds_capacity=False,
            mark=_mark(about),
        )


def _mark(about: Mapping[str, Any]) -> str:
    """The id of the purchase, which is the name of the discount."""
    name = about.get("displayName")
    return name if isinstance(name, str) and is_purchase(name) else ""


def _rows(login: AzureLogin, where: str, path: str, version: str, role: str) -> Iterator[Mapping[str, Any]]:
    try:
        yield from login.plain_rows(where, path, version=version)
    except NotPermitted as error:
        error.hint = f"the login needs the role {role!r} to list purchases"
        raise


def _is_active(state: object, ends: datetime | None, now: datetime) -> bool:
    return isinstance(state, str) and state.lower() == _ACTIVE and (ends is None or ends > now)
