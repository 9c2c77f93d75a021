"""One question has one price, whoever answers it: offers, their groups, the page's overview, advice, the capacity plan,
reviews."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.app.advise.buy_or_rent import buy_or_rent
from broker.app.advise.cost import run_cost
from broker.app.advise.hardware import hardware
from broker.app.advise.prices import CurrentPrices, Places
from broker.app.advise.serve import _prices as serving_prices
from broker.app.billing.review import cheapest_prices
from broker.app.market.offer_lists import group_offers
from broker.app.market.offer_rows import OfferFilter, matching_rows
from broker.app.use_cases import market
from broker.core.market.accelerators import lookup
from broker.core.market.offers import Availability, CapacityType, Doubt, Interconnect, MoneyKind, Offer
from broker.core.market.price_basis import MachineClass, price_basis
from broker.core.market.term_prices import term_prices
from broker.core.values.money import Money
from broker.economics.assumptions import DEFAULTS
from broker.economics.kinds import BoundBy

NOW = datetime(2026, 11, 30, tzinfo=UTC)
ON_DEMAND = CapacityType.ON_DEMAND


@st.composite
def offers(draw: st.DrawFn) -> Offer:
    kind = draw(st.sampled_from([ON_DEMAND] * 4 + [CapacityType.SPOT, CapacityType.RESERVED]))
    count, is_term = draw(st.sampled_from([1, 2, 4, 8])), kind is CapacityType.RESERVED
    return Offer(
        draw(st.sampled_from(["aws", "gcp", "vast", "crusoe"])),
        draw(st.sampled_from(["us-1", "eu-1"])),
        None,
        f"m{count}",
        "H100",
        count,
        kind,
        draw(st.sampled_from([None, *(Money.usd(str(usd)) for usd in (1, 2, 3, 5, 8, 16, 24, 40, 64))])),
        NOW - timedelta(days=draw(st.sampled_from([0, 3, 100, 500]))),
        draw(st.sampled_from(["api", "pricebook"])),
        term_months=12 if is_term else None,
        interconnect=draw(st.sampled_from([None, Interconnect.NVLINK, Interconnect.PCIE])),
        availability=draw(st.sampled_from([Availability.UNKNOWN] * 4 + [Availability.UNAVAILABLE])),
        engine=None if is_term else draw(st.sampled_from([None, "skypilot"])),
        money=draw(st.sampled_from([MoneyKind.CASH] * 5 + [MoneyKind.SANDBOX])),
        reference=draw(st.booleans()),
        max_age=draw(st.sampled_from([None, timedelta(days=1)])),
        doubt=draw(st.sampled_from([None] * 5 + [Doubt.TOO_LOW])),
    )


def broker_of(known: Sequence[Offer]) -> Any:
    """As much of a broker as readers of current offers use."""
    store = SimpleNamespace(offers=lambda query=None: list(known))
    return SimpleNamespace(clock=SimpleNamespace(now=lambda: NOW), store=store)


@settings(max_examples=30)
@given(st.lists(offers(), max_size=6), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 3]), st.booleans())
def test_one_question_has_one_price(known: list[Offer], count: int, machines: int, is_local: bool) -> None:
    places = Places(regions=("eu-*",)) if is_local else Places()
    there = [offer for offer in known if places.has(offer) and offer.money is MoneyKind.CASH]
    prices, broker = CurrentPrices.of(there, NOW), broker_of(there)
    listed = matching_rows(there, NOW, OfferFilter(capacity_types=frozenset({ON_DEMAND}), old=True))
    full = (Availability.UNAVAILABLE, Availability.NO_QUOTA)
    first = next((row for row in listed if row.offer.price and row.offer.availability not in full
                  and row.offer.doubt is None), None)  # fmt: skip
    expected = None if first is None else first.per_gpu
    quote = prices.gpu_hour("H100")
    basis = price_basis(there, NOW, "H100")
    assert (None if basis is None else basis.per_gpu_hour) == expected
    groups = list(group_offers(listed, ["gpu"]))
    assert (groups[0].cheapest.price_per_gpu_hour if groups and groups[0].cheapest else None) == expected
    overview = market._cheapest(there, NOW).get(ON_DEMAND)  # as the page's overview asks
    assert (overview and overview.per_gpu) == expected
    if expected is None or quote is None or basis is None:
        return
    usd = float(expected.dollars)
    assert quote.usd_per_gpu_hour == pytest.approx(usd)
    assert run_cost(10.0, "H100", prices, DEFAULTS).usd_per_gpu_hour == pytest.approx(usd)
    assert hardware(BoundBy.COMPUTE, ["H100"], (), prices, DEFAULTS).ranking[0].usd == pytest.approx(usd)
    assert serving_prices(lookup("H100"), prices, DEFAULTS).on_demand == pytest.approx(usd)
    review = cheapest_prices(broker)("H100", ON_DEMAND)
    assert review is None if not basis.is_current else review is not None and review.usd == pytest.approx(usd)
    plan = term_prices([offer for offer in there if offer.term_months is None], NOW, "H100")
    assert plan.rent is not None
    assert plan.rent.usd == pytest.approx(usd), "without terms there is no class to keep to"
    for line in (quote.origin, plan.rent.text, review.text if review else quote.origin):
        assert basis.offer.location in line
        assert basis.offer.source in line
    fitting = [row for row in listed if row.offer.count >= count]
    machine = prices.quote("H100", count, machines)
    if machine is None:
        assert not [row for row in fitting if row.offer.price and row.offer.availability not in full
                    and row.offer.doubt is None]  # fmt: skip
        return
    assert machine.usd_per_hour == pytest.approx(machines * (prices.quote("H100", count) or machine).usd_per_hour)
    case = replace(DEFAULTS, gpus=count, gpus_per_machine=count, purchase_usd=1e5)
    compared = buy_or_rent("H100", lambda: prices, case)
    (rent,) = [way for way in compared.comparison.ways if way.way is ON_DEMAND]
    exact = [row.offer for row in fitting if row.offer.count == count]
    if machine.machine == f"H100:{count}":
        assert exact
        assert f"on-demand: ${machine.usd_per_hour / machines:,.2f}/h of H100:{count} " in " ".join(
            compared.assumptions
        )
    assert rent.total_usd > 0


@given(st.lists(offers(), min_size=1, max_size=12))
def test_a_term_is_compared_with_its_class_alone(known: list[Offer]) -> None:
    prices = term_prices(known, NOW, "H100")
    if not prices.terms or prices.rent is None:
        return
    own = MachineClass.of(prices.terms[0])
    assert {MachineClass.of(term) for term in prices.terms} == {own}
    basis = price_basis(known, NOW, "H100", machine_class=own)
    assert basis is None or not basis.is_current or prices.rent.offer == basis.offer, "whether jobs start at the term"
    if MachineClass.of(prices.rent.offer) != own or not prices.rent.is_current:
        alike = [offer for offer in known if MachineClass.of(offer) == own]
        current = price_basis(alike, NOW, "H100")
        assert current is None or not current.is_current


@pytest.mark.parametrize(
    ("accelerator", "machine", "interconnect", "linked"),
    [
        ("MI300X", "8x-MI300X", None, True),
        ("MI300X", "8x-MI300X", Interconnect.PCIE, True),  # sold on boards with Infinity Fabric alone
        ("A100-80GB", "A100-PCIe", None, False),
        ("A100-80GB", "gpu_1x_a100", None, True),
        ("A100-80GB", "gpu_2x_a100", Interconnect.PCIE, False),
        ("H100-PCIe", "gpu_1x_h100_pcie", None, False),
        ("H100-PCIe", "2x-bridged", Interconnect.NVLINK, True),
        ("L4", "g2", None, False),
    ],
)
def test_cards_are_linked_by_their_form_and_what_the_offer_says(
    accelerator: str, machine: str, interconnect: Interconnect | None, linked: bool
) -> None:
    offer = Offer("x", "y", None, machine, accelerator, 8, ON_DEMAND, Money.usd(1), NOW, "s", interconnect=interconnect)
    assert MachineClass.of(offer).linked is linked


def test_of_two_old_list_prices_the_cheaper_does_not_count_for_want_of_an_engine() -> None:
    old = NOW - timedelta(days=400)
    near = Offer("gcp", "us-1", None, "m8", "H100", 8, ON_DEMAND, Money.usd(48), old, "pricebook", engine="skypilot",
                 reference=True)  # fmt: skip
    far = replace(near, provider="crusoe", price=Money.usd(24), engine=None)
    basis = price_basis([near, far], NOW, "H100")
    assert basis is not None
    assert (basis.offer, basis.because) == (near, "no engine starts jobs there")
