"""Verda's instance types."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from broker.core.errors import BrokerError, LoginMissing, Malformed, Unreachable
from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.verda import Verda, VerdaSettings
from tests.contracts.http_faults import HttpFaults
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.fakes.mutate import JsonAnswers
from tests.fakes.server import FakeServer, Fault, HttpAnswer, HttpRequest, Market
from tests.fakes.verda import CLIENT_ID, CLIENT_SECRET, Cpu, Gpu, Size, VerdaInstanceType, VerdaMarket, VerdaPeriod

DATA = os.environ.get("GPUBROKER_TEST_DATA")
SAMPLE = Path(DATA or ".") / "payloads" / "verda_instance_type_shape.json"

ONE = VerdaInstanceType(
    instance_type="1H100.80S.30V", price_per_hour="3.95", spot_price="1.70", model="H100", name="H100 SXM5 80GB"
)
EIGHT = ONE.model_copy(
    update={
        "instance_type": "8H100.80S.176V", "price_per_hour": "26.1234567", "spot_price": None,
        "gpu": Gpu(number_of_gpus=8), "gpu_memory": Size(size_in_gigabytes=640),
    }
)  # fmt: skip
CPUS = ONE.model_copy(
    update={
        "instance_type": "CPU.4V.16G", "price_per_hour": "0.0279", "spot_price": "0.0084", "model": "EPYC",
        "cpu": Cpu(number_of_cores=4), "name": "AMD EPYC Milan", "gpu": Gpu(number_of_gpus=0),
        "gpu_memory": Size(size_in_gigabytes=0),
    }
)  # fmt: skip
ODD = [
    ONE.model_copy(update={"instance_type": "1X", "model": "Voodoo2", "name": "Voodoo2 8GB"}),
    ONE.model_copy(update={"instance_type": "2X", "price_per_hour": "free", "spot_price": None}),
    ONE.model_copy(update={"instance_type": "3X", "currency": "eur"}),
]
PERIODS = (
    VerdaPeriod(code="3_MONTHS", name="3 months", is_enabled=True, unit_name="month", unit_value=3,
           discount_percentage=Decimal("14.5")),
    VerdaPeriod(code="2_YEARS", name="2 years", is_enabled=False, unit_name="year", unit_value=2,
           discount_percentage=Decimal(30)),
)  # fmt: skip
STOCK = {"FIN-01": ["1H100.80S.30V", "CPU.4V.16G"], "FIN-02": ["1H100.80S.30V"]}


def verda(url: str, clock: ManualClock, secret: str = CLIENT_SECRET, **settings: Any) -> Verda:
    chosen = VerdaSettings(base_url=url, client_id=CLIENT_ID, client_secret=secret, **({"attempts": 1} | settings))
    return Verda(clock=clock, settings=chosen, environment={})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    market = VerdaMarket(ONE, EIGHT, CPUS, *ODD, stock=STOCK, spot_stock={"FIN-02": ["1H100.80S.30V"]}, periods=PERIODS)
    with FakeServer(market) as running:
        yield running


class TestVerdaIsAProvider(ProviderContract):
    plugin = "verda"

    @pytest.fixture
    def provider(self, clock: ManualClock, server: FakeServer) -> Verda:
        return verda(server.url, clock)


class TestFaultsOfVerda(HttpFaults):
    logs_in = True

    def market(self) -> Market:
        return VerdaMarket(ONE, EIGHT, stock=STOCK, spot_stock=STOCK, periods=PERIODS)

    def make(self, url: str, clock: ManualClock, **settings: Any) -> Verda:
        return verda(url, clock, **settings)


def rows(server: FakeServer) -> list[Offer | SkippedRow]:
    return list(verda(server.url, ManualClock(NOW)).offers(OfferQuery()))


def offers(server: FakeServer) -> dict[tuple[str, str, str], Offer]:
    found = [row for row in rows(server) if isinstance(row, Offer)]
    return {(row.instance_type, row.region, row.capacity_type.value): row for row in found}


def test_prices_written_as_text_are_exact(server: FakeServer) -> None:
    found = offers(server)
    assert found["1H100.80S.30V", "FIN-01", "on_demand"].price == Money.usd("3.95")
    assert found["1H100.80S.30V", "FIN-02", "spot"].price == Money.usd("1.70")
    assert found["8H100.80S.176V", "global", "on_demand"].price == Money(26123457)


def test_a_long_term_period_takes_its_percentage_off_and_is_a_commitment(server: FakeServer) -> None:
    term = offers(server)["1H100.80S.30V", "FIN-01", "reserved"]
    assert (term.price, term.term_months, term.engine) == (Money.usd("3.37725"), 3, None)
    assert {o.term_months for o in offers(server).values()} == {None, 3}


def test_stock_decides_where_it_is_offered(server: FakeServer) -> None:
    found = offers(server)
    places = {(region, kind) for name, region, kind in found if name == "1H100.80S.30V" and kind != "reserved"}
    assert places == {("FIN-01", "on_demand"), ("FIN-02", "on_demand"), ("FIN-02", "spot")}
    gone = found["8H100.80S.176V", "global", "on_demand"]
    assert (gone.availability, gone.unavailable_because) == (Availability.UNAVAILABLE, "no location has any")


def test_a_machine_is_what_the_row_says(server: FakeServer) -> None:
    found = offers(server)
    eight, cpu = found["8H100.80S.176V", "global", "on_demand"], found["CPU.4V.16G", "FIN-01", "on_demand"]
    assert (eight.machine, eight.interconnect, eight.cpus, eight.memory_gib) == ("H100:8", Interconnect.NVLINK, 30, 120)
    assert (cpu.machine, cpu.price) == ("cpu", Money.usd("0.0279"))


@pytest.mark.parametrize(("total", "card"), [(640, "A100-80GB"), (320, "A100")])
def test_the_memory_of_all_cards_together_tells_which_card_it_is(total: int, card: str) -> None:
    row = EIGHT.model_copy(update={"model": "A100", "name": "A100 SXM4", "gpu_memory": Size(size_in_gigabytes=total)})
    with FakeServer(VerdaMarket(row)) as server:
        assert {offer.machine for offer in offers(server).values()} == {f"{card}:8"}


def test_what_cannot_be_an_offer_is_counted(server: FakeServer) -> None:
    skipped = Counter(row.reason for row in rows(server) if isinstance(row, SkippedRow))
    assert skipped == {"unknown_accelerator": 3, "invalid_price": 2, "foreign_currency": 1}


@pytest.mark.parametrize("silent", ["/v1/instance-availability", "/v1/long-term/periods/instances"])
def test_what_verda_does_not_say_is_counted_and_the_prices_come_all_the_same(silent: str) -> None:
    market = VerdaMarket(ONE, stock=STOCK, spot_stock=STOCK, periods=PERIODS)

    def mute(request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(404, {"code": "not_found"}) if request.path == silent else market(request)

    with FakeServer(mute) as server:
        found = rows(server)
    kinds = {row.capacity_type for row in found if isinstance(row, Offer)}
    assert kinds >= {CapacityType.ON_DEMAND, CapacityType.SPOT}
    assert {row.reason for row in found if isinstance(row, SkippedRow)} == {"not_told"}
    if "availability" in silent:
        assert {row.availability for row in found if isinstance(row, Offer)} == {Availability.UNKNOWN}


@pytest.mark.parametrize(
    ("environment", "missing"),
    [({}, "VERDA_CLIENT_ID and VERDA_CLIENT_SECRET"), ({"VERDA_CLIENT_ID": "x"}, "VERDA_CLIENT_SECRET")],
)
def test_without_a_login_nobody_is_asked_and_the_variables_are_named(
    server: FakeServer, environment: dict[str, str], missing: str
) -> None:
    settings = VerdaSettings(base_url=server.url)
    provider = Verda(clock=ManualClock(NOW), settings=settings, environment=environment)
    with pytest.raises(LoginMissing, match=f"{missing} not set") as caught:
        list(provider.offers(OfferQuery()))
    assert "GPUBROKER_PROVIDERS__VERDA__CLIENT_SECRET" in caught.value.hint
    assert server.requests == []
    full = {"VERDA_CLIENT_ID": CLIENT_ID, "VERDA_CLIENT_SECRET": CLIENT_SECRET}
    assert list(Verda(clock=ManualClock(NOW), settings=settings, environment=full).offers(OfferQuery()))


def test_a_wrong_secret_is_a_missing_login_and_is_not_shown(server: FakeServer) -> None:
    """Verda's answer repeats it."""
    with pytest.raises(LoginMissing) as caught:
        list(verda(server.url, ManualClock(NOW), "wr0ng-secret").offers(OfferQuery()))
    assert "bad client_secret ***" in str(caught.value)
    assert "wr0ng" not in f"{caught.value!r} {caught.value} {caught.value.hint} {caught.value.__cause__}"
    assert "wr0ng" not in repr(VerdaSettings(client_secret="wr0ng"))


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.WRONG_TYPE, Malformed),
        (Fault.NOT_JSON, Malformed),
        (Fault.SERVER_ERROR, Unreachable),
        (Fault.EXPIRED_LOGIN, LoginMissing),
    ],
)
def test_faults_of_the_login_are_told(server: FakeServer, fault: Fault, error: type[BrokerError]) -> None:
    server.order(fault)
    with pytest.raises(error):
        rows(server)


@pytest.mark.skipif(not SAMPLE.is_file(), reason="needs GPUBROKER_TEST_DATA")
def test_the_recorded_row_is_read_exactly() -> None:
    row = json.loads(SAMPLE.read_text(), parse_float=Decimal)
    assert VerdaInstanceType.model_validate(row)
    market = VerdaMarket()

    def recorded(request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(200, [row]) if request.path == "/v1/instance-types" else market(request)

    with FakeServer(recorded) as server:
        found = offers(server)
    assert {key[2]: offer.price for key, offer in found.items()} == {
        "on_demand": Money.usd(row["price_per_hour"]),
        "spot": Money.usd(row["spot_price"]),
    }
    assert {offer.machine for offer in found.values()} == {"H100:1"}


def answers() -> JsonAnswers:
    kinds: list[dict[str, Any]] = [kind.model_dump() for kind in (ONE, EIGHT, CPUS)]
    return JsonAnswers(
        verda,
        VerdaMarket(stock=STOCK, spot_stock=STOCK, periods=PERIODS),
        "/v1/instance-types",
        kinds,
        lambda body: body,
        fair=r"spot_price\.= None",
    )
