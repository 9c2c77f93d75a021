"""Suspect polls, odd prices and skipped rows on the command line, and the person who accepts them."""

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import ModuleType
from typing import Any, ClassVar

import pytest

from broker.core.market.offers import CapacityType, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from providers import registry
from providers.registry import ProviderSettings
from tests.actors import OLGA
from tests.cli.documents import check

Gpubroker = Callable[..., Any]


class ShrinkingCloud:
    """As many machines as ``prices`` has, and a row that cannot be used."""

    name = "cloud"
    Settings = ProviderSettings
    prices: ClassVar[list[str]] = []

    def __init__(self, *, clock: SystemClock, settings: ProviderSettings) -> None:
        self._clock = clock

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        for number, usd in enumerate(self.prices):
            about = ("cloud", "here", None, f"m{number}", "H100", 8, CapacityType.ON_DEMAND)
            yield Offer(*about, Money.usd(usd), self._clock.now(), "api", max_age=timedelta(hours=1))
        yield SkippedRow("unknown_accelerator", "m99: 'H9000'")


@pytest.fixture
def cloud(home: object, monkeypatch: pytest.MonkeyPatch) -> type[ShrinkingCloud]:
    """Plugged in beside those that ask nobody; eight machines at $24."""
    module = ModuleType("made_up_cloud")
    module.Cloud = ShrinkingCloud  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "made_up_cloud", module)
    monkeypatch.setitem(registry.PROVIDERS, "cloud", "made_up_cloud:Cloud")
    monkeypatch.setattr(ShrinkingCloud, "prices", ["24"] * 8)
    return ShrinkingCloud


def test_a_suspect_poll_is_an_error_that_a_person_can_accept(gpubroker: Gpubroker, cloud: type[ShrinkingCloud]) -> None:
    assert gpubroker("prices", "poll", "-p", "cloud").code == 0
    cloud.prices = []
    done = gpubroker("prices", "poll", "-p", "cloud", "--json")
    [poll] = done.json["polls"]
    assert (done.code, poll["status"]) == (5, "suspect")
    assert "an empty answer, where 8 offers were known" in poll["error"]
    assert "1 of 1 suspect: cloud" in done.err
    told = gpubroker("prices", "status").out
    assert "suspect" in told
    assert "gpubroker prices accept cloud" in told
    listed = gpubroker("offers", "-w", "price_kind=suspicious", "--json").json["offers"]
    assert {one["doubt"] for one in listed} == {"untold"}
    assert len(listed) == 8
    assert "missing from the last poll" in gpubroker("offers", "-w", "provider=cloud").out
    done = gpubroker("prices", "accept", "cloud", "--reason", "they closed", "--json", by=OLGA)
    check("prices-accept", done.json)
    assert done.json == {
        "number": 1, "provider": "cloud", "accepted_by": OLGA.identity, "missing_removed": 8, "prices_believed": 0,
    }  # fmt: skip
    assert gpubroker("offers", "-w", "provider=cloud", "--json").json["matching"] == 0
    assert gpubroker("prices", "poll", "-p", "cloud").code == 0


def test_an_odd_price_is_shown_last_and_accepted_by_pool(gpubroker: Gpubroker, cloud: type[ShrinkingCloud]) -> None:
    cloud.prices = ["24", "24", "0.605", "24"]
    assert gpubroker("prices", "poll", "-p", "cloud").code == 0
    listed = gpubroker("offers", "-w", "provider=cloud", "--json").json["offers"]
    assert [one["doubt"] for one in listed] == [None, None, None, "too_low"]
    assert "are believed" in listed[-1]["doubt_detail"]
    assert listed[-1]["pool"] == "cloud/here/m2/H100:8/on_demand"
    said = gpubroker("prices", "accept", "cloud", "--pool", listed[-1]["pool"], by=OLGA)
    assert "0 missing offers removed and 1 odd price accepted by olga." in said.out
    assert not gpubroker("offers", "-w", "price_kind=suspicious", "--json").json["offers"]
    assert gpubroker("prices", "accept", "cloud").code == 2


def test_only_what_was_polled_can_be_accepted(gpubroker: Gpubroker, cloud: type[ShrinkingCloud]) -> None:
    gpubroker("prices", "poll", "-p", "cloud")
    done = gpubroker("prices", "accept", "clowd")
    assert (done.code, "did you mean 'cloud'" in done.err) == (2, True)


def test_skipped_rows_are_named(gpubroker: Gpubroker, cloud: type[ShrinkingCloud]) -> None:
    gpubroker("prices", "poll", "-p", "cloud")
    told = gpubroker("prices", "status", "--skipped").out
    assert "cloud: 1 row skipped; 8 offers" in told
    assert "  1 × unknown_accelerator\n    m99: 'H9000'" in told
    [status] = [one for one in gpubroker("prices", "status", "--json").json["providers"] if one["provider"] == "cloud"]
    assert (status["status"], status["success_age_seconds"] is None) == ("incomplete", False)
    assert status["skipped_samples"] == {"unknown_accelerator": ["m99: 'H9000'"]}
