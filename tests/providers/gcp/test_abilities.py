"""Quotas, what is held, spot advice, machines by label and ending them."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.core.errors import LoginMissing, QuotaExceeded, Refused, Throttled
from broker.core.market.capacity import Instance
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer, OfferQuery, SkippedRow
from broker.core.ports import HasCharges, HasReservations, RunsInstances
from broker.core.purchases.quotes import SellsCapacity
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.gcp.provider import Gcp
from tests.fakes.asking import until_error
from tests.fakes.gcp_cloud import GcpCloud, Json, refusal
from tests.fakes.gcp_rows import IOWA, TOKYO, advice, quota, region, reservation
from tests.fakes.server import FakeServer, Fault, HttpAnswer
from tests.providers.gcp.conftest import offers_of, rows_of

Make = Callable[..., Gcp]
ZONE = f"{IOWA}-a"
_ZONES = "https://www.googleapis.com/compute/v1/projects/team-ml/zones"


def test_what_it_can_do_and_what_it_cannot(make: Make) -> None:
    provider = make()
    for ability in (HasReservations, RunsInstances, SellsCapacity):
        assert isinstance(provider, ability)
    assert not isinstance(provider, HasCharges)


# Quotas.


def test_quotas_leave_so_many_machines(make: Make, market: GcpCloud) -> None:
    market.project["quotas"] = [quota("GPUS_ALL_REGIONS", 100)]
    market.regions = [region(IOWA, quota("NVIDIA_L4_GPUS", 10, 3), quota("PREEMPTIBLE_NVIDIA_L4_GPUS", 16))]
    found = offers_of(make())
    assert found[f"gcp/{ZONE}/g2-standard-4/L4:1/on_demand"].slots == 7
    full = found[f"gcp/{ZONE}/g2-standard-96/L4:8/on_demand"]
    assert (full.availability, full.slots) == (Availability.NO_QUOTA, None)
    assert full.unavailable_because == "quota NVIDIA_L4_GPUS: 10 GPUs, 3 in use, this machine has 8"
    assert found[f"gcp/{ZONE}/g2-standard-96/L4:8/spot"].slots == 2
    assert found[f"gcp/{IOWA}/g2-standard-96/L4:8/reserved/12m"].slots is None
    assert found[f"gcp/{ZONE}/a3-highgpu-8g/H100:8/on_demand"].slots == 12  # of all GPUs: H100s are not told apart
    assert found[f"gcp/{TOKYO}-a/g2-standard-4/L4:1/spot"].slots is None


def test_a_new_project_may_have_no_gpus_at_all(make: Make, market: GcpCloud) -> None:
    market.project["quotas"] = [quota("GPUS_ALL_REGIONS", 0)]
    found = offers_of(make())
    assert found[f"gcp/{ZONE}/g2-standard-4/L4:1/on_demand"].availability is Availability.NO_QUOTA
    assert "GPUS_ALL_REGIONS" in found[f"gcp/{ZONE}/g2-standard-4/L4:1/on_demand"].unavailable_because


def test_spot_draws_on_the_other_quota_where_it_has_none(make: Make, market: GcpCloud) -> None:
    market.regions = [region(IOWA, quota("NVIDIA_T4_GPUS", 4, 2), quota("PREEMPTIBLE_NVIDIA_T4_GPUS", 0))]
    found = offers_of(make())
    assert found[f"gcp/{ZONE}/n1-standard-8/T4:2/spot"].slots == 1
    assert found[f"gcp/{ZONE}/n1-standard-8/T4:4/spot"].availability is Availability.NO_QUOTA


# What is held.


def test_reservations_future_reservations_and_commitments(make: Make, cloud: GcpCloud) -> None:
    cloud.reservations[ZONE] = [
        reservation("ours", "a3-highgpu-8g", 4, 1, deleteAtTime="2027-01-01T00:00:00Z"),
        reservation("named", f"{_ZONES}/{ZONE}/machineTypes/a3-highgpu-8g", 2, 2, specificReservationRequired=True),
        reservation("cpus", "n2-standard-8", 5, 0),
        reservation("t4s", "n1-standard-8", 3, 0, card="nvidia-tesla-t4", cards=2),
        reservation("going", "a3-highgpu-8g", 1, 0, status="DELETING"),
    ]
    sku = {"totalCount": "2", "instanceProperties": {"machineType": "a4-highgpu-8g"}}
    window = {"startTime": "2026-12-01T00:00:00Z", "duration": {"seconds": str(14 * 86_400)}}
    cloud.future_reservations[ZONE] = [
        {"name": "later", "specificSkuProperties": sku, "timeWindow": window, "status": {"procurementStatus": status}}
        for status in ("COMMITTED", "FULFILLED", "DECLINED")
    ]
    commitment = {"startTimestamp": "2026-01-01T00:00:00Z", "endTimestamp": "2029-01-01T00:00:00Z", "status": "ACTIVE"}
    cloud.commitments[IOWA] = [
        {"name": "three-years", "type": "ACCELERATOR_OPTIMIZED_A3", "plan": "THIRTY_SIX_MONTH", **commitment},
        {"name": "cpus", "type": "GENERAL_PURPOSE", "resources": [{"type": "VCPU", "amount": "64"}], **commitment},
        {"name": "n2", "type": "GENERAL_PURPOSE_N2", **commitment},
        {"name": "over", "type": "GRAPHICS_OPTIMIZED", **commitment, "status": "EXPIRED"},
    ]
    found = {held.id: held for held in make().reservations()}
    assert list(found) == [f"{ZONE}/ours", f"{ZONE}/named", f"{ZONE}/t4s", f"{ZONE}/later", f"{IOWA}/three-years"]
    ours, later, promise = found[f"{ZONE}/ours"], found[f"{ZONE}/later"], found[f"{IOWA}/three-years"]
    assert (ours.machines, ours.free, ours.open, ours.kind) == (4, 3, True, "reservation")
    assert ours.starts == datetime(2026, 11, 1, 16, tzinfo=UTC)
    assert ours.ends == datetime(2027, 1, 1, tzinfo=UTC)
    assert not found[f"{ZONE}/named"].open
    assert found[f"{ZONE}/named"].instance_type == "a3-highgpu-8g"
    assert (later.machines, later.free, later.kind) == (2, 0, "future_reservation")
    assert later.ends == datetime(2026, 12, 15, tzinfo=UTC)
    assert (promise.instance_type, promise.zone, promise.holds_capacity) == ("a3-*", None, False)


def test_what_is_reserved_is_offered_at_no_further_cost(make: Make, market: GcpCloud) -> None:
    market.reservations[ZONE] = [
        reservation("one", "a3-highgpu-8g", 4, 1),
        reservation("two", "a3-highgpu-8g", 2, 0),
        reservation("named", "a3-highgpu-8g", 1, 0, specificReservationRequired=True),
        reservation("full", "g2-standard-4", 1, 1),
        reservation("t4s", "n1-standard-8", 3, 0, card="nvidia-tesla-t4", cards=2),
        reservation("gone", "a3-highgpu-1g", 1, 0),
    ]
    rows = rows_of(make(), OfferQuery(capacity_types=(CapacityType.RESERVED,)))
    held = {row.id: row for row in rows if isinstance(row, Offer) and row.term_months is None}
    assert held.keys() == {
        f"gcp/{ZONE}/a3-highgpu-8g/H100:8/reserved@gcp-reservations",
        f"gcp/{ZONE}/a3-highgpu-8g/H100:8/reserved@gcp-reservations:specific",
        f"gcp/{ZONE}/g2-standard-4/L4:1/reserved@gcp-reservations",
        f"gcp/{ZONE}/n1-standard-8/T4:2/reserved@gcp-reservations",
    }
    ours = held[f"gcp/{ZONE}/a3-highgpu-8g/H100:8/reserved@gcp-reservations"]
    assert (ours.price, ours.money, ours.slots) == (Money.ZERO, MoneyKind.AMORTISED, 5)
    assert (ours.availability, ours.engine) == (Availability.AVAILABLE, "skypilot")
    assert held[f"gcp/{ZONE}/a3-highgpu-8g/H100:8/reserved@gcp-reservations:specific"].engine is None
    assert held[f"gcp/{ZONE}/g2-standard-4/L4:1/reserved@gcp-reservations"].availability is Availability.UNAVAILABLE
    assert [row.reason for row in rows if isinstance(row, SkippedRow) and "gone" in row.detail] == ["unknown_machine"]


# Spot advice.


def test_spot_advice_by_zone(make: Make, market: GcpCloud) -> None:
    market.advice = advice({"g2-standard-4": 0.7, "a3-highgpu-8g": 0.2}, "7200s")
    found = offers_of(make())
    here = found[f"gcp/{ZONE}/g2-standard-4/L4:1/spot"]
    assert here.score == pytest.approx(0.7)
    assert here.interruption_rate == pytest.approx(math.log(2) / 2)
    elsewhere = found[f"gcp/{IOWA}-b/g2-standard-4/L4:1/spot"]
    assert elsewhere.score is None
    assert elsewhere.interruption_rate == pytest.approx(math.log(2) / 2)
    assert found[f"gcp/{ZONE}/a3-highgpu-8g/H100:8/spot"].score == pytest.approx(0.2)
    assert found[f"gcp/{ZONE}/a4-highgpu-8g/B200:8/spot"].score is None
    assert found[f"gcp/{ZONE}/g2-standard-4/L4:1/on_demand"].score is None
    asked = [body for called, _, _, body in market.log if called == "compute.advice.capacity"]
    assert not any("n1-" in str(body) for body in asked)


def preempted(*shares: float) -> Callable[[str, Json], Json]:
    """A history in which so many of each day's machines were taken."""

    def told(region: str, body: Json) -> Json:
        assert body["types"] == ["PREEMPTION"]
        day = {"startTime": "2026-11-19T00:00:00Z", "endTime": "2026-11-20T00:00:00Z"}
        records = [{"interval": day, "preemptionRate": share} for share in shares]
        return {"machineType": body["instanceProperties"]["machineType"], "preemptionHistory": records}

    return told


@pytest.mark.parametrize(("uptime", "rate"), [
    (None, math.log(2) / 12),  # half of them are taken within 12 hours
    ("3600s", math.log(2) / 12),  # an hour is the longest that is told: it says nothing more
    ("600s", math.log(2) * 6),  # a warning
])  # fmt: skip
def test_interruptions_are_those_of_the_last_month_unless_lives_are_short(
    make: Make, market: GcpCloud, uptime: str | None, rate: float
) -> None:
    market.advice = advice({"g2-standard-4": 0.7}, uptime)
    market.history = preempted(0.25, 0.75)
    found = offers_of(make(spot_exposure_hours=12))
    assert found[f"gcp/{ZONE}/g2-standard-4/L4:1/spot"].interruption_rate == pytest.approx(rate)


@pytest.mark.parametrize("uptime", ["0s", "-5s", "soon", "NaN", "1e9s", "99999999999999999999s"])
def test_lives_that_make_no_sense_are_not_told(make: Make, market: GcpCloud, uptime: str) -> None:
    market.advice = advice({"g2-standard-4": 1.7}, uptime)
    found = offers_of(make())[f"gcp/{ZONE}/g2-standard-4/L4:1/spot"]
    assert (found.score, found.interruption_rate) == (None, None)


def test_advice_that_fails_costs_no_price_and_is_asked_no_further(make: Make, market: GcpCloud) -> None:
    whole = offers_of(make(advice=False))
    market.refuse["compute.advice.capacity"] = refusal(403, "rateLimitExceeded", "Rate Limit Exceeded")
    found, error = until_error(make())
    assert isinstance(error, Throttled)
    assert {row.pool for row in found if isinstance(row, Offer)} == set(whole)
    assert sum(called == "compute.advice.capacity" for called, *_ in market.log) <= 8


def test_advice_is_kept_for_an_hour(make: Make, market: GcpCloud, clock: ManualClock) -> None:
    market.advice = advice({"g2-standard-4": 0.7})
    provider = make()

    def asked() -> int:
        before = len(market.log)
        assert offers_of(provider)[f"gcp/{ZONE}/g2-standard-4/L4:1/spot"].score == pytest.approx(0.7)
        return sum(called == "compute.advice.capacity" for called, *_ in market.log[before:])

    first = asked()
    clock.advance(timedelta(minutes=59))
    assert (first > 0, asked()) == (True, 0)
    clock.advance(timedelta(minutes=1))
    assert asked() == first


# Machines.


def machine(name: str, status: str, labels: dict[str, str], **scheduling: Any) -> Json:
    return {
        "kind": "compute#instance",
        "name": name,
        "status": status,
        "labels": labels,
        "machineType": f"{_ZONES}/{ZONE}/machineTypes/a3-highgpu-8g",
        "creationTimestamp": "2026-11-20T01:00:00.000-08:00",
        "scheduling": scheduling,
    }


def test_machines_with_our_label(make: Make, cloud: GcpCloud) -> None:
    ours = {"gpubroker": "train-7-1"}
    cloud.instances[ZONE] = [
        machine("one", "RUNNING", ours, provisioningModel="SPOT", preemptible=True),
        machine("two", "TERMINATED", ours, provisioningModel="STANDARD"),
        machine("theirs", "RUNNING", {"team": "nlp"}),
        machine("three", "STAGING", ours, provisioningModel="RESERVATION_BOUND"),
    ]
    cloud.page = 1
    found = {one.id: one for one in make().instances()}
    assert found.keys() == {f"{ZONE}/one", f"{ZONE}/two", f"{ZONE}/three"}
    assert found[f"{ZONE}/one"] == Instance(
        id=f"{ZONE}/one",
        provider="gcp",
        region=IOWA,
        zone=ZONE,
        instance_type="a3-highgpu-8g",
        key="train-7-1",
        state="RUNNING",
        billed=True,
        since=datetime(2026, 11, 20, 9, tzinfo=UTC),
        capacity_type=CapacityType.SPOT,
    )
    assert not found[f"{ZONE}/two"].billed
    assert found[f"{ZONE}/three"].capacity_type is CapacityType.RESERVED


def test_ending_a_machine_is_idempotent_and_waits_for_nothing(make: Make, cloud: GcpCloud) -> None:
    cloud.instances[ZONE] = [machine("one", "RUNNING", {"gpubroker": "k"})]
    provider = make()
    provider.terminate(f"{ZONE}/one")
    provider.terminate(f"{ZONE}/one")
    provider.terminate(f"{ZONE}/never-was")
    assert cloud.instances[ZONE] == []
    assert {called for called, *_ in cloud.log} == {"compute.instances.delete"}


@pytest.mark.parametrize("id", ["", "one", "us-central1-a/", "us-central1-a/../x", "us-central1/one", "a/b/c"])
def test_what_is_no_name_of_a_machine_is_refused(make: Make, cloud: GcpCloud, id: str) -> None:
    with pytest.raises(Refused, match="not the name"):
        make().terminate(id)
    assert cloud.log == []


# Refusals of Google's own kind.


@pytest.mark.parametrize(("answer", "error", "hint"), [
    (refusal(403, "forbidden", "Required 'compute.instances.delete' permission"), Refused, "role"),
    (refusal(403, "accessNotConfigured", "API has not been used"), Refused, "gcloud services enable"),
    (refusal(403, "quotaExceeded", "Quota exceeded"), QuotaExceeded, "Quotas page"),
    (refusal(403, "rateLimitExceeded", "slow down"), Throttled, ""),
    (refusal(401, "authError", "Invalid Credentials"), LoginMissing, "gcloud auth application-default login"),
    (HttpAnswer(403, b"<html>proxy</html>"), LoginMissing, "GOOGLE_APPLICATION_CREDENTIALS"),
    (refusal(400, "invalid", "no such thing"), Refused, ""),
])  # fmt: skip
def test_refusals_say_what_to_do(
    make: Make, cloud: GcpCloud, answer: HttpAnswer, error: type[Exception], hint: str
) -> None:
    cloud.refuse["compute.instances.delete"] = answer
    with pytest.raises(error) as caught:
        make().terminate(f"{ZONE}/one")
    assert hint in getattr(caught.value, "hint", "")
    assert "Instances.delete_unary" in str(caught.value)


@pytest.mark.parametrize("called", [
    "compute.regions.list", "compute.projects.get", "compute.reservations.aggregatedList",
])  # fmt: skip
def test_prices_arrive_where_another_part_fails(make: Make, market: GcpCloud, called: str) -> None:
    whole = set(offers_of(make()))
    market.refuse[called] = refusal(403, "forbidden", "not permitted")
    found, error = until_error(make())
    assert type(error) is Refused
    assert {row.pool for row in found if isinstance(row, Offer)} == whole


def test_a_fault_in_the_middle_keeps_what_had_arrived(make: Make, market: GcpCloud, server: FakeServer) -> None:
    market.page = 5
    found, error = until_error(make(), lambda: server.order(*[Fault.SERVER_ERROR] * 2))
    assert [row for row in found if isinstance(row, Offer)]
    assert error is not None
