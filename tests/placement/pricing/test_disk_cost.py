"""What a machine's disk costs: the table, and what a plan says of it."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from pydantic import ValidationError

from broker.core.job.jobs import DiskTier
from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.placement.conditions import Conditions
from broker.placement.pricing.disk_cost import DiskRate, disk_rate, rates

Make = Any
SKYPILOT = Conditions(engines={"skypilot": frozenset({"disk_tier"})})


def test_every_figure_has_a_source_and_a_day() -> None:
    assert all(rate.source and date(2024, 1, 1) < rate.as_of <= date(2026, 11, 25) for rate in rates())
    with pytest.raises(ValidationError):
        DiskRate.model_validate({"place": "x/*", "usd_per_gib_month": "free", "source": "s", "as_of": date(2026, 1, 1)})


def test_figures_copied_by_hand_from_the_pages() -> None:
    """gp3 in US East: $0.08 a GB and month; a balanced persistent disk in Iowa: $0.10."""
    aws, google = disk_rate("aws/us-east-1"), disk_rate("gcp/us-central1")
    assert aws is not None
    assert google is not None
    assert aws.per_hour(256) == Money.usd("0.028055")  # 0.08 x 256 / 730
    assert google.per_hour(730) == Money.usd("0.1")
    assert disk_rate("aws/eu-west-1") is disk_rate("runpod/CA") is disk_rate("azure/eastus") is None


def said(make: Make, location: str = "aws/us-east-1", money: MoneyKind = MoneyKind.CASH, **wanted: Any) -> str:
    provider, _, region = location.partition("/")
    offer = make.offer(provider=provider, region=region, engine="skypilot", money=money)
    job = make.job()
    resources = tuple(one.model_copy(update=wanted) for one in job.resources)
    return "\n".join(make.plan([offer], job.model_copy(update={"resources": resources}), conditions=SKYPILOT).notes)


def test_a_plan_says_what_its_figures_do_not_contain(make: Make) -> None:
    assert "disks of 256 GB (SkyPilot's default; `disk_size` sets another) have about $0.028" in said(make)
    assert "disks of 1000 GB have about $0.1" in said(make, disk_gib=1000)
    for unknown in (said(make, location="runpod/CA"), said(make, disk_tier=DiskTier.HIGH)):
        assert "an unknown price, which plan, hold and bill do not contain" in unknown
    assert "disks of" not in said(make, money=MoneyKind.AMORTISED)


def test_other_engines_attach_none(make: Make) -> None:
    assert "disks of" not in "\n".join(make.plan([make.offer()], make.job()).notes)
