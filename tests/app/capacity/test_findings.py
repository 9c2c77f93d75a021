"""Findings from what is on record: attempts, holdings and stored prices."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.app.capacity.findings import capacity_findings
from broker.app.wiring import Broker
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.economics.reserve.capacity_findings import FindingKind
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.reconciler.admission.records import launch_request
from tests.actors import with_clock
from tests.contracts.rule_contract import job, placement
from tests.empty_store import empty_store

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
START = NOW - timedelta(days=14)


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return empty_store(tmp_path / "store.db")


@pytest.fixture
def site(broker: Broker) -> Broker:
    return with_clock(broker, ManualClock(NOW))


def ran(broker: Broker, name: str, start: datetime, end: datetime, **offer: Any) -> None:
    """A job on eight H100 at $32 an hour, from start to end."""
    placed = placement("32", **offer)
    with broker.store.writing() as tx:
        submitted = ev.Submitted(job=job(name=name), user="ann", max_duration_seconds=1e6)
        tx.append(name, [(None, submitted), (1, launch_request(name, 1, placed))], start)
        tx.append(name, [(1, ev.Launched(handle=name)), (1, ev.MachineUp(since=start))], start)
        tx.append(name, [(1, ev.AttemptEnded(cause=Cause.COMPLETED)), (1, ev.MachineGone(gone_at=end))], end)


def hold(
    broker: Broker, kind: HoldingKind, gpus: int, hourly: str, starts: datetime = START, watts: float = 0.0
) -> None:
    ends = NOW + timedelta(days=365)
    added = Holding(kind, "H100", gpus, "aws", "us", starts, ends, hourly=Money.usd(hourly), watts=watts)
    broker.store.add_holding(added, by="test")


def test_eight_rented_around_the_clock_are_to_be_bought(site: Broker) -> None:
    ran(site, "a", START, NOW)
    found = capacity_findings(site, START)
    (use,) = found.uses
    assert (use.hours, use.gpu_hours, use.rented_gpu_hours) == (336, 8 * 336, 8 * 336)
    assert use.rent_usd_per_gpu_hour == 4.0
    assert FindingKind.BUY in {one.kind for one in found.findings}
    assert "as was paid on average" in found.notes[0]


def test_what_is_held_and_idle_is_over_committed(site: Broker) -> None:
    """Sixteen are held at $2 against $4 rented, and eight of them are needed: 8 × 730 h × $2 = $11,680 a month."""
    hold(site, HoldingKind.RESERVATION, 16, "32")
    ran(site, "a", START, NOW, capacity_type=CapacityType.RESERVED, money=MoneyKind.AMORTISED)
    ran(site, "b", NOW - timedelta(hours=1), NOW)
    (finding,) = (one for one in capacity_findings(site, START).findings if one.kind is FindingKind.OVER_COMMITTED)
    assert finding.gpus == 8
    assert finding.saves_usd_per_month is not None
    assert finding.saves_usd_per_month == pytest.approx(11_680 - 8 * 730 * 4 / 336, rel=1e-6), (
        "but for the one hour of the burst"
    )


def test_what_is_added_today_silences_nothing(site: Broker) -> None:
    """Eight owned stand idle for two weeks at $1: 8 × 730 h × $1 = $5,840 a month, whatever is reserved today."""
    hold(site, HoldingKind.OWNED, 8, "8")
    ran(site, "a", NOW - timedelta(hours=2), NOW - timedelta(hours=1))  # tells what renting costs
    (before,) = capacity_findings(site, START).findings
    hold(site, HoldingKind.RESERVATION, 8, "20", starts=NOW)

    found = capacity_findings(site, START)
    (after,) = found.findings
    assert (after.kind, after.gpus) == (before.kind, before.gpus) == (FindingKind.RENT_INSTEAD, 8)
    assert after.saves_usd_per_month == before.saves_usd_per_month == pytest.approx(8 * 730 * (1 - 4 / 336))
    (use,) = found.uses
    assert (use.hours, use.held_usd_per_gpu_hour, use.reserved) == (336, 2.5, 8)
    assert (
        "H100: the 8 held since 2026-11-21 (reservation) are evaluated once they have been held for a week"
        in found.notes
    )


def test_idle_machines_draw_no_energy_that_is_counted(site: Broker) -> None:
    """5.6 kW at $0.12 a kWh and a PUE of 1.5 are 0.7 × 0.18 = $0.126 per GPU-hour at work; one hour of 336 was."""
    site.store.activate_policy({"t.yaml": "version: 1\nassumptions: {kwh_usd: 0.12, pue: 1.5}\n"}, by="test")
    hold(site, HoldingKind.OWNED, 8, "8", watts=5600)
    ran(site, "a", NOW - timedelta(hours=2), NOW - timedelta(hours=1))
    found = capacity_findings(site, START)
    (use,), (finding,) = found.uses, found.findings
    assert use.own_usd_per_gpu_hour == 1.0
    assert use.energy_usd_per_gpu_hour_at_work == pytest.approx(0.126)
    assert finding.saves_usd_per_month == pytest.approx(8 * 730 * (1 + 0.126 / 336 - 4 / 336))
    assert any("$0.126 per GPU-hour at work" in note and "idle is not counted" in note for note in found.notes)


def test_simulated_machines_say_nothing(site: Broker) -> None:
    ran(site, "a", START, NOW, money=MoneyKind.SANDBOX)
    found = capacity_findings(site, START)
    assert (found.uses, found.findings) == ([], [])


def test_a_policy_replaces_the_thresholds(site: Broker) -> None:
    ran(site, "a", START, NOW)
    text = "version: 1\nassumptions: {buy_above_hours_per_day: 24}\n"
    site.store.activate_policy({"t.yaml": text}, by="test")
    assert FindingKind.BUY not in {one.kind for one in capacity_findings(site, START).findings}
