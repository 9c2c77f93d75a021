"""Offers and recorded prices of a team server: the tables of a store of this machine."""

from decimal import Decimal
from typing import Any

import pytest

from tests.cli.documents import check
from tests.server.client.conftest import Laptop

LISTED = ("offers", "--all", "--gpu", "H100:8")


def test_offers_come_in_pages_and_are_one_list(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    def pools(*more: str) -> list[str]:
        return [one["pool"] for one in laptop(*LISTED, *more, "--json", by="mia").json["offers"]]

    every = pools()
    monkeypatch.setattr("broker.app.use_cases.market.MAX_OFFERS", 2)  # for the client: the server has its own copy
    assert pools() == every
    assert pools("-n", "3") == every[:3]
    text = laptop(*LISTED, "-n", "3").out
    assert f"3 of {len(every)} matching offers shown" in text
    assert "ref: reference price" in text


def test_filters_of_prices_machines_and_capacity_types_are_the_servers(laptop: Laptop) -> None:
    def found(*filters: str) -> list[Any]:
        offers: list[Any] = laptop(*LISTED, *filters, "--json", by="mia").json["offers"]
        return [{name: value for name, value in one.items() if name != "age_seconds"} for one in offers]

    every = found()
    spot = [one for one in every if one["capacity_type"] == "spot"]
    assert found("--spot") == found("--where", "capacity_type=spot") == spot != []
    name, price = every[0]["instance_type"], every[2]["price_per_gpu_hour"]
    assert found("-w", f"instance_type={name}") == [one for one in every if one["instance_type"] == name]
    cheap = [one for one in every if Decimal(one["price_per_gpu_hour"]) <= Decimal(price)]
    assert found("--max-price", price) == cheap != every
    assert found("-w", "price_kind=suspicious") == []
    assert "near it: " in laptop("offers", "--gpu", "A100-80GB-1of3").out


def test_risks_groups_and_orders_are_the_servers(laptop: Laptop) -> None:
    risks = laptop(*LISTED, "--risk", "--sort", "interruptions", "--json", by="mia")
    check("offers-risk", risks.json)
    rates = [one["risk"]["interruptions_per_hour"] for one in risks.json["offers"]]
    assert rates == sorted(rates) != []
    groups = laptop(*LISTED, "--by", "provider", "-n", "2", "--json")
    check("offers-groups", groups.json)
    assert len(groups.json["groups"]) == 2 < groups.json["matching_groups"]
    assert "2 of" in laptop(*LISTED, "--by", "provider", "-n", "2").out
    providers = [one["provider"] for one in laptop(*LISTED, "--sort", "provider", "--json").json["offers"]]
    assert providers == sorted(providers) != []
    assert "expected one or more of gpu" in laptop("offers", "--by", ",").err


def test_a_history_is_drawn_from_what_the_server_tells(laptop: Laptop) -> None:
    asked = ("prices", "history", "-w", "provider=sandbox,capacity_type=spot", "--gpu", "L4:1")
    drawn = laptop(*asked, "--chart", by="mia")
    assert (drawn.code, "USD per GPU-hour" in drawn.out) == (0, True)
    assert "series shown" in laptop(*asked, "--last", "2d").out


@pytest.mark.parametrize("command", ["watch list --check", "watch list", "prune", "poll", "accept aws"])
def test_what_changes_the_servers_prices_is_refused(laptop: Laptop, command: str) -> None:
    refused = laptop("prices", *command.split(), by="adam")
    assert (refused.code, "does not work through a team server" in refused.err) == (2, True)
