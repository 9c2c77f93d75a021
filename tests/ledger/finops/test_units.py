"""Unit metrics by hand, and what is unknown."""

from datetime import UTC, datetime

import pytest

from broker.core.events.agent_events import Reading, ResourceUse
from broker.core.market.offers import CapacityType
from broker.core.values.money import Money
from broker.ledger.finops.change import Cell, CellUse
from broker.ledger.finops.idle import IdleCapacity
from broker.ledger.finops.units import MeasuredAttempt, ReportedTokens, unit_metrics

HOUR = 3_600_000
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
SPOT = Cell("nlp", "llm", "acme", "r1", "H100", "spot")
OWNED = Cell("web", None, "basement", "here", "H100", "owned")
CPUS = Cell(None, None, "acme", "r1", None, "on_demand")


def use(**percents: float) -> ResourceUse:
    return {name: Reading(samples=4, mean=percent, peak=percent) for name, percent in percents.items()}


def test_figures_are_those_of_a_calculation_by_hand() -> None:
    cells = {
        SPOT: CellUse(Money.usd("60"), 20 * HOUR, Money.usd("3"), HOUR),
        OWNED: CellUse(Money.usd("20"), 20 * HOUR),
        CPUS: CellUse(Money.usd("20"), 10 * HOUR),
    }
    measured = [
        MeasuredAttempt("a", 1, 10 * HOUR, Money.usd("3"), use=use(gpu=50, gpu_idle=25, cpu=30)),
        MeasuredAttempt("b", 1, 5 * HOUR, None, use=use(gpu=4.95, gpu_idle=50)),
        MeasuredAttempt("c", 1, 9 * HOUR, Money.usd("3")),
    ]
    held = [IdleCapacity("H100", CapacityType.OWNED, 40 * HOUR, 20 * HOUR, Money.usd("40"), Money.usd("20"))]
    found = unit_metrics(*NOVEMBER, cells, 4, measured, held, [ReportedTokens(8e6, Money.usd("60"), 30_000)])
    assert (found.spent, found.bought, found.rented) == (Money.usd("100"), Money.usd("20"), Money.usd("80"))
    assert (found.per_run, found.per_gpu_hour) == (Money.usd("25"), Money.usd("2"))
    assert (found.spot_hours, found.spot_spent, found.wasted) == (20, Money.usd("60"), Money.usd("3"))
    assert found.busy_hours == pytest.approx(5.2475)
    assert (found.measured_hours, found.idle_hours) == (15, 5.0)
    assert found.idle_cost == Money.usd("7.50")
    assert found.per_busy_hour == Money.usd("2").scaled(15 / 5.2475)
    assert (found.tagged, found.capacity_use, found.coverage) == (0.8, 0.5, 0.5)
    assert found.per_million_tokens == Money.usd("7.50")
    assert found.per_thousand_predictions == Money.usd("2")
    assert (found.use.every, found.use.idle, found.use.cpu) == pytest.approx((0.34983, 1 / 3, 0.3), abs=1e-4)


def test_without_a_denominator_a_figure_is_unknown() -> None:
    found = unit_metrics(*NOVEMBER, {CPUS: CellUse(Money.usd("20"), HOUR)}, 0, [], [], [])
    unknown = (found.per_run, found.per_gpu_hour, found.per_busy_hour, found.capacity_use, found.coverage)
    assert unknown == (None,) * 5
    assert found.per_million_tokens is None
    assert unit_metrics(*NOVEMBER, {}, 0, [], [], []).tagged is None
