"""Damaged answers of Azure Resource Manager, through the SDK's own readers: no crash, no figure out of this world, and
no harm to other rows. Seeded."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from broker.core.errors import BrokerError
from broker.core.market.capacity import Charge, Instance, Reservation
from broker.core.market.offers import Offer
from broker.core.values.money import Money
from providers.azure.account import AzureQuota, Sku, SpotScore, eviction_rates, placement_scores, read_skus, read_usages
from providers.azure.charges import read_charges
from providers.azure.fields import AzureLocations, read_locations
from providers.azure.holdings import capacity_reservations, reservation_offers
from providers.azure.login import AzureLogin
from providers.azure.provider import reserved_instances, savings_plans, tagged_machines
from providers.azure.settings import AzureSettings
from tests.contracts.provider_contract import NOW
from tests.fakes.mutate import is_json, mutate
from tests.fakes.server import HttpAnswer
from tests.providers.azure.conftest import H100, T4

if TYPE_CHECKING:
    from tests.fakes.azure_cloud import AzureCloud

SEED = 20261121
_PLACES = AzureLocations(("eastus",), {("eastus", "1"): "eastus-az3"})
_SIZES = (H100, T4, "Standard_NC24ads_A100_v4")


@dataclass(frozen=True)
class DamagedPart:
    """One answer to damage: where it is, which of it are rows, what is made of it (by key), and what has to hold of
    each. ``whole``: one odd row is a reason to give up."""

    path: str
    rows: Callable[[Any], Any]
    ask: Callable[[AzureLogin], dict[Any, Any]]
    check: Callable[[Any], bool]
    whole: bool = False


def _value(body: Any) -> Any:
    return body["value"]


def _reservations(login: AzureLogin) -> dict[str, Reservation]:
    found = {one.id: one for one in capacity_reservations(login, _PLACES)}
    for offer in reservation_offers(found.values(), NOW):
        if isinstance(offer, Offer):
            assert offer.has_valid_price()
            assert offer.slots is None or 0 <= offer.slots <= 10**9
            assert all(part and "/" not in part for part in (offer.region, offer.instance_type, offer.zone or "-"))
        else:
            assert offer.reason
    return found


def _sane_reservation(one: Reservation) -> bool:
    return 0 <= one.machines <= 10**9 and (one.free is None or 0 <= one.free <= one.machines)


def _sane_score(one: SpotScore) -> bool:
    return one.score is None or 0 < one.score < 1


def _sane_charge(one: Charge) -> bool:
    return Money.usd(-(10**9)) <= one.amount <= Money.usd(10**9) and one.starts < one.ends


def _places(login: AzureLogin) -> dict[Any, Any]:
    found = read_locations(login)
    return {**dict.fromkeys(found.regions, "region"), **found.zones}


PARTS = {
    "skus": DamagedPart(
        "/skus", _value, lambda login: dict(read_skus(login, "eastus")), lambda one: isinstance(one, Sku)
    ),
    "usages": DamagedPart(
        "/usages",
        _value,
        lambda login: dict(read_usages(login, "eastus")),
        lambda one: isinstance(one, AzureQuota) and 0 <= one.limit <= 10**9 and 0 <= one.used <= 10**9,
    ),
    "locations": DamagedPart("5555/locations", _value, _places, lambda one: isinstance(one, str) and bool(one)),
    "groups": DamagedPart("/capacityReservationGroups", _value, _reservations, _sane_reservation),
    "reservations": DamagedPart("/capacityReservations", _value, _reservations, _sane_reservation),
    "reservation": DamagedPart(
        "/capacityReservations/one", lambda body: [body], _reservations, _sane_reservation, whole=True
    ),
    "scores": DamagedPart(
        "/placementScores",
        lambda body: body["placementScores"],
        lambda login: dict(placement_scores(login, ("eastus",), _SIZES)),
        _sane_score,
    ),
    "evictions": DamagedPart(
        "/providers/Microsoft.ResourceGraph",
        lambda body: body["data"],
        lambda login: dict(eviction_rates(login)),
        lambda rate: 0 < rate < 10 and math.isfinite(rate),
    ),
    "machines": DamagedPart(
        "/virtualMachines",
        _value,
        lambda login: {one.key: one for one in tagged_machines(login, _PLACES)},
        lambda one: isinstance(one, Instance) and one.id.startswith("/") and isinstance(one.billed, bool),
    ),
    "bought": DamagedPart(
        "/providers/Microsoft.Capacity",
        _value,
        lambda login: {one.id: one for one in reserved_instances(login, NOW)},
        _sane_reservation,
    ),
    "plans": DamagedPart(
        "/providers/Microsoft.BillingBenefits",
        _value,
        lambda login: {one.id: one for one in savings_plans(login, NOW)},
        _sane_reservation,
    ),
    "charges": DamagedPart(
        "/Microsoft.CostManagement",
        lambda body: body["properties"]["rows"],
        lambda login: {(one.key, one.starts): one for one in read_charges(login, NOW, NOW)},
        _sane_charge,
        whole=True,
    ),
}


@pytest.fixture
def populated(cloud: AzureCloud) -> AzureCloud:
    from tests.fakes.azure_cloud import bought, closed, cost, machine, plan, reservation, sku, usage

    cloud.page = 100
    cloud.skus = [sku(name, "eastus", f"family{name}", closed("eastus"), zones=("1", "2")) for name in _SIZES]
    cloud.usages = {"eastus": [usage(name, 5, 100) for name in ("cores", "lowPriorityCores", "familyX")]}
    cloud.groups = {"open": "Open", "named": "Targeted"}
    cloud.reservations = {
        "open": [reservation("open", "one", H100, 3, 1), reservation("open", "two", T4, 2, 0)],
        "named": [reservation("named", "three", H100, 1, 0)],
    }
    cloud.scores = {("eastus", name): ("High", True) for name in _SIZES}
    cloud.evictions = [
        {"id": name, "skuName": name.lower(), "location": "eastus", "spotEvictionRate": "5-10"} for name in _SIZES
    ]
    cloud.machines = [machine(f"vm-{number}", tags={"gpubroker": f"job-{number}"}, zones=["1"]) for number in range(3)]
    cloud.bought = [bought(f"ri-{number}", H100, number) for number in range(1, 4)]
    cloud.plans = [plan(f"sp-{number}") for number in range(3)]
    cloud.costs = [cost("1.5", 20261118 + number, f"job-{number}") for number in range(3)]
    return cloud


@pytest.fixture
def login(populated: AzureCloud, settings: Callable[..., AzureSettings], clock: Any) -> AzureLogin:
    from tests.fakes.azure_cloud import SUBSCRIPTION, Credential

    return AzureLogin(Credential(), SUBSCRIPTION, settings(), clock)


class AnswerDamage:
    """Takes the answers of one path down, or puts a body in place of the next; the others stay as they are."""

    def __init__(self, cloud: AzureCloud, part: DamagedPart) -> None:
        self.body: bytes | None = None
        self.taken = b""
        cloud.mangle = {part.path: self}

    def __call__(self, body: bytes) -> bytes:
        self.taken = self.taken or body
        if self.body is None:
            return body
        damaged, self.body = self.body, None
        return damaged


def check(part: DamagedPart, cloud: AzureCloud, login: AzureLogin, number: int) -> None:
    damage = AnswerDamage(cloud, part)
    assert part.ask(login), "nothing is found in the undamaged answer"
    body = json.loads(damage.taken)
    alone = []
    for index in range(0 if part.whole else len(part.rows(body))):
        single = json.loads(damage.taken)
        part.rows(single)[:] = [part.rows(single)[index]]
        damage.body = json.dumps(single).encode()
        alone.append(set(part.ask(login).items()))
    chance, readable = random.Random(SEED), 0
    for mutant in range(number):
        made = mutate(body, part.rows, chance)
        readable += is_json(made.body)
        damage.body = made.body
        login.begin()
        where = f"mutant {mutant} of seed {SEED}: {made.body[:300]!r}"
        try:
            found = part.ask(login)
        except BrokerError:
            assert part.whole or made.row is None, f"one odd row is no reason to give up: {where}"
            continue
        assert all(part.check(one) for one in found.values()), f"{found}: {where}"
        if made.row is not None and not part.whole:
            others = {item for index, own in enumerate(alone) if index != made.row for item in own}
            lost = others - set(found.items()) - alone[made.row]
            assert not lost, f"loses {lost}: {where}"
    assert 2 * readable >= number


@pytest.mark.parametrize("mutants", [5, pytest.param(50, marks=pytest.mark.system)])
@pytest.mark.parametrize("name", PARTS)
def test_damaged_answers_harm_nothing_but_the_damaged_row(
    populated: AzureCloud, login: AzureLogin, name: str, mutants: int
) -> None:
    check(PARTS[name], populated, login, mutants)


def test_what_is_read_exactly_stays_exact(populated: AzureCloud, login: AzureLogin) -> None:
    populated.costs[0][1] = Decimal("123456789.123456")
    assert next(read_charges(login, NOW, NOW)).amount == Money(123_456_789_123_456)
    populated.answers = {"/Microsoft.CostManagement": HttpAnswer(200, b'{"properties": {"columns": [], "rows": []}}')}
    assert list(read_charges(login, NOW, NOW)) == []
