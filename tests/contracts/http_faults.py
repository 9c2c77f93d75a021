"""How every provider over HTTP must handle a server's faults, as a suite.

Subclass it, define how the provider is created, its simulated market, and whether it logs in::

    class TestFaultsOfAcme(HttpFaults):
        logs_in = True

        def market(self):
            return AcmeMarket(...)

        def make(self, url, clock, **settings):
            return Acme(clock=clock, settings=AcmeSettings(base_url=url, **settings))
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from broker.core.errors import BrokerError, LoginMissing, Malformed, Refused, Throttled, Unreachable
from broker.core.market.offers import Offer, OfferQuery
from broker.core.ports import Provider
from broker.core.values.clock import ManualClock
from tests.contracts.provider_contract import NOW
from tests.fakes.asking import until_error
from tests.fakes.server import FakeServer, Fault, Market

PASSING = (Fault.THROTTLED, Fault.BUSY, Fault.SERVER_ERROR, Fault.TRUNCATED, Fault.DISCONNECTED)
LASTING = {
    Fault.THROTTLED: Throttled,
    Fault.BUSY: Throttled,
    Fault.SERVER_ERROR: Unreachable,
    Fault.TRUNCATED: Unreachable,
    Fault.DISCONNECTED: Unreachable,
    Fault.NOT_JSON: Malformed,
    Fault.EMPTY_BODY: Malformed,
    Fault.WRONG_TYPE: Malformed,
    Fault.REDIRECT: Refused,
}


class HttpFaults:
    """Adapters raise only their own exceptions, of the right class; they retry temporary faults, and never send more
    requests than configured.
    """

    logs_in: ClassVar[bool] = False

    def market(self) -> Market:
        raise AssertionError("say which market is behind the provider")

    def make(self, url: str, clock: ManualClock, **settings: Any) -> Provider:
        raise AssertionError("say how the provider is made")

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(NOW)

    @pytest.fixture
    def server(self) -> Iterator[FakeServer]:
        with FakeServer(self.market()) as running:
            yield running

    def test_a_fault_that_passes_costs_time_and_nothing_else(self, server: FakeServer, clock: ManualClock) -> None:
        provider = self.make(server.url, clock, attempts=3)
        undisturbed = {row.id for row in provider.offers(OfferQuery()) if isinstance(row, Offer)}
        for fault in PASSING:
            before = sum(clock.slept)
            server.order(fault, fault)
            assert {row.id for row in provider.offers(OfferQuery()) if isinstance(row, Offer)} == undisturbed, fault
            assert sum(clock.slept) > before, fault

    @pytest.mark.parametrize("fault", LASTING)
    def test_a_fault_that_lasts_has_its_own_error(self, server: FakeServer, clock: ManualClock, fault: Fault) -> None:
        server.order(*[fault] * 20)
        found, error = until_error(self.make(server.url, clock, attempts=3))
        expected: type[BrokerError] = LASTING[fault]
        if fault is Fault.REDIRECT and self.logs_in:
            assert isinstance(error, Refused | LoginMissing)  # the login itself is refused
        else:
            assert type(error) is expected
        assert error is not None
        assert error.where
        assert not [row for row in found if isinstance(row, Offer)]
        assert len(server.requests) <= 3

    def test_a_server_that_hangs_is_given_up(self, server: FakeServer, clock: ManualClock) -> None:
        server.order(Fault.HANG)
        _, error = until_error(self.make(server.url, clock, attempts=1, timeout_seconds=0.2))
        assert isinstance(error, Unreachable)

    def test_who_asks_for_an_hour_is_left_alone(self, server: FakeServer, clock: ManualClock) -> None:
        server.order(Fault.THROTTLED_FOR_LONG)
        _, error = until_error(self.make(server.url, clock))
        assert isinstance(error, Throttled)
        assert error.after == 3600
        assert len(server.requests) == 1

    @pytest.mark.parametrize("fault", [Fault.EXPIRED_LOGIN, Fault.FORBIDDEN])
    def test_an_expired_login_says_what_to_do(self, server: FakeServer, clock: ManualClock, fault: Fault) -> None:
        server.order(fault)
        _, error = until_error(self.make(server.url, clock))
        assert type(error) is (LoginMissing if self.logs_in else Refused)
        if self.logs_in:
            assert "GPUBROKER_PROVIDERS__" in error.hint

    def test_nobody_there_is_unreachable(self, clock: ManualClock) -> None:
        _, error = until_error(self.make("http://127.0.0.1:9", clock, attempts=1))
        assert isinstance(error, Unreachable)
        assert "GPUBROKER_PROVIDERS__" in error.hint
