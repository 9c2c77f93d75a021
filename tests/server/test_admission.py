"""What Slurm and SkyPilot are answered about launches of their users, and what becomes of the money."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.app.access.people import add, give_role
from broker.app.jobs.preview import plan_job
from broker.app.outside.documents import OverdueLaunch, end_overdue_launches, overdue_launches, record_overdue
from broker.app.outside.launches import OutsideArray
from broker.app.outside.slurm_requests import parse_array
from broker.app.runs_root import attempt_keys
from broker.core.access.people import TokenScope
from broker.core.actors import Role
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.market.capacity import TAG
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.engines.runfolder.attempt_keys import TICKET_LABEL, launch_ticket
from broker.engines.skypilot.task import cluster_name
from broker.ledger.entries import faults
from tests.actors import ROOT, mid_month
from tests.server.page.browsing import site_of
from tests.server.world import DAY, Company, bearer, new_world

NODE = Offer(
    provider="slurm", region="loop", zone="loop:gpu", instance_type="2xH100", accelerator="H100", count=2,
    capacity_type=CapacityType.OWNED, price=Money.usd(4), as_of=datetime(2026, 11, 1, tzinfo=UTC), source="slurm",
    availability=Availability.AVAILABLE, engine="slurm", cpus=16, memory_gib=64,
)  # fmt: skip
POLICY = """\
version: 1
policy: test
budgets:
  - {name: nlp, amount: $10, period: month, scope: {team: [nlp]}}
  - {name: vision, amount: $10, period: month, scope: {team: [vision]}}
guardrails:
  - {name: big, approve_above: {cost: $9, approvers: [apple], expires: 6h}}
"""
ASKED = {"user": "mia", "name": "train", "team": "nlp", "partition": "gpu", "gres": "gpu:h100:2", "minutes": 60}


class Gate:
    """A cluster in front of the world's server: its service account, its offers, and a clock that can be set."""

    def __init__(self, world: Company) -> None:
        self.world, broker = world, world.broker
        add(broker, "cluster", by=ROOT, service=True)
        give_role(broker, "cluster", Role.GATE, by=ROOT)
        self.headers = bearer(world.token("cluster", TokenScope.ADMISSION, expires=80 * DAY))
        broker.store.activate_policy({"test.yaml": POLICY}, by="adam")
        now = broker.clock.now()
        broker.store.record_poll("slurm", started=now, finished=now, offers=[replace(NODE, as_of=now)])

    def post(self, path: str, body: Any) -> Any:
        return self.world.client.post(f"/api/v1{path}", json=body, headers=self.headers)

    def asks(self, **more: Any) -> Any:
        return self.post("/admission/slurm", {**ASKED, **more})

    @property
    def basic(self) -> dict[str, str]:
        token = self.headers["Authorization"].removeprefix("Bearer ")
        return {"Authorization": f"Basic {base64.b64encode(f'gpubroker:{token}'.encode()).decode()}"}

    def sky(self, body: Any) -> Any:
        return self.world.client.post("/api/v1/admission/skypilot", json=body, headers=self.basic)

    def wait(self, **time: float) -> None:
        clock = self.world.broker.clock
        assert isinstance(clock, ManualClock)
        clock.advance(timedelta(**time))

    def launches(self, by: str = "mia") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.world.get("/launches", by).json()["launches"]
        return found

    def money(self, id: str) -> tuple[Money, Money]:
        """What is held and what is spent."""
        with self.world.broker.store.reading() as look:
            assert faults(look.entries()) == []
            one = look.balance(id)[MoneyKind.CASH]
        return one.held, one.spent


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    """One for questions by which nothing is held."""
    world = new_world(tmp_path_factory.mktemp("gate"), mid_month())
    yield Gate(world)
    world.broker.close()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    world = new_world(tmp_path, mid_month())
    yield Gate(world)
    world.broker.close()


def test_a_launch_holds_money_like_a_job_and_pays_for_its_time(gate: Gate) -> None:
    id = gate.asks().json()["id"]
    (one,) = gate.launches()
    assert (one["id"], one["user"], one["gpus"], one["rate_usd"]) == (id, "mia", 2, "4.00")
    held = Money.usd(one["held_usd"])
    assert Money.usd(4) <= held < Money.usd(5), "an hour, and the grace of stopping"
    budget = next(b for b in gate.world.get("/budgets", "mia").json()["budgets"] if "nlp" in b["id"])
    assert Money.usd(budget["held"]) == held
    assert gate.launches("otto") == [], "another team does not see it"

    gate.wait(minutes=40)
    ended = gate.post(f"/launches/{id.removeprefix('outside:')}/end", {"ran_seconds": 1800})
    assert ended.json() == {"id": id, "cost_usd": "2.00"}
    assert gate.money(id) == (Money.ZERO, Money.usd(2))
    assert gate.post(f"/launches/{id}/end", {}).json()["cost_usd"] == "0.00"
    assert gate.launches() == []
    said = [line["action"] for line in gate.world.get("/audit", "adam").json()["lines"]]
    assert "outside.judge" in said
    assert "outside.end" in said


def test_a_launch_that_ran_longer_than_was_judged_pays_for_all_of_it(gate: Gate) -> None:
    id = gate.asks().json()["id"]
    gate.wait(hours=2)
    assert gate.post(f"/launches/{id}/end", {"ran_seconds": 7290}).json()["cost_usd"] == "8.00", "clocks differ"
    assert gate.money(id) == (Money.ZERO, Money.usd(8))


@pytest.mark.parametrize("overdue", [False, True])
def test_a_launch_cannot_have_run_longer_than_since_it_was_judged(gate: Gate, overdue: bool) -> None:
    id = gate.asks().json()["id"]
    gate.wait(hours=2)
    if overdue:
        gate.wait(days=31)
        assert end_overdue_launches(gate.world.broker)
    before = gate.money(id)
    answer = gate.post(f"/launches/{id}/end", {"ran_seconds": 40 * 86_400})
    assert (answer.status_code, "cannot have run for 40d" in answer.json()["detail"]) == (422, True)
    assert gate.money(id) == before
    assert len(gate.world.get("/launches", "mia").json()["overdue" if overdue else "launches"]) == 1, "it stays"


def test_the_budget_that_jobs_share_is_the_limit(gate: Gate) -> None:
    answers = [gate.asks() for _ in range(3)]
    assert [one.status_code for one in answers] == [200, 200, 403], "twice $4 and a little of $10"
    assert "nlp" in answers[-1].json()["detail"]
    assert len(gate.launches()) == 2
    with gate.world.broker.store.reading() as look:
        assert [one.answer.value for one in look.decisions(limit=3)] == ["deny", "allow", "allow"]


@pytest.mark.parametrize(
    ("more", "status", "said"),
    [
        ({"user": "nobody"}, 403, "not on record"),
        ({"user": "vic"}, 403, "no role that allows submitting jobs"),
        ({"user": "otto"}, 403, "no role that allows submitting jobs in team nlp"),
        ({"minutes": None}, 422, "no time limit"),
        ({"gres": "gpu:h100:2,gpu:l4:1"}, 422, "GPUs of one type"),
        ({"gres": "gpu:nonsense:1"}, 422, "nonsense"),
        ({"minutes": 140}, 403, "standing grant"),
        ({"minutes": 600}, 403, "nlp"),
        ({"partition": "other"}, 409, "no offer"),
        ({"ticket": "0" * 32, "name": "mine-1"}, 403, "ticket"),
        ({"ticket": "0" * 32, "name": "mine-1", "array": "0-99"}, 403, "nlp"),
        ({"array": "0-2%1"}, 403, "nlp"),  # one at a time, and yet $12 of $10
        ({"array": "0-1;reboot"}, 422, "expected tasks"),
        ({"array": "0-9999999"}, 422, "at most"),
        ({"array": "0-99999%1", "minutes": 60}, 422, "more than a year"),
    ],
)
def test_what_the_policies_or_roles_refuse_is_vetoed(
    refusing: Gate, more: dict[str, Any], status: int, said: str
) -> None:
    answer = refusing.asks(**more)
    assert answer.status_code == status, answer.text
    assert said in answer.text
    assert refusing.launches() == []


def test_a_task_of_an_array_holds_money_while_it_runs_and_each_time_that_it_runs(gate: Gate) -> None:
    whole = gate.asks(array="0-7:4%1", minutes=60).json()["id"]
    assert gate.launches() == [], "it was judged, and nothing runs"
    first, second = f"{whole}.0", f"{whole}.4"
    answers = [gate.post(f"/launches/{first.removeprefix('outside:')}/start", {}) for _ in range(2)]
    assert [one.json() for one in answers] == [{"id": first}] * 2
    assert [(one["id"], one["user"], one["gpus"]) for one in gate.launches()] == [(first, "mia", 2)]
    assert "the most that it was approved for" in gate.post(f"/launches/{second}/start", {}).json()["detail"]
    gate.wait(minutes=30)
    assert gate.post(f"/launches/{first}/end", {"ran_seconds": 900}).json()["cost_usd"] == "1.00"
    assert gate.post(f"/launches/{first}/start", {}).status_code == 200, "it was taken away, and runs again"
    assert Money.usd(4) <= gate.money(first)[0] < Money.usd(5)
    gate.wait(minutes=30)
    assert gate.post(f"/launches/{first}/end", {"ran_seconds": 1800}).json()["cost_usd"] == "2.00"
    assert gate.money(first) == (Money.ZERO, Money.usd(3))
    assert gate.post(f"/launches/{second}/start", {}).status_code == 200
    assert gate.post(f"/launches/{second}/end", {}).status_code == 200
    assert gate.launches() == []


def test_an_array_needs_the_approval_of_its_whole_amount(gate: Gate) -> None:
    gate.world.broker.store.activate_policy({"test.yaml": POLICY.replace("$10", "$20")}, by="adam")
    answer = gate.asks(array="0-2%1")
    assert (answer.status_code, answer.json()["kind"]) == (403, "approval_needed")
    assert gate.asks(array="0-1%1").status_code == 200


def test_two_tasks_that_begin_at_once_do_not_both_get_the_only_turn(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = gate.asks(array="0-1%1").json()["id"].removeprefix("outside:")
    others = [f"{whole}.1"]

    def meanwhile(*args: Any, **named: Any) -> Any:
        while others:
            assert gate.post(f"/launches/{others.pop()}/start", {}).status_code == 200
        return plan_job(*args, **named)

    monkeypatch.setattr("broker.app.outside.launches.plan_job", meanwhile)
    assert "the most that it was approved for" in gate.post(f"/launches/{whole}.0/start", {}).json()["detail"]
    assert [one["id"] for one in gate.launches()] == [f"outside:{whole}.1"]


def test_a_task_that_is_asked_about_twice_at_once_holds_money_once(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    start = f"/launches/{gate.asks(array='0-1').json()['id'].removeprefix('outside:')}.0/start"
    others = [start]

    def meanwhile(*args: Any, **named: Any) -> Any:
        while others:
            assert gate.post(others.pop(), {}).status_code == 200
        return plan_job(*args, **named)

    monkeypatch.setattr("broker.app.outside.launches.plan_job", meanwhile)
    assert gate.post(start, {}).status_code == 200
    (one,) = gate.launches()
    assert Money.usd(4) <= gate.money(one["id"])[0] < Money.usd(5)


def test_a_task_of_an_array_waits_while_there_is_no_money_for_it(gate: Gate) -> None:
    whole = gate.asks(array="0-1").json()["id"]
    held = [gate.asks().json()["id"] for _ in range(2)]
    assert gate.post(f"/launches/{whole}.1/start", {}).status_code == 403
    gate.post(f"/launches/{held[0]}/end", {"ran_seconds": 1})
    assert gate.post(f"/launches/{whole}.1/start", {}).status_code == 200
    for unknown in (f"{whole[:-1]}.1", whole, "x.1", f"{whole}.x"):
        assert gate.post(f"/launches/{unknown}/start", {}).status_code == 404
    gate.world.broker.store.activate_policy({"test.yaml": POLICY.replace("$10", "$1")}, by="adam")
    gate.post(f"/launches/{whole}.1/end", {"ran_seconds": 1})
    assert gate.post(f"/launches/{whole}.0/start", {}).status_code == 403, "the policies of now"


@pytest.mark.parametrize(
    ("indices", "tasks", "at_once"),
    [
        ("0-99%4", 100, 4), ("1,3,5-7", 5, 5), ("0-15:4", 4, 4), ("7", 1, 1), ("0-3%9", 4, 4), ("0-3%0", 4, 4),
        ("0-9:2,20-21%3", 7, 3),
    ],
)  # fmt: skip
def test_the_tasks_of_an_array_are_counted_as_slurm_names_them(indices: str, tasks: int, at_once: int) -> None:
    assert parse_array(indices) == OutsideArray(tasks, at_once)


def test_a_gpu_without_a_type_is_any_of_the_cluster(gate: Gate) -> None:
    assert gate.asks(gres="gpu:2").status_code == 200
    assert gate.launches()[0]["accelerator"] == "H100"


def test_only_a_gate_asks_and_it_may_nothing_else(refusing: Gate) -> None:
    client, headers, gate = refusing.world.client, refusing.headers, refusing
    for who in ("mia", "tara", "fay"):
        answer = client.post("/api/v1/admission/slurm", json=ASKED, headers=bearer(gate.world.usual(who)))
        assert answer.status_code == 403
    for path in ("/jobs", "/launches", "/budgets", "/people"):
        assert client.get(f"/api/v1{path}", headers=headers).status_code == 403


def test_a_launch_whose_end_nobody_reports_is_spent_when_its_time_is_over(gate: Gate) -> None:
    id, broker = gate.asks().json()["id"], gate.world.broker
    assert end_overdue_launches(broker) == []
    gate.wait(days=31)
    (late,) = end_overdue_launches(broker)
    held, spent = gate.money(id)
    assert (held, spent) == (Money.ZERO, late.held)
    assert [one.id for one in overdue_launches(broker)] == [id]
    shown = {who: gate.world.get("/launches", who).json()["overdue"] for who in ("mia", "otto")}
    assert ([one["id"] for one in shown["mia"]], shown["otto"]) == ([id], [])
    site = site_of(gate.world)
    assert ["should have ended" in site.of(who).get("/").text for who in shown] == [True, False]
    ran = late.until - late.since + timedelta(hours=2)
    told = gate.post(f"/launches/{id}/end", {"ran_seconds": ran.total_seconds()}).json()
    assert told["cost_usd"] == "8.00", "what it cost beyond the time that was judged"
    assert gate.money(id) == (Money.ZERO, late.held + Money.usd(8))
    assert overdue_launches(broker) == [], "it was looked at"
    record_overdue(broker, OverdueLaunch.noted_at(late, broker.clock.now()))
    assert gate.post(f"/launches/{id}/end", {"ran_seconds": ran.total_seconds()}).json()["cost_usd"] == "0.00", "once"
    record_overdue(broker, OverdueLaunch.noted_at(late, broker.clock.now()))
    gate.wait(days=30)
    assert (end_overdue_launches(broker), overdue_launches(broker)) == ([], []), "nor for ever"


def test_what_a_task_cost_beyond_its_time_is_that_of_its_last_run(gate: Gate) -> None:
    task, broker = f"{gate.asks(array='0-1%1').json()['id']}.0", gate.world.broker
    start, end = (f"/launches/{task.removeprefix('outside:')}/{what}" for what in ("start", "end"))
    gate.post(start, {})
    gate.wait(minutes=15)
    assert gate.post(end, {"ran_seconds": 900}).json()["cost_usd"] == "1.00"
    gate.post(start, {})
    gate.wait(days=31)
    (late,) = end_overdue_launches(broker)
    ran = late.until - late.since + timedelta(hours=2)
    assert gate.post(end, {"ran_seconds": ran.total_seconds()}).json()["cost_usd"] == "8.00"
    assert gate.money(task) == (Money.ZERO, Money.usd(1) + late.held + Money.usd(8))


def test_a_launch_of_the_brokers_own_passes_by_its_ticket_alone_and_holds_nothing(gate: Gate) -> None:
    broker = gate.world.broker
    with broker.store.writing() as tx:
        view = tx.job(gate.world.mine)
        assert view is not None
        placement = replace(view.attempts[-1].placement, offer=replace(NODE, as_of=broker.clock.now()))
        key = f"{view.id}-2"
        ended = ev.AttemptEnded(cause=Cause.LAUNCH_FAILED, evidence="")
        tx.append(view.id, [(1, ended)], broker.clock.now())
        asked = ev.LaunchRequested(key=key, engine="slurm", placement=placement)
        tx.append(view.id, [(2, asked)], broker.clock.now())
    ticket = launch_ticket(attempt_keys(broker).of(key), key)
    mine = {"name": key, "ticket": ticket, "gres": "gpu:h100:2"}
    assert gate.asks(**mine).json() == {"id": key}
    assert gate.launches() == []
    assert gate.asks(**{**mine, "gres": "gpu:h100:8"}).status_code == 403, "it is for what was placed"
    assert gate.asks(**{**mine, "name": f"{view.id}-1"}).status_code == 403
    with broker.store.writing() as tx:
        tx.append(view.id, [(2, ev.AttemptEnded(cause=Cause.LAUNCH_FAILED, evidence=""))], broker.clock.now())
    assert gate.asks(**mine).status_code == 403, "it is used up"


def sky_body(name: str, cluster: str | None = "dev", **more: Any) -> str:
    task = {"resources": {"accelerators": {"H100": 2}, "labels": {"gpubroker-team": "nlp"}}, "run": "echo"}
    return json.dumps(
        {
            "task": yaml.safe_dump({**task, **more}),
            "skypilot_config": "{}",
            "request_name": name,
            "request_options": {
                "cluster_name": cluster,
                "idle_minutes_to_autostop": None,
                "down": False,
                "dryrun": False,
            },
            "at_client_side": False,
            "user": "id: abc\nname: mia\n",
        }
    )


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (sky_body("validate"), 200, ""),
        (sky_body("optimize"), 200, ""),
        (sky_body("jobs.launch"), 400, "gpubroker submit"),
        (sky_body("launch", None), 400, "--cluster"),
        (sky_body("launch"), 400, "reference price"),  # none live that SkyPilot could start
        ("nonsense", 400, "admin policy"),
        (7, 400, "admin policy"),
    ],
)
def test_skypilot_is_told_in_its_own_form(refusing: Gate, body: Any, status: int, said: str) -> None:
    answer = refusing.sky(body)
    assert answer.status_code == status, answer.text
    assert said in answer.text
    if status == 200:
        assert json.loads(answer.json()).keys() == {"task", "skypilot_config"}
    client, headers = refusing.world.client, refusing.basic
    assert client.get("/api/v1/me", headers=headers).status_code == 401, "there alone"


def test_a_policy_that_changes_while_a_launch_is_planned_has_it_planned_anew(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, now = gate.world.broker, gate.world.broker.clock.now()
    rented = replace(
        NODE, provider="gcp", region="us-central1", zone="us-central1-a", instance_type="a3-highgpu-2g", source="gcp",
        capacity_type=CapacityType.ON_DEMAND, engine="skypilot", as_of=now,
    )  # fmt: skip
    dearer = replace(rented, region="europe-west4", zone="europe-west4-a", price=Money.usd(5))
    broker.store.record_poll("gcp", started=now, finished=now, offers=[rented, dearer])
    policies = [POLICY + "  - {name: places, allowed_locations: {regions: ['europe-*']}}\n"]

    def meanwhile(*args: Any, **named: Any) -> Any:
        seen = plan_job(*args, **named)
        if policies:
            broker.store.activate_policy({"test.yaml": policies.pop()}, by="adam")
        return seen

    monkeypatch.setattr("broker.app.outside.launches.plan_job", meanwhile)
    wanted = {"accelerators": {"H100": 2}, "labels": {"gpubroker-team": "nlp", "gpubroker-max-duration": "1h"}}
    answer = gate.sky(sky_body("launch", resources=wanted))
    assert answer.status_code == 200, answer.text
    assert "europe-west4" in json.loads(answer.json())["task"]


def test_skypilot_is_pinned_to_what_its_task_alone_gets_and_the_broker_to_its_own(gate: Gate) -> None:
    broker, now = gate.world.broker, gate.world.broker.clock.now()
    rented = replace(
        NODE, provider="gcp", region="us-central1", zone="us-central1-a", instance_type="a3-highgpu-2g", source="gcp",
        capacity_type=CapacityType.ON_DEMAND, engine="skypilot", as_of=now,
    )  # fmt: skip
    flex = replace(rented, instance_type="a3-highgpu-2g+flex-start", price=Money.usd(2))
    bought = replace(rented, capacity_type=CapacityType.RESERVED, price=Money.ZERO, money=MoneyKind.AMORTISED)
    broker.store.record_poll("gcp", started=now, finished=now, offers=[rented, flex, bought])
    wanted = {"accelerators": {"H100": 2}, "labels": {"gpubroker-team": "nlp", "gpubroker-max-duration": "1h"}}
    answer = gate.sky(sky_body("launch", resources=wanted))
    assert answer.status_code == 200, answer.text
    pinned = yaml.safe_load(json.loads(answer.json())["task"])["resources"]
    rate = Money.usd(gate.launches()[0]["rate_usd"])
    assert pinned["instance_type"] == "a3-highgpu-2g"
    assert Money.usd(4) < rate < Money.usd("4.1"), "with its disk"

    with broker.store.writing() as tx:
        view = tx.job(gate.world.mine)
        assert view is not None
        key, placement = f"{view.id}-2", replace(view.attempts[-1].placement, offer=flex)
        tx.append(view.id, [(1, ev.AttemptEnded(cause=Cause.LAUNCH_FAILED, evidence=""))], now)
        tx.append(view.id, [(2, ev.LaunchRequested(key=key, engine="skypilot", placement=placement))], now)
    labels = {TAG: key, TICKET_LABEL: launch_ticket(attempt_keys(broker).of(key), key)}
    own = {**pinned, "instance_type": "a3-highgpu-2g", "labels": labels}
    assert gate.sky(sky_body("launch", cluster_name(key), resources=own)).status_code == 200
