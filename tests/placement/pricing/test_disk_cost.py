"""What a machine's disk costs: the table, and that plans, holds and bills contain it."""

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from broker.core.job.jobs import DiskTier
from broker.core.job.placements import Placement, Plan
from broker.core.market.offers import MoneyKind, Offer
from broker.core.values.money import Money
from broker.ledger.holds import exposures, hold_needed, ledger_rate
from broker.placement.pricing.conditions import Conditions
from broker.placement.pricing.data_cost import DiskRate, disk_rate, rates
from broker.placement.pricing.shares import current_price, offer_part
from policies.loader import load

Make = Any
SKYPILOT = Conditions(engines={"skypilot": frozenset({"disk_tier", "several_nodes"})})


def test_every_figure_has_a_source_and_a_day() -> None:
    assert all(rate.source and date(2024, 1, 1) < rate.as_of <= date(2026, 11, 25) for rate in rates())
    with pytest.raises(ValidationError):
        DiskRate.model_validate({"place": "x/*", "usd_per_gib_month": "free", "source": "s", "as_of": date(2026, 1, 1)})


def test_figures_copied_by_hand_from_the_pages() -> None:
    """gp3 in US East: $0.08 a GB and month, $0.005 an IOPS above 3,000, $0.04 a MB/s above 125, of which SkyPilot asks
    for 3,500 and 218; a balanced persistent disk in Iowa: $0.10; a container disk of Runpod: $0.10."""
    aws, google, runpod = (
        disk_rate("aws/us-east-1", "g5"),
        disk_rate("gcp/us-central1", "a2"),
        disk_rate("runpod/CA", "x"),
    )
    assert aws.per_hour(256) == Money.usd("0.036575")  # (0.08 x 256 + 500 x 0.005 + 93 x 0.04) / 730
    assert aws.per_hour(1) == Money.usd("0.00863")  # 6.30 / 730 = 0.0086301…
    assert google.per_hour(730) == runpod.per_hour(730) == Money.usd("0.1")
    assert google.per_hour(256) == Money.usd("0.035068")  # 25.6 / 730 = 0.0350684…
    assert disk_rate("gcp/us-central1", "a3-ultragpu-8g").upper_bound, "another kind of disk"


@pytest.mark.parametrize("tier", DiskTier)
def test_a_disk_of_unknown_price_costs_an_upper_bound_and_is_never_free(tier: DiskTier) -> None:
    known = [rate for rate in rates() if rate.tier is tier and not rate.upper_bound]
    for place in ("aws/eu-central-1", "azure/eastus", "nowhere/?"):
        rate = disk_rate(place, "any", tier)
        assert rate.upper_bound
        for gib in (1, 256, 16_384):
            assert rate.per_hour(gib) > max((other.per_hour(gib) for other in known), default=Money.ZERO)


def offered(make: Make, location: str = "aws/us-east-1", **changes: Any) -> Offer:
    provider, _, region = location.partition("/")
    about = {"provider": provider, "region": region, "engine": "skypilot", "money": MoneyKind.CASH, **changes}
    found: Offer = make.offer(**about)
    return found


def plan(make: Make, offer: Offer, conditions: Conditions = SKYPILOT, **wanted: Any) -> Plan:
    """Of two machines."""
    job = make.job(num_nodes=2)
    resources = tuple(one.model_copy(update=wanted) for one in job.resources)
    found: Plan = make.plan([offer], job.model_copy(update={"resources": resources}), conditions=conditions)
    return found


def test_a_plan_contains_disks_and_says_so(make: Make) -> None:
    offer = offered(make)
    found = plan(make, offer)
    (best,) = found.placements
    assert best.offer.disk == Money.usd("0.036575")
    assert offer.price is not None
    assert best.offer.price == offer.price + best.offer.disk
    assert best.rate == (offer.price + best.offer.disk) * 2
    assert best.expected_cost == sum((term.amount for term in best.terms), Money.ZERO)
    said = "\n".join(found.remarks)
    assert "contain $0.07315/h for disks of 256 GB (SkyPilot's default; `disk_size` sets another)" in said
    larger = plan(make, offer, disk_gib=999.5)
    assert larger.placements[0].offer.disk == Money.usd("0.11811")  # 1,000 GB: (80 + 6.22) / 730 = 0.1181095…
    assert "for disks of 1000 GB (list price" in "\n".join(larger.remarks)


@pytest.mark.parametrize(("limit", "hourly"), [("0.073", "0.1"), ("9", "0.290411")])
def test_a_policy_lowers_the_bound_of_unknown_disks_and_nothing_else(make: Make, limit: str, hourly: str) -> None:
    policy = load({"p.yaml": f"version: 1\ndefaults: {{unknown_disk: ${limit}}}\n"})
    lower = replace(SKYPILOT, unknown_disk=policy.defaults.unknown_disk)
    (best,) = plan(make, offered(make, "aws/eu-west-1"), lower, disk_gib=1000).placements
    assert best.offer.disk == Money.usd(hourly)  # 0.073 x 1,000 / 730, or the bound: (0.20 x 1,000 + 12) / 730
    assert plan(make, offered(make), lower).placements[0].offer.disk == Money.usd("0.036575"), "a known price"


def test_what_is_held_and_metered_contains_disks(make: Make) -> None:
    offer = offered(make)
    (best,) = plan(make, offer).placements
    bare = replace(best, offer=replace(best.offer, price=offer.price, disk=Money.ZERO))
    disks = Money.usd("0.07315")
    assert ledger_rate(best.offer) == ledger_rate(bare.offer) + best.offer.disk
    lasts = timedelta(hours=10)

    def hold(placement: Placement) -> Money:
        asked: dict[str, Any] = {"max_duration": lasts, "max_cost": None, "stop_grace": timedelta(0)}
        return hold_needed(exposures([placement]), **asked)[MoneyKind.CASH]

    # A job is also held for the last step of its provider's billing, a second.
    assert hold(best) - hold(bare) == disks.for_duration(lasts + timedelta(seconds=1))


def test_plan_hold_and_bill_contain_the_bound_of_an_unknown_disk(make: Make) -> None:
    for found, bound in (
        (
            plan(make, offered(make, location="aws/eu-west-1"), disk_gib=16_384),
            "4.505205",
        ),  # (0.20 x 16,384 + 12) / 730
        (plan(make, offered(make), disk_tier=DiskTier.HIGH), "0.194247"),  # (0.30 x 256 + 65) / 730
    ):
        (best,) = found.placements
        assert best.offer.disk == Money.usd(bound)
        assert best.rate == ledger_rate(best.offer) * 2
        assert "contain an upper bound of" in "\n".join(found.remarks)


def test_prepaid_machines_and_other_engines_have_no_disk_to_pay(make: Make) -> None:
    for offer in (offered(make, money=MoneyKind.AMORTISED), make.offer()):
        found = plan(make, offer)
        assert all(one.offer.disk == Money.ZERO for one in found.placements)
        assert "disks of" not in "\n".join(found.remarks)


def test_an_offer_as_a_job_has_it_gets_no_second_disk(make: Make) -> None:
    offer, wanted = offered(make), make.job().resources[0]
    once = offer_part(offer, wanted)
    assert offer_part(once, wanted) == once
    assert current_price(offer, once) == once.price
