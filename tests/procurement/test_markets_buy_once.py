"""Every provider beside AWS, by one contract: killed before and after every write and call, with answers lost,
unreadable, late, old, and orders that arrive twice: one purchase for an intent, the hold right, the ledger balanced."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from broker.core.purchases.purchase_events import NotBought
from broker.core.purchases.purchases import PurchaseState
from broker.core.values.money import Money
from tests.counts import part
from tests.procurement.crashes import MOMENTS, advance_and_die, advance_beside, moments_of
from tests.procurement.markets import STALLS, MarketBench, Stall, bench

pytestmark = pytest.mark.system


def well(stall: Stall) -> None:
    """The provider does what it should."""


def charged_then_reset(stall: Stall) -> None:
    stall.line.lost = True


def charged_then_reset_and_listed_late(stall: Stall) -> None:
    stall.line.lost, stall.line.unlisted = True, 2 * stall.looks


def unreadable(stall: Stall) -> None:
    stall.line.garbled = True


def told_in_the_wrong_order(stall: Stall) -> None:
    """Every second look at the order gets an answer from before."""
    stall.line.old = True


def arrives_twice(stall: Stall) -> None:
    """Something on the way delivers the order twice; the provider knows it by its key."""
    stall.line.twice = True


def refused_by_a_server_error(stall: Stall) -> None:
    stall.line.broken = True


# Every sixth moment in the worst world, every twelfth in the others; the others of them on other days.
OTHERS = (
    well,
    charged_then_reset,
    unreadable,
    told_in_the_wrong_order,
    arrives_twice,
    refused_by_a_server_error,
)
KILLED = [
    *((charged_then_reset_and_listed_late, at) for at in range(1 + part(6), MOMENTS, 6)),
    *((world, at) for number, world in enumerate(OTHERS) for at in range(1 + (number + part(12)) % 12, MOMENTS, 12)),
]


@pytest.fixture(autouse=True)
def _google_sdk() -> None:
    pytest.importorskip("googleapiclient", reason="the discovery documents are not installed (the extra `dev`)")
    pytest.importorskip("google.cloud.compute_v1", reason="Google's SDKs are not installed (the extra `gcp`)")


def _made(name: str) -> Stall:
    """The stall of that name. Azure's need its SDK already to be read."""
    if name not in _AZURES:
        return next(make for make in STALLS if make.__name__ == name)()
    pytest.importorskip("azure.mgmt.compute", reason="Azure's SDK is not installed (the extra `azure`)")
    pytest.importorskip("trustme", reason="trustme is not installed (the extra `dev`)")
    from tests.procurement import azure_market

    made: Stall = getattr(azure_market, name)()
    return made


_AZURES = ("azure_reservation", "azure_reserved")


@pytest.fixture(params=[*(make.__name__ for make in STALLS), *_AZURES])
def market(
    request: pytest.FixtureRequest, tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MarketBench]:
    with bench(_made(request.param), tmp_path, store_url, monkeypatch) as found:
        yield found


SQLITE = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


@SQLITE
@pytest.mark.parametrize(("world", "at"), KILLED)
def test_the_buyer_is_killed_everywhere(market: MarketBench, world: Callable[[Stall], None], at: int) -> None:
    asked = market.approved()
    world(market.stall)
    advance_and_die(market.broker, asked, at)
    ended = market.carry_on(asked)

    bought = market.stall.bought()
    assert len(bought) <= 1
    if not market.stall.resent:
        assert market.stall.line.sent <= 1, "the provider would have sold it twice"
    market.stall.line.broken = False
    market.check_end(asked, ended, bool(bought), market.stall.upfront)


def test_the_moments_are_all_there(market: MarketBench) -> None:
    moments = moments_of(market.broker, market.approved())
    assert {"before order", "after order", "before a commit", "after a write"} <= moments


@SQLITE
@pytest.mark.parametrize("at", range(1 + part(12), MOMENTS, 12))
def test_two_brokers_buy_once(market: MarketBench, at: int) -> None:
    asked = market.approved()
    advance_beside(market.broker, market.new_broker(), asked, at)
    ended = market.carry_on(asked)
    assert len(market.stall.bought()) == 1
    assert market.money(asked) == (ended.quote.recurring, market.stall.upfront)


def test_a_person_is_told_within_a_minute_of_an_unknown_outcome(market: MarketBench) -> None:
    asked = market.approved()
    charged_then_reset_and_listed_late(market.stall)
    began = market.clock.now()
    assert market.advance(asked).state is PurchaseState.UNKNOWN
    [told] = [one for one in market.broker.store.outbox.under("purchase/") if "/unknown/" in one.notice.key]
    assert market.clock.now() - began < timedelta(minutes=1)
    assert "--nothing-bought" in told.notice.body
    assert market.carry_on(asked).state is PurchaseState.HELD
    assert len(market.stall.bought()) == 1


def test_an_order_that_the_provider_refuses_releases_its_money(market: MarketBench) -> None:
    asked = market.approved()
    market.stall.line.refusal = True
    ended = market.advance(asked)
    assert (ended.state, ended.reason) == (PurchaseState.NOT_BOUGHT, NotBought.PROVIDER_REFUSED)
    assert (market.stall.bought(), market.money(asked)) == ([], (Money.ZERO, Money.ZERO))
