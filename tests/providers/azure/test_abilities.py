"""What Azure tells and does beside offers: machines, ending them, charges."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from broker.core.errors import Malformed, NoLogin, Refused, RetryLater, Throttled, Unreachable
from broker.core.market.capacity import Instance, Reservation
from broker.core.market.offers import CapacityType
from broker.core.values.money import Money
from providers.azure.provider import Azure
from providers.azure.settings import AzureSettings
from tests.contracts.provider_contract import NOW
from tests.fakes.server import FakeServer, Fault, HttpAnswer
from tests.providers.azure.conftest import H100

if TYPE_CHECKING:
    from tests.fakes.azure_cloud import AzureCloud

DAY = timedelta(days=1)


# Machines.


def test_machines_with_our_tag_are_found_and_ended_and_only_those(azure: Azure, cloud: AzureCloud) -> None:
    from tests.fakes.azure_cloud import machine

    cloud.machines = [
        machine("ours", H100.lower(), tags={"gpubroker": "job-1-1"}, zones=["1"]),
        machine("spot", tags={"gpubroker": "job-2-1", "a": "b"}, properties={"priority": "Spot"}),
        machine("theirs", tags={"Name": "gpubroker"}),
        machine("plain"),
    ]
    found = {one.key: one for one in azure.instances()}
    assert set(found) == {"job-1-1", "job-2-1"}
    assert found["job-1-1"] == Instance(
        cloud.machines[0]["id"], "azure", "eastus", "eastus-az3", H100, "job-1-1", "running", True,
        datetime(2026, 11, 20, 10, tzinfo=UTC), CapacityType.ON_DEMAND,
    )  # fmt: skip
    assert (found["job-2-1"].capacity_type, found["job-2-1"].zone) == (CapacityType.SPOT, None)
    for one in found.values():
        azure.terminate(one.id)
        azure.terminate(one.id)
    assert list(azure.instances()) == []
    assert [row["name"] for row in cloud.machines] == ["theirs", "plain"]


@pytest.mark.parametrize(
    ("power", "state", "billed"),
    [
        ("running", "running", True),
        ("starting", "starting", True),
        ("stopped", "stopped", True),
        ("stopping", "stopping", True),
        ("deallocating", "deallocating", False),
        ("deallocated", "deallocated", False),
        ("", "succeeded", True),
    ],
)
def test_trap_a_machine_that_is_stopped_is_billed_until_it_is_deallocated(
    azure: Azure, cloud: AzureCloud, power: str, state: str, billed: bool
) -> None:
    from tests.fakes.azure_cloud import machine

    cloud.machines = [machine("ours", tags={"gpubroker": "k"})]
    cloud.power = {"ours": power}
    assert [(one.state, one.billed) for one in azure.instances()] == [(state, billed)]


def test_a_machine_that_goes_while_it_is_looked_at_is_gone(azure: Azure, cloud: AzureCloud) -> None:
    from tests.fakes.azure_cloud import machine

    cloud.machines = [machine("ours", tags={"gpubroker": "k"})]
    cloud.answers = {"instanceView": HttpAnswer(404, {"error": {"code": "ResourceNotFound", "message": "gone"}})}
    assert list(azure.instances()) == []


def test_a_machine_whose_state_cannot_be_read_is_told_all_the_same(azure: Azure, cloud: AzureCloud) -> None:
    from tests.fakes.azure_cloud import machine

    cloud.machines = [machine(name, tags={"gpubroker": name}) for name in ("one", "two", "three")]
    cloud.answers = {"/two/instanceView": HttpAnswer(500, b"")}
    told: list[Instance] = []
    with pytest.raises(Unreachable, match="two: instance view"):
        told.extend(azure.instances())
    assert [(one.key, one.state, one.billed) for one in told] == [
        ("one", "running", True), ("two", "unknown", True), ("three", "running", True),
    ]  # fmt: skip


def test_a_group_that_fails_does_not_hide_reservations_elsewhere(azure: Azure, cloud: AzureCloud) -> None:
    from tests.fakes.azure_cloud import reservation

    cloud.groups = {"a": "Open", "b": "Open", "c": "Open"}
    cloud.reservations = {name: [reservation(name, "one", H100, 2, 1)] for name in cloud.groups}
    cloud.answers = {"Groups/a/capacityReservations/one": HttpAnswer(500, b""), "Groups/b/": HttpAnswer(403, b"")}
    told: list[Reservation] = []
    with pytest.raises(RetryLater):
        told.extend(azure.reservations())
    assert [(one.id, one.machines, one.free) for one in told] == [("a/one", 2, None), ("c/one", 2, 1)]


def test_ending_what_is_not_there_is_fine_and_what_is_no_machine_is_refused(azure: Azure, cloud: AzureCloud) -> None:
    from tests.fakes.azure_cloud import COMPUTE, GROUP, SUBSCRIPTION

    azure.terminate(f"{GROUP}{COMPUTE}/virtualMachines/never-was")
    cloud.answers = {
        "virtualMachines": HttpAnswer(404, {"error": {"code": "ResourceGroupNotFound", "message": "gone"}})
    }
    azure.terminate(f"{GROUP}{COMPUTE}/virtualMachines/never-was")
    for name in ("", "vm-1", f"{GROUP}{COMPUTE}/disks/vm-1", f"{GROUP}/providers/Microsoft.Web/virtualMachines/x"):
        with pytest.raises(Refused, match="not the name"):
            azure.terminate(name)
    elsewhere = f"{GROUP}{COMPUTE}/virtualMachines/vm-1".replace(SUBSCRIPTION, SUBSCRIPTION.replace("1", "9"))
    with pytest.raises(Refused, match="another subscription"):
        azure.terminate(elsewhere)


@pytest.mark.parametrize(
    "answer", [HttpAnswer(404, b"<html>no such page</html>"), HttpAnswer(404, {"message": "no route"})]
)
def test_a_404_that_is_not_azures_does_not_mean_that_the_machine_is_gone(
    azure: Azure, cloud: AzureCloud, answer: HttpAnswer
) -> None:
    from tests.fakes.azure_cloud import machine

    cloud.machines = [machine("ours", tags={"gpubroker": "k"})]
    cloud.answers = {"virtualMachines": answer}
    with pytest.raises(Refused, match="404"):
        azure.terminate(cloud.machines[0]["id"])


def test_ending_does_not_wait_until_the_machine_is_gone(azure: Azure, cloud: AzureCloud, server: FakeServer) -> None:
    from tests.fakes.azure_cloud import machine

    cloud.machines = [machine("ours", tags={"gpubroker": "k"})]
    azure.terminate(cloud.machines[0]["id"])
    assert [request.method for request in server.requests] == ["DELETE"]


def test_a_machine_that_cannot_be_ended_says_so(azure: Azure, cloud: AzureCloud, server: FakeServer) -> None:
    from tests.fakes.azure_cloud import machine

    cloud.machines = [machine("ours", tags={"gpubroker": "k"})]
    name = cloud.machines[0]["id"]
    cloud.answers = {"virtualMachines": HttpAnswer(403, {"error": {"code": "AuthorizationFailed", "message": "no"}})}
    with pytest.raises(Refused, match="not permitted"):
        azure.terminate(name)
    cloud.answers = {"virtualMachines": HttpAnswer(429, b"", {"Retry-After": "3600"})}
    with pytest.raises(Throttled):
        azure.terminate(name)
    cloud.answers = {}
    server.order(Fault.DISCONNECTED)
    with pytest.raises(Unreachable):
        azure.terminate(name)


# Charges.


def test_charges_are_by_day_and_attempt(azure: Azure, cloud: AzureCloud, server: FakeServer) -> None:
    from tests.fakes.azure_cloud import cost

    cloud.costs = [
        cost("12.3456789", 20261018, "job-1-1"),
        cost("3.5", 20261018),
        cost("0", 20261119, "job-1-1"),
        cost("-1.25", 20261120, "job-1-1"),
        cost("7.0000005", 20261121, "job-1-2"),
    ]
    told = [(one.starts, one.ends - one.starts, one.key, one.amount, one.estimated) for one in azure.charges(NOW)]
    assert told == [
        (datetime(2026, 10, 18, tzinfo=UTC), DAY, "job-1-1", Money(12_345_679), False),
        (datetime(2026, 10, 18, tzinfo=UTC), DAY, "", Money.usd("3.5"), False),
        (datetime(2026, 11, 20, tzinfo=UTC), DAY, "job-1-1", Money.usd("-1.25"), True),
        (datetime(2026, 11, 21, tzinfo=UTC), DAY, "job-1-2", Money(7_000_000), True),
    ]
    assert len(server.requests) == 3
    assert {request.body["timePeriod"]["from"] for request in server.requests} == {"2026-11-21T00:00:00+00:00"}
    assert server.requests[0].body["timePeriod"]["to"] == "2026-11-21T23:59:59+00:00"


def test_a_bill_in_another_currency_is_told_in_usd(azure: Azure, cloud: AzureCloud) -> None:
    from tests.fakes.azure_cloud import cost

    row = cost("10", 20261118, "job", "EUR")
    row[1] = 11
    cloud.costs = [row]
    assert [one.amount for one in azure.charges(NOW)] == [Money.usd(11)]
    cloud.cost_columns = tuple(name if name != "CostUSD" else "UsageQuantity" for name in cloud.cost_columns)
    with pytest.raises(Malformed, match="USD"):
        list(azure.charges(NOW))


@pytest.mark.parametrize("odd", [{"0": "x", "1": "x"}, {"1": None}, {"1": True}, {"2": "today"}, {"2": 20261340}])
def test_a_charge_that_is_none_is_malformed(azure: Azure, cloud: AzureCloud, odd: dict[str, Any]) -> None:
    from tests.fakes.azure_cloud import cost

    row = cost("10", 20261118, "job")
    for index, value in odd.items():
        row[int(index)] = value
    cloud.costs = [row]
    with pytest.raises(Malformed):
        list(azure.charges(NOW - 3 * DAY))


@pytest.mark.parametrize("body", [[], {}, {"properties": {}}, {"properties": {"columns": [], "rows": [[1]]}}])
def test_an_answer_without_a_table_is_malformed(azure: Azure, cloud: AzureCloud, body: Any) -> None:
    cloud.answers = {"CostManagement": HttpAnswer(200, body)}
    with pytest.raises(Malformed):
        list(azure.charges(NOW))


def test_nothing_is_asked_about_the_future(azure: Azure, server: FakeServer) -> None:
    assert list(azure.charges(NOW + 2 * DAY)) == []
    assert not server.requests


# Pages.


@pytest.mark.parametrize("page", [1, 3, 100])
def test_pages_are_followed_at_the_address_that_was_set(azure: Azure, cloud: AzureCloud, page: int) -> None:
    from tests.fakes.azure_cloud import machine

    cloud.page = page
    cloud.machines = [machine(f"vm-{number}", tags={"gpubroker": str(number)}) for number in range(7)]
    assert [one.key for one in azure.instances()] == [str(number) for number in range(7)]


def test_an_empty_page_is_not_the_end(azure: Azure, cloud: AzureCloud) -> None:
    from tests.fakes.azure_cloud import machine

    cloud.gap = True
    cloud.machines = [machine(f"vm-{number}", tags={"gpubroker": str(number)}) for number in range(5)]
    assert len(list(azure.instances())) == 5


@pytest.mark.parametrize("ask", ["instances", "charges", "offers"])
def test_a_page_that_comes_again_ends_with_an_error(
    azure: Azure, cloud: AzureCloud, server: FakeServer, ask: str
) -> None:
    from broker.core.market.offers import OfferQuery
    from tests.fakes.azure_cloud import cost, machine

    cloud.stuck = True
    cloud.machines = [machine(f"vm-{number}", tags={"gpubroker": str(number)}) for number in range(3)]
    cloud.costs = [cost("1", 20261118)] * 3
    cloud.evictions = [{"id": str(number)} for number in range(3)]
    questions: dict[str, Callable[[], Any]] = {
        "instances": azure.instances,
        "charges": lambda: azure.charges(NOW),
        "offers": lambda: azure.offers(OfferQuery()),
    }
    with pytest.raises(Malformed, match="was repeated"):
        list(questions[ask]())
    assert len(server.requests) < 30


def test_without_a_login_each_ability_says_what_is_missing(settings: Callable[..., AzureSettings], clock: Any) -> None:
    nobody = Azure(clock=clock, settings=settings())
    for ask in (nobody.reservations, nobody.instances, lambda: nobody.charges(NOW)):
        with pytest.raises(NoLogin, match="AZURE_SUBSCRIPTION_ID") as caught:
            list(ask())
        assert "az login" in caught.value.hint
    with pytest.raises(NoLogin):
        nobody.terminate("x")
