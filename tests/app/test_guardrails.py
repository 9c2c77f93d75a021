"""Every guardrail at the gate and while a job runs: something it stops, and the near twin that it lets through.

At the gate the plan and the admission are the real ones, over a market of one machine. While running, so are the local
engine, its agents, their processes and the bill.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from broker.app import jobs, launching
from broker.app.submit import denied, preview, submit
from broker.app.wiring import Broker
from broker.core import events as ev
from broker.core.jobfile import parse_job
from broker.core.jobs import Job
from broker.core.money import Money
from broker.core.offers import Availability, CapacityType, Interconnect, Offer
from broker.core.outcomes import Cause, JobState
from broker.core.views import JobView
from broker.launch.agent.formats import Intervals
from broker.launch.placing import Market
from broker.launch.runfolder import RunFolders
from broker.ledger.entries import Account
from broker.placement.conditions import Conditions
from broker.settings import Settings
from cli import registries
from tests.program import kill, processes

BUDGET = "version: 1\npolicy: money\nbudgets: [{name: all, amount: $1000000000, period: month}]\n"
PRICE = Money.usd(3600)  # a dollar a second


@dataclass(frozen=True)
class Pair:
    """A guardrail that stops the job, and one like it that does not. ``admits``: it says nothing of a new job.
    ``running``: it also stops what runs; ``job``: what the job must say for it."""

    stops: str
    lets: str
    job: str = ""
    admits: bool = False
    running: bool = True
    words: str = ""


# The machine is an H100 at acme/us-1, spot, joined by PCIe, at $3,600 an hour; the job says 10 minutes.
PAIRS = {
    "locations": Pair("allowed_locations: {providers: {deny: acme}}", "allowed_locations: {providers: [acme]}"),
    "regions": Pair("allowed_locations: {regions: 'eu-*'}", "allowed_locations: {regions: [us-*, eu-*]}"),
    "price": Pair("max_price_per_gpu_hour: {H100: $3599.99}", "max_price_per_gpu_hour: {H100: $3600}"),
    "types": Pair("capacity_types: [on_demand]", "capacity_types: [on_demand, spot]"),
    "accelerators": Pair("accelerators: {deny: 'H*'}", "accelerators: {deny: 'B*'}"),
    "spot": Pair("spot: {use: forbidden}", "spot: {min_share: 50%}"),
    "checkpoints": Pair("spot: {use: with_checkpoints}", "spot: {min_share: 100%}", "checkpoint: {size: 1MB}"),
    "interconnect": Pair("min_interconnect: {at_least: nvlink, from_gpus: 1}",
                         "min_interconnect: {at_least: pcie, from_gpus: 1}"),
    "residency": Pair("data_residency: {run_in: '*/eu-*'}", "data_residency: {run_in: '*/us-*'}",
                      "data: {location: acme/us-1}"),
    "sensitive": Pair("sensitive_data: on_premises", "data_residency: {run_in: '*'}",
                      "data: {location: acme/us-1, sensitive: true}"),
    "cost": Pair("max_job_cost: $2", "max_job_cost: $100000", words="it has cost $"),
    "duration": Pair("max_job_duration: 2s", "max_job_duration: 10m", words="it has run for"),
    "age": Pair("runaway: {max_age: 2s}", "runaway: {max_age: 10m}", words="it was submitted"),
    "hours": Pair("working_hours: {from: '00:00', to: '24:00', days: [DAY]}",
                  "working_hours: {from: '00:00', to: '24:00', days: [mon, tue, wed, thu, fri, sat, sun]}"),
    "freeze": Pair("freeze: {from: '2000-01-01', to: '9000-01-01', running: stop}",
                   "freeze: {from: '2000-01-01', to: '2000-01-02', running: stop}"),
    "idle": Pair("idle_shutdown: {below: 5%, for: 1s}", "idle_shutdown: {below: 2%, for: 1s}", admits=True),
    "condition": Pair("capacity_types: owned, when: 'offer.price > 100.0'",
                      "capacity_types: owned, when: 'offer.price > 5000.0'"),
    "jobs": Pair("max_concurrent_jobs: 1", "max_concurrent_jobs: 2", running=False),
    "gpus": Pair("max_concurrent_gpus: 1", "max_concurrent_gpus: 2", running=False),
    "price-age": Pair("max_price_age: 59m", "max_price_age: 1h1m", running=False),
    "reference": Pair("reference_prices: forbidden", "max_price_age: 2h", running=False),
}  # fmt: skip
COMMAND = """\
i=0; stop=; d="$GPUBROKER_CHECKPOINT_DIR"
save() { i=$((i+1)); mkdir "$d/.new" && echo $i > "$d/.new/step" && mv "$d/.new" "$d/step-$i"; }
trap 'stop=1' TERM
until [ "$stop" ]; do save; sleep 0.5 & wait $!; done
save
"""


def job(broker: Broker, name: str, extra: str = "") -> Job:
    text = f"name: {name}\nenvironment: {name}\nmax_duration: 10m\nresources: {{accelerators: 'H100:1'}}\n"
    indented = COMMAND.replace("\n", "\n  ").rstrip()
    return parse_job(f"{text}run: |\n  {indented}\n{extra}", file="job.yaml", now=broker.clock.now())


def rule(broker: Broker, name: str, said: str, environment: str) -> str:
    now = broker.clock.now() + timedelta(days=2)  # a day that is neither today nor tomorrow
    said = said.replace("DAY", ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[now.weekday()])
    return f"  - {{name: {name}, {said}, scope: {{environment: {environment}}}}}\n"


def activate(broker: Broker, *rules: str) -> None:
    """Each rule in a file of its own: two files may have rules about the same jobs."""
    files = {f"{n}.yaml": f"version: 1\nguardrails:\n{one}" for n, one in enumerate(rules)}
    broker.store.activate_policy({"money.yaml": BUDGET} | files, by="test")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker whose market is one kind of machine, which the local engine runs here, and looks are quick."""
    tools = tmp_path / "bin"
    tools.mkdir()
    smi = tools / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho '0, 3, 100, 80000, 60'\n")
    smi.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    home = tmp_path / "home"
    settings = Settings(
        home=home, store=f"sqlite:///{tmp_path / 'store.db'}", runs=(home / "runs").as_uri(), settle_every=0.5
    )
    broker = Broker(settings, registries())

    def market(*_: Any, **__: Any) -> Market:
        now = broker.clock.now()
        offer = Offer(
            "acme", "us-1", None, "box", "H100", 1, CapacityType.SPOT, PRICE, now - timedelta(hours=1), "test",
            cpus=8, memory_gib=64, interconnect=Interconnect.PCIE, availability=Availability.AVAILABLE,
            engine="local", interruption_rate=0.0, reference=True,
        )  # fmt: skip
        engines = {"local": broker.engine("local").honours}
        return Market([offer], Conditions(engines=engines, allow_reference_prices=True), {})

    intervals = Intervals(scan=0.1, mail=0.2, log=1.0, metrics=0.3, notice=60.0, patience=60.0)
    folders = RunFolders(settings.runs_url, broker.clock, intervals)
    monkeypatch.setattr("broker.app.submit.market_for", market)
    monkeypatch.setattr("broker.app.launching.market_for", market)
    monkeypatch.setattr("broker.app.launching.run_folders", lambda broker: folders)
    monkeypatch.setattr("broker.app.launching._JUDGE_EVERY", timedelta(seconds=0.3))
    yield broker
    kill(processes(tmp_path))
    broker.store.close()


# --- at the gate ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAIRS)
def test_at_the_gate(site: Broker, name: str) -> None:
    pair, asked = PAIRS[name], job(site, "a", PAIRS[name].job)
    if name in ("jobs", "gpus"):
        activate(site)
        submit(site, job(site, "a"))  # the first of two

    def said(text: str) -> int:
        activate(site, rule(site, "g", text, "a"))
        return preview(site, asked).exit_code

    assert said(pair.lets) == 0
    assert said(pair.stops) == (0 if pair.admits else 3)


def test_a_refusal_says_which_rule_where(site: Broker) -> None:
    activate(site, rule(site, "cheap", "max_job_cost: $2", "a"))
    seen = preview(site, job(site, "a"))

    assert seen.admission is not None
    assert str(denied(seen.admission)) == (
        "it may cost $721, the limit is $2 a job; max_cost in the job file sets less (0.yaml:3)"
    )


# --- while running --------------------------------------------------------------------------------------------------


class Running:
    """Jobs that run here, in processes of their own."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self.views = broker, dict[str, JobView]()
        self.reconciler = launching.reconciler(broker)

    def submit(self, name: str, extra: str = "") -> None:
        self.views[name] = submit(self.broker, job(self.broker, name, extra))

    def until(self, done: Callable[[], bool], what: str, seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, f"{what}: {[(n, v.state.value) for n, v in self.views.items()]}"
            self.reconciler.tick()
            with self.broker.store.reading() as look:
                self.views = {name: look.job(view.id) or view for name, view in self.views.items()}
            time.sleep(0.05)

    def all(self, state: JobState, *names: str) -> Callable[[], bool]:
        return lambda: all(self.views[name].state is state for name in names or self.views)

    def stop_of(self, name: str) -> ev.StopRequested:
        found = [e.body for e in jobs.events(self.broker, self.views[name]) if isinstance(e.body, ev.StopRequested)]
        assert found, f"{name} was not told to stop"
        return found[-1]


def stopped_while_running(site: Broker, names: list[str]) -> Running:
    """Each of these guardrails, activated while its job runs, stops it, checkpoint first; the near twins of all of
    them together let one job go on."""
    running = Running(site)
    activate(site)
    for name in names:
        running.submit(name, PAIRS[name].job)
    running.submit("twin", "data: {location: acme/us-1}\ncheckpoint: {every: 1m}")
    running.until(running.all(JobState.RUNNING), "all run")
    running.until(lambda: all(v.checkpoint for v in running.views.values()), "all have saved a checkpoint")
    if "idle" in names:
        time.sleep(1.5)  # seen idle for long enough
    activate(
        site,
        *(rule(site, name, PAIRS[name].stops, name) for name in names),
        *(rule(site, f"{name}-twin", PAIRS[name].lets, "twin") for name in names),
    )
    running.until(running.all(JobState.PAUSED_BUDGET, *names), "all are stopped")
    assert running.views["twin"].state is JobState.RUNNING, "its rules let it go on"
    for name in names:
        view, stop = running.views[name], running.stop_of(name)
        attempt = view.attempts[-1]
        assert (attempt.cause, stop.cause) == (Cause.STOPPED_BY_POLICY, Cause.STOPPED_BY_POLICY), name
        assert PAIRS[name].words in stop.why
        assert stop.why in view.waiting_because
        after = [c for c in attempt.checkpoints if attempt.stop_requested_at and c.at >= attempt.stop_requested_at]
        assert after, f"{name}: saved once more when it was told to stop"
        billed_to_the_second(site, view)
    return running


def billed_to_the_second(site: Broker, view: JobView) -> None:
    """Every attempt that is over cost a dollar for each second its machine was there, and nothing is held."""
    with site.store.reading() as look:
        entries = look.entries(view.id)
    assert sum((e.amount for e in entries if e.account is Account.HELD), Money.ZERO) == Money.ZERO
    for attempt in view.attempts:
        assert attempt.gone_at is not None
        assert attempt.up_since is not None
        mine = [e for e in entries if e.tags.attempt == attempt.number and e.account is Account.SPENT]
        spent = sum(e.amount.micros for e in mine)
        seconds = Fraction((attempt.gone_at - attempt.up_since) // timedelta(microseconds=1), 1_000_000)
        assert 0 <= Fraction(spent, 1_000_000) - seconds < 1, "billed in steps of a second"


@pytest.mark.skipif(os.name != "posix", reason="processes and signals")
def test_while_running_a_few(site: Broker) -> None:
    running = stopped_while_running(site, ["cost", "locations"])

    # What was stopped at its cost limit goes on from its checkpoint, once the limit and the job's own are higher.
    view = running.views["cost"]
    activate(site, rule(site, "cost", "max_job_cost: $100000", "cost"))
    jobs.extend(site, view, jobs.More(max_cost=Money.usd(9000)))
    running.until(running.all(JobState.RUNNING, "cost"), "it runs again")
    second = running.views["cost"].attempts[-1]
    assert second.number == 2
    # What a policy stopped needs neither more money nor more time to go on, once the policy lets it.
    jobs.extend(site, running.views["locations"], jobs.More())
    running.until(running.all(JobState.RUNNING, "locations"), "the other one runs again, too")
    assert second.resumed_from == max(c.id for c in view.attempts[0].checkpoints)


@pytest.mark.system
@pytest.mark.timeout(300)
def test_while_running_all(site: Broker) -> None:
    stopped_while_running(site, [name for name, pair in PAIRS.items() if pair.running])
