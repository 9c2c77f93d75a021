"""Oracle Cloud's GPU shapes and their prices."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from broker.core.errors import Malformed
from broker.core.market.offers import CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.oci import Oci, OciSettings
from providers.pricebook import Pricebook
from tests.contracts.http_faults import HttpFaults
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.fakes.mutate import JsonAnswers
from tests.fakes.oci import Localization, OciChoice, OciMarket, OciPart, OciPrice, OciShape, Product, gpu_shape, product
from tests.fakes.server import FakeServer, Fault, HttpAnswer, HttpRequest, Market

SHAPES = [
    gpu_shape("BM.GPU.H100.8", 8, 640, "B98415", 112, 2048),
    gpu_shape("BM.GPU4.8", 8, 320, "B92740", 64, 2048),
    gpu_shape("BM.GPU.A100-v2.8", 8, 640, "B95907", 128, 2048),
    gpu_shape("BM.GPU.MI300X.8", 8, 1536, "B109485", 112, 2048),
    gpu_shape("BM.GPU.MI355X.8", 8, 288, "B111758", 128, 3072),
    gpu_shape("BM.GPU.GB200.4 (NVL72)", 4, 756, "B110979", 128, 960),
    gpu_shape("BM.GPU.B300.8", 8, 2100, "B112237", None, None),
    gpu_shape("BM.GPU.RTXPRO.8", 8, 768, "B112613", None, None),
    gpu_shape("VM.GPU.A10.2", 2, 48, "B95909", 30, 480),
    gpu_shape("VM.GPU3.1", 1, 16, "B89734", 6, 90, preemptible=True),
]
PRODUCTS = [
    product("B98415", 10),
    product("B92740", Decimal("3.05")),
    product("B95907", 4),
    product("B109485", 6),
    product("B111758", Decimal("8.6")),
    product("B110979", 16),
    product("B112237", 15),
    product("B112613", Decimal("4.5")),
    product("B95909", 2),
    product("B89734", Decimal("2.95")),
]


def oci(url: str, clock: ManualClock, **settings: Any) -> Oci:
    return Oci(clock=clock, settings=OciSettings(base_url=url, **settings))


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(OciMarket(SHAPES, PRODUCTS)) as running:
        yield running


class TestOciIsAProvider(ProviderContract):
    plugin = "oci"

    @pytest.fixture
    def provider(self, clock: ManualClock, server: FakeServer) -> Oci:
        return oci(server.url, clock)


class TestFaultsOfOci(HttpFaults):
    def market(self) -> Market:
        return OciMarket(SHAPES, PRODUCTS)

    def make(self, url: str, clock: ManualClock, **settings: Any) -> Oci:
        return oci(url, clock, **settings)


def rows(shapes: list[OciShape], products: list[Product]) -> list[Offer | SkippedRow]:
    with FakeServer(OciMarket(shapes, products)) as server:
        return list(oci(server.url, ManualClock(NOW)).offers(OfferQuery()))


def offers(shapes: list[OciShape], products: list[Product]) -> dict[tuple[str, str], Offer]:
    found = [row for row in rows(shapes, products) if isinstance(row, Offer)]
    return {(offer.instance_type, offer.capacity_type.value): offer for offer in found}


def test_prices_are_per_gpu_and_exact() -> None:
    found = {key: offer.price for key, offer in offers(SHAPES, PRODUCTS).items()}
    assert found == {
        ("BM.GPU.H100.8", "on_demand"): Money.usd(80),
        ("BM.GPU4.8", "on_demand"): Money.usd("24.4"),
        ("BM.GPU.A100-v2.8", "on_demand"): Money.usd(32),
        ("BM.GPU.MI300X.8", "on_demand"): Money.usd(48),
        ("BM.GPU.MI355X.8", "on_demand"): Money.usd("68.8"),
        ("BM.GPU.GB200.4", "on_demand"): Money.usd(64),
        ("BM.GPU.B300.8", "on_demand"): Money.usd(120),
        ("BM.GPU.RTXPRO.8", "on_demand"): Money.usd(36),
        ("VM.GPU.A10.2", "on_demand"): Money.usd(4),
        ("VM.GPU3.1", "on_demand"): Money.usd("2.95"),
        ("VM.GPU3.1", "spot"): Money.usd("1.475"),
    }


def test_a_card_is_told_by_the_shapes_name_and_its_memory() -> None:
    """The memory of a GPU is the machine's for most shapes, and one card's for MI355X."""
    cards = {offer.instance_type: (offer.accelerator, offer.count) for offer in offers(SHAPES, PRODUCTS).values()}
    assert cards["BM.GPU4.8"] == ("A100", 8)
    assert cards["BM.GPU.A100-v2.8"] == ("A100-80GB", 8)
    assert cards["BM.GPU.MI355X.8"] == ("MI355X", 8)
    assert cards["BM.GPU.GB200.4"] == ("GB200", 4)
    assert cards["BM.GPU.RTXPRO.8"] == ("RTXPRO6000", 8)
    assert cards["VM.GPU3.1"] == ("V100", 1)


def test_half_the_price_is_a_rule_and_the_source_says_so() -> None:
    spot = offers(SHAPES, PRODUCTS)["VM.GPU3.1", "spot"]
    assert spot.source == "oci-estimator:preemptible-is-half"
    assert {o.source for o in offers(SHAPES, PRODUCTS).values() if o.capacity_type is CapacityType.ON_DEMAND} == {
        "oci-estimator"
    }


def test_threads_memory_links_and_billing() -> None:
    found = offers(SHAPES, PRODUCTS)
    h100, gb200, b300 = (found[f"BM.GPU.{kind}", "on_demand"] for kind in ("H100.8", "GB200.4", "B300.8"))
    a10, v100 = found["VM.GPU.A10.2", "on_demand"], found["VM.GPU3.1", "on_demand"]
    assert (h100.cpus, gb200.cpus, b300.cpus, v100.cpus) == (224, 128, None, 12)
    assert (h100.memory_gib, b300.memory_gib) == (2048, None)
    assert (h100.interconnect, a10.interconnect, v100.interconnect) == (Interconnect.NVLINK, Interconnect.PCIE, None)
    assert (h100.billing.minimum, a10.billing.minimum) == (timedelta(hours=1), timedelta(minutes=1))


def test_a_machine_is_the_sum_of_its_parts() -> None:
    shape = SHAPES[0].model_copy(
        update={
            "products": [
                OciPart(partNumber="B98415", qty=112),
                OciPart(partNumber="MEM", qty=2048, type=OciChoice(value="memory")),
            ]
        }
    )
    (offer,) = offers([shape], [*PRODUCTS, product("MEM", Decimal("0.0015"))]).values()
    assert offer.price == Money.usd("83.072")


@pytest.mark.parametrize(
    ("part", "products"),
    [
        (OciPart(partNumber="GONE", qty=112), PRODUCTS),
        (OciPart(partNumber="B98415", qty=1, type=OciChoice(value="disk")), PRODUCTS),
        (OciPart(partNumber="B98415", qty=112), [Product(partNumber="B98415", pricetype="MONTH")]),
        (OciPart(partNumber="B98415", qty=112), [product("B98415", 10), product("B98415", 11)]),
        (
            OciPart(partNumber="B98415", qty=112),
            [
                Product(
                    partNumber="B98415",
                    currencyCodeLocalizations=[Localization(currencyCode="EUR", prices=[OciPrice(value=9)])],
                )
            ],
        ),
        (
            OciPart(partNumber="B98415", qty=112),
            [
                Product(
                    partNumber="B98415",
                    currencyCodeLocalizations=[
                        Localization(currencyCode="USD", prices=[OciPrice(model="MONTHLY_COMMIT", value=7)])
                    ],
                )
            ],
        ),
    ],
    ids=["no product", "unknown part", "by the month", "two prices", "another currency", "commitment only"],
)
def test_a_machine_whose_parts_are_not_all_priced_is_no_offer(part: OciPart, products: list[Product]) -> None:
    shape = SHAPES[0].model_copy(update={"products": [part]})
    found = rows([shape, SHAPES[9]], [*products, product("B89734", Decimal("2.95"))])
    assert {row.instance_type for row in found if isinstance(row, Offer)} == {"VM.GPU3.1"}
    assert [row.reason for row in found if isinstance(row, SkippedRow)] == ["part_without_price"]


def test_a_part_without_any_price_is_never_free() -> None:
    """Shapes that are announced have products that cost 0 until they are on sale."""
    found = rows([SHAPES[0]], [product("B98415", 0)])
    assert [row.reason for row in found if isinstance(row, SkippedRow)] == ["invalid_price"]
    assert len(found) == 1


def test_what_is_hidden_retired_or_unknown_is_counted_and_machines_without_gpus_are_not() -> None:
    hidden = SHAPES[0].model_copy(update={"name": "BM.GPU.H100.4", "hidden": True})
    retired = SHAPES[0].model_copy(update={"name": "BM.GPU.H100.2", "status": "RETIRED"})
    unknown = SHAPES[0].model_copy(update={"name": "BM.GPU.X900.8"})
    odd = SHAPES[0].model_copy(update={"name": "GPU cluster"})
    standard = {"name": "VM.Standard.E5.Flex", "subType": OciChoice(value="standard"), "gpuQty": None}
    plain = SHAPES[0].model_copy(update=standard)
    untyped = SHAPES[0].model_copy(update={"name": "BM.GPU.B200.8", "subType": OciChoice(value="")})
    found = rows([SHAPES[1], hidden, retired, unknown, odd, plain, untyped], PRODUCTS)
    assert sum(isinstance(row, Offer) for row in found) == 1
    assert Counter(row.reason for row in found if isinstance(row, SkippedRow)) == {
        "not_on_sale": 2,
        "unknown_accelerator": 2,
        "malformed_row": 1,
    }


def test_the_price_book_and_the_live_rows_are_of_the_same_pools() -> None:
    a10 = [gpu_shape(f"{kind}.GPU.A10.{n}", n, 24 * n, "B95909", 15 * n, 240) for kind, n in (("VM", 1), ("BM", 4))]
    live = {row.pool for row in rows([*SHAPES, *a10], PRODUCTS) if isinstance(row, Offer)}
    book = Pricebook(clock=ManualClock(NOW)).offers(OfferQuery())
    listed = {row.pool for row in book if isinstance(row, Offer) and row.provider == "oci" and row.accelerator}
    assert listed
    assert listed <= live


@pytest.mark.parametrize("fault", [Fault.WRONG_TYPE, Fault.NOT_JSON, Fault.EMPTY_BODY])
def test_a_second_document_of_another_shape_is_malformed(fault: Fault) -> None:
    market = OciMarket(SHAPES, PRODUCTS)
    with FakeServer(market) as server:
        clock = ManualClock(NOW)
        answers = oci(server.url, clock).offers(OfferQuery())

        def shapes_first(request: HttpRequest) -> HttpAnswer:
            server.order(fault)  # for the next one, products.json
            return market(request)

        server.market = shapes_first
        with pytest.raises(Malformed):
            list(answers)


ROWS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "shapes": ("/shapes.json", lambda body: body["items"]),
    "products": ("/products.json", lambda body: body["items"]),
    "prices": ("/products.json", lambda body: body["items"][0]["currencyCodeLocalizations"][1]["prices"]),
}


def answers(what: str, shapes: str = "6") -> JsonAnswers:
    """Damage to one of the documents. A product belongs to one shape here, so the others are to stay."""
    document, inside = ROWS[what]
    market = OciMarket(SHAPES[: int(shapes)], PRODUCTS[: int(shapes)])
    answer = {"items": [row.model_dump() for row in market.documents[document]]}
    return JsonAnswers(oci, market, document, answer, inside)
