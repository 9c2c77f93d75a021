"""Prices in another currency: the rate and its day are shown wherever the prices are."""

from datetime import UTC, datetime
from typing import Any

import pytest

from providers import registry
from tests.fakes.scaleway import ScalewayMarket, rates, scaleway_machine
from tests.fakes.server import FakeServer

MACHINE = scaleway_machine("H100-SXM-8-80G", "H100-SXM", 8, "25", "fr-par-2")


def test_the_rate_and_its_day_are_shown_and_an_old_rate_leaves_what_was_known(
    gpubroker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    market = ScalewayMarket([MACHINE], document=rates(datetime.now(UTC).date().isoformat(), "1.2"))
    with FakeServer(market) as server:
        for key in ("BASE_URL", "RATES_URL"):
            monkeypatch.setenv(f"GPUBROKER_PROVIDERS__SCALEWAY__{key}", server.url)
        monkeypatch.setattr(registry, "PROVIDERS", {**registry.PROVIDERS, "scaleway": "providers.scaleway:Scaleway"})
        assert gpubroker("prices", "poll", "--provider", "scaleway").code == 0
        market.document = rates("2020-01-03")
        failed = gpubroker("prices", "poll", "--provider", "scaleway", "--strict")
        fresh = gpubroker("prices", "poll", "--provider", "scaleway")
    assert (fresh.code, "still fresh enough: scaleway" in fresh.err) == (0, True)
    assert failed.code == 5
    assert "no_exchange_rate" in failed.out
    shown, document = (
        gpubroker("offers", "-w", "provider=scaleway"),
        gpubroker("offers", "-w", "provider=scaleway", "--json"),
    )
    assert "1 EUR = 1.2 USD" in shown.out
    assert document.json["offers"][0]["price_per_hour"] == "30.00"
    assert "European Central Bank" in document.json["converted"]["scaleway"][0]
    assert "2020-01-03" in gpubroker("prices", "status").out
