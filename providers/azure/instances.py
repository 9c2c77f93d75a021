"""Machines of the subscription with gpubroker's tag, and their deletion; with a login.

Whatever starts machines on Azure for gpubroker sets the tags ``gpubroker`` (the attempt's key) and ``gpubroker-store``
(the id of the requesting store). A machine stopped from within is billed until it is deallocated or deleted (Microsoft
Learn, "States and billing status of Azure Virtual Machines"). Disks, addresses and network cards end with a machine if
they were created with ``deleteOption: Delete``; others remain and cost money.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from broker.core.errors import Refused
from broker.core.market.capacity import Instance
from broker.core.market.machines import STORE_TAG, TAG
from broker.core.market.offers import CapacityType
from providers.azure.errors import NotThere
from providers.azure.fields import inside, objects, parts_of, region_of, texts, utc
from providers.azure.locations import AzureLocations
from providers.azure.login import AzureLogin
from providers.azure.machines import listed
from providers.azure.settings import NAME
from providers.failures import Failures

_NOT_BILLED = ("creating", "deallocating", "deallocated")


def tagged(login: AzureLogin, locations: AzureLocations) -> Iterator[Instance]:
    """Tagged machines of all regions; Azure does not list those of uniform scale sets. One whose state cannot be read
    is reported as ``unknown``, and billed. Raises what `AzureLogin.rows` raises, at the end.
    """
    failures = Failures()
    for row in failures.kept(login.rows("virtual machines", lambda client: client.virtual_machines.list_all())):
        key, names = inside(row, "tags").get(TAG), parts_of(row.get("id"))
        resources, called = names.get("resourcegroups"), names.get("virtualmachines")
        if not isinstance(key, str) or not resources or not called:
            continue
        state = failures.result(partial(_state, login, resources, called, row), "unknown")
        if state:
            yield _instance(row, key, state, locations)
    failures.raise_any()


def _state(login: AzureLogin, resources: str, called: str, row: Mapping[str, Any]) -> str:
    """Azure's state of the machine; empty if it has gone since it was listed."""
    try:
        view = login.call(
            f"{called}: instance view", lambda client: client.virtual_machines.instance_view(resources, called)
        )
    except NotThere:
        return ""
    codes = [code for one in objects(view.get("statuses")) for code in texts([one.get("code")])]
    power = [code.partition("/")[2] for code in codes if code.startswith("PowerState/")]
    made = inside(row, "properties").get("provisioningState")
    return (power[0] if power else str(made or "unknown")).lower()


def _instance(row: Mapping[str, Any], key: str, state: str, locations: AzureLocations) -> Instance:
    about, zones = inside(row, "properties"), list(texts(row.get("zones")))
    size, region = str(inside(about, "hardwareProfile").get("vmSize") or ""), region_of(row)
    return Instance(
        id=str(row["id"]),
        provider=NAME,
        region=region,
        zone=locations.zone(region, zones[0]) if zones else None,
        instance_type=listed(size) or size,
        key=key,
        state=state,
        billed=state not in _NOT_BILLED,
        since=utc(about.get("timeCreated")),
        capacity_type=_how(about),
        store=str(inside(row, "tags").get(STORE_TAG) or ""),
    )


def _how(about: Mapping[str, Any]) -> CapacityType:
    if about.get("priority") in ("Spot", "Low"):
        return CapacityType.SPOT
    return CapacityType.RESERVED if about.get("capacityReservation") else CapacityType.ON_DEMAND


def terminate(login: AzureLogin, id: str) -> None:
    """Delete a machine (its id in Azure Resource Manager, as in `tagged`), without waiting. Idempotent: an unknown one
    is no error. Raises what `AzureLogin.call` raises, and `Refused` for another form of name or another subscription.
    """
    names = parts_of(id)
    resources, called = names.get("resourcegroups"), names.get("virtualmachines")
    if not resources or not called or names.get("providers", "").lower() != "microsoft.compute":
        expected = "/subscriptions/…/resourceGroups/…/providers/Microsoft.Compute/virtualMachines/…"
        raise Refused(f"not the name of a machine: {id!r}", where=NAME, hint=f"expected {expected}")
    if names.get("subscriptions", "").lower() != login.subscription.lower():
        raise Refused(f"a machine of another subscription: {id!r}", where=NAME, hint="look at AZURE_SUBSCRIPTION_ID")
    with suppress(NotThere):
        login.call(
            f"{called}: delete", lambda client: client.virtual_machines.begin_delete(resources, called, polling=False)
        )
