"""What a poll reads over the network is counted for its source alone, in whichever of its threads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from broker.app.results.prices import PollOutcome
from broker.core.market import traffic
from broker.core.market.offers import Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.market.concurrent_poll import poll_concurrently
from broker.market.poller import PollRequest, peak_memory
from broker.store import Store
from providers.vultr import Vultr, VultrSettings
from tests.contracts.provider_contract import NOW
from tests.fakes.server import FakeServer
from tests.fakes.vultr import VultrMarket, VultrMetal, vultr_cost


class InThreads:
    """Reads a byte in each of three threads."""

    name = "threads"

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        with ThreadPoolExecutor(3, "threads", traffic.in_thread()) as threads:
            list(threads.map(traffic.count, (1, 1, 1)))
        yield SkippedRow("nothing", "to sell")


def test_each_source_has_its_own_bytes(store: Store) -> None:
    clock = ManualClock(NOW)
    market = VultrMarket([], [VultrMetal(id="vbm-72c-480gb-gh200-gpu", locations=["ewr"], **vultr_cost(1.99))])
    with FakeServer(market) as server:
        vultr = Vultr(clock=clock, settings=VultrSettings(base_url=server.url))
        asks = [PollRequest("vultr", lambda: vultr, timeout=60), PollRequest("threads", InThreads, timeout=60)]
        found = {one.provider: PollOutcome.of(one) for one in poll_concurrently(asks, store, clock)}
        bodies = [market(request).payload() for request in server.requests]
    assert (found["vultr"].bytes, found["vultr"].answers) == (sum(map(len, bodies)), 2)
    assert (found["threads"].bytes, found["threads"].answers) == (3, 3)
    assert found["vultr"].peak_mb is None or found["vultr"].peak_mb > 10


def test_nobody_counts_outside_a_poll() -> None:
    traffic.count(5)
    with traffic.counted() as read:
        pass
    assert (read.bytes, read.answers) == (0, 0)


def test_memory_is_told_where_the_system_tells_it() -> None:
    found = peak_memory()
    assert found is None or 10 < found < 100_000
