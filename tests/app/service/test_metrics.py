"""The service's page: who may read it, what it says, and that it says so while the store is away."""

import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.app.market.market import freshen
from broker.app.service.health import Pulses
from broker.app.service.metrics import MetricsPage, ServiceResponder, is_loopback, parse_address
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, StoreProblem
from broker.core.events import events as ev
from broker.core.events.agent_events import Reading, ResourcesUsed
from broker.core.events.outcomes import Cause
from broker.core.values.clock import ManualClock
from tests.actors import with_clock
from tests.past import started
from tests.server.world import new_world
from tests.waiting import LONGEST

BEARER = "Bearer open sesame"


@pytest.fixture
def pulses() -> Pulses:
    return Pulses()


@pytest.fixture
def page(broker: Broker, pulses: Pulses) -> Iterator[MetricsPage]:
    page, stop = MetricsPage(broker, pulses, "127.0.0.1:0", "open sesame"), threading.Event()
    thread = threading.Thread(target=page.run, args=(stop,))
    thread.start()
    yield page
    stop.set()
    thread.join()


def numbers(page: MetricsPage | ServiceResponder) -> dict[tuple[str, str], float]:
    """Every sample by its name and the values of its labels."""
    text = page.answer("/metrics", BEARER)[2].decode()
    families = text_string_to_metric_families(text)
    return {(s.name, ",".join(s.labels.values())): s.value for family in families for s in family.samples}


def test_prometheus_reads_duties_jobs_and_prices(broker: Broker, page: MetricsPage, pulses: Pulses) -> None:
    freshen(broker)
    pulses.record_run("jobs", 0.5, steps=2)
    found = numbers(page)
    assert found["gpubroker_up", ""] == 1
    assert found["gpubroker_duty", "jobs,leading"] == 1
    assert found["gpubroker_duty", "jobs,standing_by"] == 0
    assert found["gpubroker_looks_total", "jobs"] == 1
    assert found["gpubroker_steps_total", "jobs"] == 2
    assert found["gpubroker_look_seconds", "jobs"] == 0.5
    assert found["gpubroker_offers", "owned"] >= 1
    assert found["gpubroker_live_attempts", ""] == 0
    assert found["gpubroker_job_ends_total", "succeeded"] == found["gpubroker_attempt_failures_total", "preempted"] == 0
    assert found["gpubroker_longest_wait_seconds", "approval"] == 0
    assert 0 <= found["gpubroker_price_age_seconds", "owned"] < 60


def test_waits_failures_and_idle_gpus_are_counted(tmp_path: Path, pulses: Pulses) -> None:
    world = new_world(tmp_path)
    now = world.broker.clock.now()
    idle = started(world.broker.store, 90, now - timedelta(hours=3))
    lost = started(world.broker.store, 91, now - timedelta(hours=3))
    figures = {"gpu_idle": Reading(samples=4, mean=25, peak=100)}
    with world.broker.store.writing() as tx:
        view = tx.job(idle)
        tx.append(idle, [(1, ResourcesUsed(figures=figures))], now)
        tx.append(lost, [(1, ev.AttemptEnded(cause=Cause.PREEMPTED)), (1, ev.MachineGone(gone_at=now))], now)
    assert view is not None
    placement = view.attempts[-1].placement
    place = f"{placement.offer.capacity_type},{placement.offer.provider}"
    service = ServiceResponder(with_clock(world.broker, ManualClock(now + timedelta(hours=2))), pulses, "open sesame")
    for method, route in (("GET", "/jobs"), ("BREW", "/jobs"), ("GET", "/jobs/{id}/stream")):
        service.count_request(method, route, 200, 0.2)
    found = numbers(service)
    assert found["gpubroker_live_gpus", place] == placement.gpus
    assert found["gpubroker_idle_gpus", place] == placement.gpus / 4
    assert found["gpubroker_spend_rate_usd", place] == float(placement.rate.dollars)
    assert found["gpubroker_attempt_failures_total", "preempted"] == 1
    assert found["gpubroker_longest_wait_seconds", "approval"] >= 7200
    counts = {labels: count for (name, labels), count in found.items() if name == "gpubroker_request_seconds_count"}
    assert counts == {"GET,/jobs,200": 1, "other,/jobs,200": 1}
    world.broker.close()


def test_a_store_that_is_away_is_a_number_too(page: MetricsPage, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(self: Broker) -> None:
        raise StoreProblem("away")

    monkeypatch.setattr(Broker, "store", property(away))
    assert numbers(page)["gpubroker_up", ""] == 0


def test_health_is_a_status(page: MetricsPage, pulses: Pulses) -> None:
    pulses.stands_by("jobs")
    with urllib.request.urlopen(f"{page.url}/healthz", timeout=LONGEST) as answer:
        assert json.load(answer) == {"healthy": True}
    request = urllib.request.Request(f"{page.url}/healthz", headers={"Authorization": BEARER})
    with urllib.request.urlopen(request, timeout=LONGEST) as answer:
        assert json.load(answer) == {"healthy": True, "duties": {"jobs": "standing_by"}, "ill": {}}
    pulses.record_failure("jobs")
    assert page.answer("/healthz", "")[0] == 503
    assert page.answer("/", "")[0] == 404


@pytest.mark.parametrize(
    ("token", "sent"),
    [(None, ""), (None, BEARER), (None, "Bearer "), ("open sesame", ""), ("open sesame", BEARER + "!")],
)
def test_metrics_need_the_token(broker: Broker, pulses: Pulses, token: str | None, sent: str) -> None:
    answer = ServiceResponder(broker, pulses, token).answer
    assert answer("/metrics", sent)[0] == 401
    assert answer("/healthz", sent) == (200, "application/json", b'{"healthy": true}\n')


@pytest.mark.parametrize("listen", ["9464", "127.0.0.1:", ":9464", "127.0.0.1:99999", "127.0.0.1:http"])
def test_what_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(InvalidInput, match="is not an address"):
        parse_address(listen)


def test_addresses_of_this_machine_alone() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "::1", "localhost", "127.8.9.1"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "example.org"]))
    assert parse_address("[::1]:9464") == ("::1", 9464)


def test_a_port_in_use_is_said(broker: Broker, page: MetricsPage, pulses: Pulses) -> None:
    with pytest.raises(InvalidInput, match="cannot listen"):
        MetricsPage(broker, pulses, f"127.0.0.1:{page.port}", None)


def test_money_is_told_and_the_dashboard_reads_what_there_is(broker: Broker, page: MetricsPage, pulses: Pulses) -> None:
    freshen(broker)
    pulses.record_run("jobs", 0.5)
    policy = "version: 1\npolicy: p\nbudgets:\n  - {name: all, amount: $100, period: month, counts: [sandbox]}\n"
    broker.store.activate_policy({"p.yaml": policy}, by="ada")
    found = numbers(page)
    told = [found[f"gpubroker_budget_{name}_usd", "all"] for name in ("limit", "spent", "held", "left", "expected")]
    assert told == [100, 0, 0, 100, 0]
    dashboard = (Path(__file__).parents[3] / "examples" / "service" / "grafana.json").read_text("utf-8")
    read = set(re.findall(r"gpubroker_[a-z_]+", dashboard))
    served = page.answer("/metrics", BEARER)[2].decode()
    described = set(re.findall(r"^# TYPE (\S+)", served, re.MULTILINE))
    assert {name for name in read if not {name, re.sub("_(total|bucket|count)$", "", name)} & described} == set()
