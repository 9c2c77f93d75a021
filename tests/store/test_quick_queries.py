"""The quick look at prices: the same as the store's own offers, and None for whatever is unusual."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import Availability, CapacityType, Interconnect, MoneyKind, Offer
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.store import Store, open_store
from broker.store.quick_queries import AttemptUse, cheapest, ran
from tests.empty_store import empty_store

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def offer(price: str | None, **changed: Any) -> Offer:
    fields: dict[str, Any] = {
        "provider": "aws", "region": "us-east-1", "zone": None, "instance_type": "p5", "accelerator": "H100",
        "count": 8, "capacity_type": CapacityType.ON_DEMAND, "price": None if price is None else Money.usd(price),
        "as_of": NOW, "source": "api", "availability": Availability.AVAILABLE, "interconnect": Interconnect.NVLINK,
    }  # fmt: skip
    return Offer(**(fields | changed))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'a store.db'}"


def opened(url: str) -> Store:
    path = Path(url.removeprefix("sqlite:///"))
    if not path.exists():
        empty_store(path)
    return open_store(url, clock=ManualClock(NOW))


def fill(url: str, *offers: Offer) -> None:
    store = opened(url)
    store.record_poll("api", started=NOW, finished=NOW, offers=list(offers))
    store.close()


def test_the_cheapest_of_each_kind_is_found(url: str) -> None:
    fill(
        url,
        offer("40"),
        offer("32", region="us-west-2"),
        offer("12", capacity_type=CapacityType.SPOT),
        offer("3", instance_type="p5.small", count=1),
    )
    found = {(row.count, row.capacity_type): row for row in cheapest(url, NOW) or ()}
    assert {key: row.micros for key, row in found.items()} == {
        (8, "on_demand"): 32_000_000, (8, "spot"): 12_000_000, (1, "on_demand"): 3_000_000
    }  # fmt: skip
    best = found[8, "on_demand"]
    assert (best.provider, best.region, best.interconnect, best.offers) == ("aws", "us-west-2", "nvlink", 2)
    assert (best.as_of, best.reference, best.stale) == (NOW, False, False)


@pytest.mark.parametrize(
    "changed",
    [
        {"availability": Availability.UNAVAILABLE, "unavailable_because": "sold out"},
        {"availability": Availability.NO_QUOTA},
        {"money": MoneyKind.SANDBOX},
        {"money": MoneyKind.AMORTISED, "capacity_type": CapacityType.OWNED},
        {"accelerator": None, "count": 0},
        {"price": None},
    ],
)
def test_what_cannot_be_rented_has_no_price(url: str, changed: dict[str, Any]) -> None:
    fill(url, offer("40"), offer(**({"price": "1", "instance_type": "other"} | changed)))
    assert [row.micros for row in cheapest(url, NOW) or ()] == [40_000_000]


def test_a_list_price_is_not_told_where_a_live_one_is_known(url: str) -> None:
    store = opened(url)
    for source, priced in (("pricebook", offer("10", source="pricebook", reference=True)), ("api", offer("40"))):
        store.record_poll(source, started=NOW, finished=NOW, offers=[priced])
    store.close()
    assert [(row.source, row.micros) for row in cheapest(url, NOW) or ()] == [("api", 40_000_000)]


def test_an_old_price_is_marked(url: str) -> None:
    fill(url, offer("40", max_age=timedelta(hours=1)))
    later = NOW + timedelta(hours=2)
    assert [row.stale for row in cheapest(url, NOW) or ()] == [False]
    assert [row.stale for row in cheapest(url, later) or ()] == [True]


def test_anything_unusual_is_left_to_the_store(tmp_path: Path, url: str) -> None:
    assert cheapest(url, NOW) is None  # not there, and not made
    assert list(tmp_path.iterdir()) == []
    assert cheapest("postgresql://db.example/x", NOW) is None
    (tmp_path / "a store.db").write_text("not a database")
    assert cheapest(url, NOW) is None


def test_it_needs_no_object_mapper() -> None:
    asked = "import sys, broker.store.quick_queries; print(any(m.startswith('sqlalchemy') for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def launched(url: str, team: str | None, *, nodes: int = 2, money: MoneyKind = MoneyKind.CASH) -> None:
    """A job whose machines came up at `NOW` and are there still."""
    job = Job(name="j", run="true", team=team)
    placed = Placement(offer("20", money=money), nodes, Money(1), Money(1), (), None, None, 1.0, 1.0, 0.0)
    events: list[tuple[int | None, ev.EventBody]] = [
        (None, ev.Submitted(job=job, user="ada", max_duration_seconds=3600)),
        (1, ev.LaunchRequested(key="k", engine="local", placement=placed)),
        (1, ev.Launched(handle="h")),
        (1, ev.MachineUp(since=NOW)),
    ]
    store = opened(url)
    with store.writing() as journal:
        journal.append(f"j-{team}-{money}", events, NOW)
    store.close()


def test_what_ran_is_told_with_its_gpus_and_times(url: str) -> None:
    launched(url, "nlp")
    launched(url, None, nodes=1)
    launched(url, "play", money=MoneyKind.SANDBOX)
    assert sorted(ran(url, NOW) or (), key=lambda one: one.gpus) == [
        AttemptUse(None, "H100", 8, NOW, None),
        AttemptUse("nlp", "H100", 16, NOW, None),
    ]


def test_what_had_gone_by_then_is_left_out(url: str) -> None:
    launched(url, "nlp")
    gone = NOW + timedelta(hours=3)
    store = opened(url)
    with store.writing() as journal:
        over = ev.AttemptEnded(cause=Cause.COMPLETED), ev.MachineGone(gone_at=gone)
        journal.append("j-nlp-cash", [(1, body) for body in over], gone)
    store.close()
    assert ran(url, gone) == (AttemptUse("nlp", "H100", 16, NOW, gone),)
    assert ran(url, gone + timedelta(seconds=1)) == ()


def test_nothing_ran_is_not_the_same_as_not_known(url: str) -> None:
    assert ran(url, NOW) is None
    fill(url)
    assert ran(url, NOW) == ()
