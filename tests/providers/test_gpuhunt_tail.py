"""The long tail through gpuhunt: its real classes, over real sockets, against the small clouds on loopback."""

import copy
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from broker.core.errors import (
    InvalidInput,
    LoginMissing,
    NoLogin,
    RetryLater,
    Unreachable,
)
from broker.core.market.offers import CapacityType, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.gpuhunt_clouds import CLOUDS
from providers.gpuhunt_tail import Gpuhunt, GpuhuntSettings
from providers.registry import build
from tests.contracts.http_faults import HttpFaults
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.fakes.asking import until_error
from tests.fakes.longtail import LOGINS, LongTail
from tests.fakes.mutate import JsonAnswers
from tests.fakes.server import FakeServer, HttpAnswer, Market

pytest.importorskip("gpuhunt", reason="the optional install gpuhunt")


def gpuhunt(url: str, clock: ManualClock, *clouds: str, logins: dict[str, str] = LOGINS, **settings: Any) -> Gpuhunt:
    return Gpuhunt(
        clock=clock, settings=GpuhuntSettings(base_url=url, clouds=clouds, **settings), environment=dict(logins)
    )


@pytest.fixture
def market() -> LongTail:
    return LongTail()


@pytest.fixture
def server(market: LongTail) -> Iterator[FakeServer]:
    with FakeServer(market) as running:
        yield running


class TestGpuhuntIsAProvider(ProviderContract):
    plugin = "gpuhunt"

    @pytest.fixture
    def provider(self, clock: ManualClock, server: FakeServer) -> Gpuhunt:
        return gpuhunt(server.url, clock, "crusoe", "seeweb", "lium")


class TestFaultsOfGpuhunt(HttpFaults):
    """Of one cloud alone: what one of several does to the others is below."""

    def market(self) -> Market:
        return LongTail()

    def make(self, url: str, clock: ManualClock, **settings: Any) -> Gpuhunt:
        return gpuhunt(url, clock, "vultr", **settings)


def rows(server: FakeServer, *clouds: str, **more: Any) -> tuple[list[Offer], list[SkippedRow]]:
    found = list(gpuhunt(server.url, ManualClock(NOW), *clouds, **more).offers(OfferQuery()))
    return [r for r in found if isinstance(r, Offer)], [r for r in found if isinstance(r, SkippedRow)]


def test_every_cloud_is_a_provider_of_its_own_with_exact_prices(server: FakeServer) -> None:
    offers, _ = rows(server, *CLOUDS)
    cheapest = {(o.provider, o.machine, o.capacity_type.value): o.price for o in offers}
    assert {provider for provider, _, _ in cheapest} == set(CLOUDS)
    assert cheapest["vultr", "H100:8", "on_demand"] == Money.usd("23.92")
    assert cheapest["vultr", "A100-80GB:1", "on_demand"] == Money.usd("2.397")
    assert cheapest["lium", "RTX4090:2", "on_demand"] == Money.usd("0.58")
    assert cheapest["lium", "H100:8", "spot"] == Money.usd("14.4")
    assert cheapest["cloudrift", "RTX5090:1", "on_demand"] == Money.usd("0.65")
    assert cheapest["digitalocean", "H100:8", "on_demand"] == Money.usd("23.92")
    assert cheapest["hotaisle", "MI300X:1", "on_demand"] == Money.usd("1.99")
    assert cheapest["jarvislabs", "A100-80GB:2", "on_demand"] == Money.usd("2.98")
    assert cheapest["seeweb", "H100:1", "on_demand"] == Money.usd("2.19")
    assert cheapest["crusoe", "H100:8", "on_demand"] == Money.usd("31.2")
    assert cheapest["daytona", "H100:1", "on_demand"] == Money.usd("5.040848")


def test_a_cloud_with_an_adapter_of_its_own_is_asked_only_on_request(server: FakeServer) -> None:
    assert {offer.provider for offer in rows(server)[0]} == {*CLOUDS} - {"vultr"}


def test_a_price_in_gpuhunts_own_code_is_a_reference_and_its_source_says_so(server: FakeServer) -> None:
    offers, _ = rows(server)
    written = [offer for offer in offers if offer.reference]
    assert {offer.provider for offer in written} == {"crusoe"}
    assert all(offer.source.endswith(":price-in-its-code") and offer.max_age is None for offer in written)
    assert {offer.as_of for offer in written} == {datetime(2026, 10, 20, tzinfo=UTC)}
    live = [offer for offer in offers if not offer.reference]
    assert {offer.as_of for offer in live} == {NOW}
    assert {offer.source for offer in live} == {"gpuhunt"}
    assert {(o.capacity_type, o.max_age) for o in live} == {
        (CapacityType.ON_DEMAND, timedelta(hours=6)),
        (CapacityType.SPOT, timedelta(minutes=30)),
    }


def test_a_price_that_gpuhunt_guessed_is_left_out(server: FakeServer) -> None:
    offers, skipped = rows(server, "crusoe")
    assert {offer.accelerator for offer in offers} == {"H100"}
    assert [row.reason for row in skipped] == ["guessed_price"]


def test_a_twentieth_of_a_card_is_no_cheap_card(server: FakeServer) -> None:
    """gpuhunt counts a fraction of an A100 as one, with 4 GB."""
    offers, skipped = rows(server, "vultr")
    assert {o.instance_type for o in offers if o.accelerator == "A100-80GB"} == {"vcg-a100-12c-120g-80vram"}
    part = {o.machine: o.price for o in offers if o.instance_type == "vcg-a100-1c-6g-4vram"}
    assert part == {"A100-1of10:1": Money.usd("0.123")}, "gpuhunt does not tell which A100; Vultr's own adapter knows"
    assert skipped == []


def test_what_gpuhunt_passes_over_is_counted_and_not_printed(
    market: LongTail, server: FakeServer, capfd: pytest.CaptureFixture[str]
) -> None:
    market.bodies["/vultr/v2/plans"]["plans"][0]["gpu_type"] = "NVIDIA_X900"
    _, skipped = rows(server, "vultr", "daytona")
    counted = Counter(row.reason for row in skipped)
    assert set(counted) == {"passed_over_by_gpuhunt"}
    assert any("X900" in row.detail for row in skipped)
    assert not any("DAYTONA_API_KEY" in row.detail for row in skipped)
    assert capfd.readouterr() == ("", "")
    assert not logging.getLogger("gpuhunt.providers.vultr").handlers


@pytest.mark.parametrize("broken", sorted({*CLOUDS} - {"vultr"}))
def test_one_cloud_that_fails_does_not_hold_back_the_others(market: LongTail, server: FakeServer, broken: str) -> None:
    before, _ = rows(server)
    market.broken[broken] = lambda _: HttpAnswer(500, b"<html>down</html>")
    found, error = until_error(gpuhunt(server.url, ManualClock(NOW), attempts=1))
    assert {o.id for o in found if isinstance(o, Offer)} == {o.id for o in before if o.provider != broken}
    assert isinstance(error, RetryLater)
    assert error.where == f"gpuhunt/{broken}"


def test_a_part_that_a_cloud_did_not_tell_is_an_error_though_gpuhunt_shrugs(
    market: LongTail, server: FakeServer
) -> None:
    """Hot Aisle's bare metal fails, its virtual machines do not: otherwise the poll would seem complete."""
    whole = market.bodies
    market.broken["hotaisle"] = lambda request: (
        HttpAnswer(503, b"busy") if "bare_metal" in request.path else HttpAnswer(200, whole[request.path])
    )
    found, error = until_error(gpuhunt(server.url, ManualClock(NOW), "hotaisle", attempts=1))
    assert {o.accelerator for o in found if isinstance(o, Offer)} == {"MI300X"}
    assert isinstance(error, Unreachable)
    assert len(server.requests) == 2, "to look for rows that are left out, nobody is asked again"


def test_a_login_that_is_refused_names_the_variable_and_not_the_key(market: LongTail, server: FakeServer) -> None:
    market.broken["digitalocean"] = lambda _: HttpAnswer(401, {"message": "bad token do-secret"})
    _, error = until_error(gpuhunt(server.url, ManualClock(NOW), "digitalocean", "vultr"))
    assert isinstance(error, LoginMissing)
    assert "DIGITAL_OCEAN_API_KEY" in error.hint
    assert "do-secret" not in f"{error} {error.hint}"


def test_clouds_without_their_login_are_left_out(server: FakeServer) -> None:
    offers, _ = rows(server, logins={})
    assert {offer.provider for offer in offers} == {"cloudrift", "daytona", "lium"}
    with pytest.raises(NoLogin, match="none of the selected clouds") as caught:
        rows(server, "crusoe", "seeweb", logins={"CRUSOE_ACCESS_KEY": "only-one-of-three"})
    assert "SEEWEB_API_TOKEN" in caught.value.hint


def test_an_unknown_cloud_is_named_with_the_one_meant() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'vultr'"):
        build("gpuhunt", clock=ManualClock(NOW), settings={"clouds": ["vultur"]})


# An answer of each cloud, and where its rows are.
ROWS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "lium": ("/lium/api/public/v1/nodes", lambda body: body["nodes"]),
    "seeweb": ("/seeweb/ecs/v2/plans", lambda body: body["plans"]),
    "vultr": ("/vultr/v2/plans", lambda body: body["plans"]),
    "digitalocean": ("/digitalocean/v2/sizes", lambda body: body["sizes"]),
    "hotaisle": ("/hotaisle/api/teams/team/virtual_machines/available/", lambda body: body),
    "jarvislabs": ("/jarvislabs/misc/server_meta", lambda body: body["server_meta"]),
    "crusoe": ("/crusoe/v1alpha5/projects/p-1/compute/vms/types", lambda body: body["items"]),
    "cloudrift": ("/cloudrift/api/v1/instance-types/list", lambda body: body["data"]["instance_types"][0]["variants"]),
    "daytona": ("/daytona/gpu-pricing", lambda body: body["gpus"]),
}


# Damage by which the answer itself says that there is no such offer.
FAIR = {
    # How many GPUs can be rented, from which number on, and with how much disk each; a node that does not say from
    # which number on is rented as a whole.
    "lium": r"gpu_count\.(deleted|= )|disk_free_gb\.= ",
    "vultr": r"locations\.\d+\.deleted|deploy_ondemand\.= False",
    "jarvislabs": r"(num_gpus|num_free_devices)\.(deleted|= )",
    "seeweb": r"available_regions\.\d+\.deleted",
    "digitalocean": r"regions\.\d+\.deleted",
}


def answers(cloud: str) -> JsonAnswers:
    path, inside = ROWS[cloud]
    body = json.loads(json.dumps(LongTail().bodies[path]), parse_float=Decimal)
    rows = inside(body)
    rows[:] = [row for row in rows if row.get("type") != "vc2" and row.get("slug") != "s-1vcpu-1gb"][:2]
    rows += [named(rows[0], number) for number in range(3)]
    rows[:] = [row for row in rows if row.get("id") != "vcg-a100-1c-6g-4vram"]
    rows[:] = [row for row in rows if not str(row.get("product_name")).startswith("b200")]
    market = LongTail()
    market.bodies["/vultr/v2/plans-metal"]["plans_metal"] = []
    capacities = market.bodies["/crusoe/v1alpha5/capacities"]["items"]
    capacities[:] = capacities[:1]
    types = [row["product_name"] for row in rows if "product_name" in row]
    types = [*types[1:], *(f"{name}-{number}" for name in types for number in range(1, 10))]  # also of a market grown
    capacities += [{**capacities[0], "type": name} for name in types]

    def make(url: str, clock: ManualClock) -> Gpuhunt:
        return gpuhunt(url, clock, cloud, attempts=1)

    return JsonAnswers(make, market, path, body, inside, fair=FAIR.get(cloud, r"$^"))


def named(row: dict[str, Any], number: int) -> dict[str, Any]:
    """The same row by another name; where gpuhunt makes the name, with another number of GPUs."""
    other = copy.deepcopy(row)
    for key in {"id", "name", "slug", "product_name"} & {*row}:
        other[key] = f"{row[key]}-{number}"
    if "onDemandPricePerHour" in row:
        other["type"] = ("B300", "H200", "RTX-5090")[number]
    if "Specs" in row:
        other["Specs"]["gpus"][0]["count"] = number + 2
    if "gpu_type" in row and "region" in row:
        other["gpu_type"] = ("H100", "H200", "L4")[number]
        other["vram"] = ("80", "141", "24")[number]
    return other
