"""For every rule that may stand in a policy file something it stops, and the near twin that it lets through: the table,
and a site with one machine to try it on. At the gate the plan and the admission are the real ones; while running, so
are the local engine, its agents, their processes and the bill."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from broker.agent.formats import Intervals
from broker.app.billing import budgets
from broker.app.jobs import jobs
from broker.app.jobs.submit import submit
from broker.app.service import passes
from broker.app.wiring import Broker
from broker.core.events import events as ev
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer
from broker.core.values.money import Money
from broker.engines.runfolder.run_folders import RunFolders
from broker.ledger.entries import Account
from broker.placement.planner import PlanInputs
from broker.placement.pricing.conditions import Conditions
from broker.settings import Settings
from cli import registries
from tests.actors import ANN, EVERYBODYS
from tests.empty_store import empty_store
from tests.program import kill, processes
from tests.waiting import looks

BUDGET = "version: 1\npolicy: money\nbudgets: [{name: all, amount: $1000000000, period: month}]\n"
PRICE = Money.usd(3600)  # a dollar a second
MACHINE = "data: {location: acme/us-1}\ncheckpoint: {every: 1m}\n"


@dataclass(frozen=True)
class Pair:
    """An entry of a policy file that stops the job, and one like it that does not.

    ``job``: what the job must say for it; ``machine``: what must be otherwise about the machine. ``ends``: how planning
    ends (3 denied, 6 an approval is required, 0 new jobs are not affected). ``running``: it also stops running jobs;
    then the job is told so in these ``words``.
    """

    stops: str
    lets: str
    job: str = ""
    section: str = "guardrails"
    machine: dict[str, Any] = field(default_factory=dict)
    ends: int = 3
    running: bool = True
    words: str = ""

    @property
    def kind(self) -> str:
        """The rule that it is about, as the registry knows it."""
        return "budget" if self.section == "budgets" else self.stops.partition(":")[0]


# The machine is an H100 at acme/us-1, spot, joined by PCIe, at $3,600 an hour; it emits a kilogram an hour, its card is
# 3% busy. The job says 10 minutes, so it holds $720.
PAIRS = {
    "locations": Pair("allowed_locations: {providers: {deny: acme}}", "allowed_locations: {providers: [acme]}",
                      words="acme is not allowed"),
    "regions": Pair("allowed_locations: {regions: 'eu-*'}", "allowed_locations: {regions: [us-*, eu-*]}",
                    words="acme/us-1 is not allowed: allowed: eu-*"),
    "price": Pair("max_price_per_gpu_hour: {H100: $3599.99}", "max_price_per_gpu_hour: {H100: $3600}",
                  words="costs $3,600.00 per GPU-hour; the limit is $3,599.99"),
    "types": Pair("capacity_types: [on_demand]", "capacity_types: [on_demand, spot]", words="spot"),
    "accelerators": Pair("accelerators: {deny: 'H*'}", "accelerators: {deny: 'B*'}", words="H100"),
    "spot": Pair("spot: {use: forbidden}", "spot: {min_share: 50%, min_gpu_hours: 0}", words="spot is forbidden"),
    "checkpoints": Pair("spot: {use: with_checkpoints}", "spot: {min_share: 100%}", "checkpoint: {size: 1MB}",
                        words="spot requires checkpoints"),
    "renting": Pair("renting: {horizon: 5m}", "renting: {horizon: 2h, utilisation: 90%, break_even: 90%}",
                    machine={"capacity_type": CapacityType.ON_DEMAND}, running=False),
    "share": Pair("spot: {min_share: 50%, min_gpu_hours: 0}", "spot: {min_share: 50%}", MACHINE,
                  machine={"capacity_type": CapacityType.ON_DEMAND}, running=False),
    "interconnect": Pair("min_interconnect: {at_least: nvlink, from_gpus: 1}",
                         "min_interconnect: {at_least: pcie, from_gpus: 1}", words="pcie"),
    "residency": Pair("data_residency: {run_in: '*/eu-*'}", "data_residency: {run_in: '*/us-*'}",
                      "data: {location: acme/us-1}", words="acme/us-1"),
    "sensitive": Pair("sensitive_data: on_premises", "data_residency: {run_in: '*'}",
                      "data: {location: acme/us-1, sensitive: true}", words="sensitive"),
    "cost": Pair("max_job_cost: $2", "max_job_cost: $100000", words="the job has cost $"),
    "asks": Pair("max_job_cost: $2, action: ask, approvers: [olga]",
                 "max_job_cost: $100000, action: ask, approvers: [olga]", ends=6, words="the job has cost $"),
    "duration": Pair("max_job_duration: 2s", "max_job_duration: 10m", words="the job has run for"),
    "age": Pair("runaway: {max_age: 2s}", "runaway: {max_age: 10m}", words="the job was submitted"),
    "hours": Pair("working_hours: {from: '00:00', to: '24:00', days: [DAY]}",
                  "working_hours: {from: '00:00', to: '24:00', days: [mon, tue, wed, thu, fri, sat, sun]}",
                  words="jobs like this run 00:00 to 24:00"),
    "freeze": Pair("freeze: {from: '2000-01-01', to: '9000-01-01', running: stop}",
                   "freeze: {from: '2000-01-01', to: '2000-01-02', running: stop}", words="nothing runs until 9000"),
    "carbon": Pair("max_kg_co2e: 0.0005", "max_kg_co2e: 0.2", words="the job has emitted"),
    "idle": Pair("idle_shutdown: {below: 5%, for: 1s}", "idle_shutdown: {below: 2%, for: 1s}", ends=0,
                 words="at most 3%"),
    "condition": Pair("capacity_types: owned, when: 'offer.price > 100.0'",
                      "capacity_types: owned, when: 'offer.price > 5000.0'", words="spot"),
    "budget": Pair("amount: $2, period: month, action: stop, grace: 1s",
                   "amount: $721, period: month, action: stop, grace: 1s", section="budgets", words="is exceeded: $"),
    "jobs": Pair("max_concurrent_jobs: 1", "max_concurrent_jobs: 2", running=False),
    "gpus": Pair("max_concurrent_gpus: 1", "max_concurrent_gpus: 2", running=False),
    "quota": Pair("reserved_quota: {gpus: {nlp: 4}}", "reserved_quota: {gpus: {nlp: 4}, others: 1}",
                  machine={"capacity_type": CapacityType.RESERVED}, running=False),
    "approval": Pair("approve_above: {cost: $719, approvers: [olga]}", "approve_above: {cost: $721, approvers: [olga]}",
                     ends=6, running=False),
    "price-age": Pair("max_price_age: 59m", "max_price_age: 1h1m", running=False),
    "reference": Pair("reference_prices: forbidden", "max_price_age: 2h", running=False),
}  # fmt: skip
# What is about starts alone, and why.
NOT_WHILE_RUNNING = {
    "max_concurrent_gpus": "of two jobs that run, neither is the one too many",
    "max_concurrent_jobs": "likewise",
    "reserved_quota": "likewise",
    "renting": "what runs stays where it is, whatever is free now",
    "approve_above": "what runs was asked about before",
    "max_price_age": "what runs goes on at the price it started at",
    "reference_prices": "likewise",
}
# What is about no job, or needs more than a machine, and where it is tried.
NOT_ABOUT_JOBS = {
    "purchases": "tests/procurement",
    "unusual_spending": "tests/app/billing/test_anomalies.py: an anomaly needs weeks of spending before it",
}
COMMAND = """\
i=0; stop=; d="$GPUBROKER_CHECKPOINT_DIR"
# A stop is told to everything here: what saves lets it pass, and what an earlier one left half saved is cleared away.
save() {
  i=$((i+1))
  (trap '' TERM; rm -rf "$d/.new"; mkdir "$d/.new" && echo $i > "$d/.new/step" && mv "$d/.new" "$d/step-$i")
}
trap 'stop=1' TERM
until [ "$stop" ]; do save; sleep 0.5 & wait $!; done
save
"""


def job(broker: Broker, name: str, extra: str = "") -> Job:
    text = f"name: {name}\nenvironment: {name}\nmax_duration: 10m\n"
    text += "resources: {accelerators: 'H100:1', capacity_types: [owned, reserved, on_demand, spot]}\n"
    indented = COMMAND.replace("\n", "\n  ").rstrip()
    return parse_job(f"{text}run: |\n  {indented}\n{extra}", file="job.yaml", now=broker.clock.now())


def entry(broker: Broker, name: str, said: str, environment: str, section: str = "guardrails") -> str:
    """A file's section with one entry, about the jobs of that environment."""
    now = broker.clock.now() + timedelta(days=2)  # a day that is neither today nor tomorrow
    said = said.replace("DAY", ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[now.weekday()])
    return f"{section}:\n  - {{name: {name}, {said}, scope: {{environment: {environment}}}}}\n"


def activate(broker: Broker, *sections: str) -> None:
    """Each entry in a file of its own: two files may have rules about the same jobs."""
    files = {f"{n}.yaml": f"version: 1\n{one}" for n, one in enumerate(sections)}
    broker.store.activate_policy({"money.yaml": BUDGET} | files, by="test")


@pytest.fixture
def machine() -> dict[str, Any]:
    """What is otherwise about the machine; a test may change it."""
    return {}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: dict[str, Any]) -> Iterator[Broker]:
    """A broker whose market is one kind of machine, which the local engine runs here, and looks are quick."""
    tools = tmp_path / "bin"
    tools.mkdir()
    smi = tools / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho '0, 3, 100, 80000, 60'\n")
    smi.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    home = tmp_path / "home"
    settings = Settings(
        home=home, store=empty_store(tmp_path / "store.db"), runs=(home / "runs").as_uri(), settle_every=0.5
    )
    broker = Broker(settings, registries(), EVERYBODYS)

    def market(*_: Any, **__: Any) -> PlanInputs:
        now = broker.clock.now()
        said = {"capacity_type": CapacityType.SPOT, **machine}
        offer = Offer(
            "acme", "us-1", None, "box", "H100", 1, price=PRICE, as_of=now - timedelta(hours=1), source="test",
            cpus=8, memory_gib=64, interconnect=Interconnect.PCIE, availability=Availability.AVAILABLE,
            engine="local", interruption_rate=0.0, reference=True, **said,
        )  # fmt: skip
        engines = {"local": broker.engine("local").honours}
        conditions = Conditions(engines=engines, allow_reference_prices=True, carbon=lambda _: 1.0)
        return PlanInputs([offer], conditions, {})

    intervals = Intervals(scan=0.1, mail=0.2, log=1.0, metrics=0.3, notice=60.0, patience=60.0)
    folders = RunFolders(settings.runs_url, broker.clock, intervals)
    monkeypatch.setattr("broker.app.jobs.preview.market_for", market)
    monkeypatch.setattr("broker.app.service.passes.market_for", market)
    monkeypatch.setattr("broker.app.service.passes.run_folders", lambda broker: folders)
    monkeypatch.setattr("broker.app.service.passes._JUDGE_EVERY", timedelta(seconds=0.3))
    yield broker
    kill(processes(tmp_path))
    broker.store.close()


class RunningJobs:
    """Jobs that run here, in processes of their own."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self.views = broker, dict[str, JobView]()
        self.reconciler = passes.reconciler(broker)

    def submit(self, name: str, extra: str = "") -> None:
        self.views[name] = submit(self.broker, job(self.broker, name, extra), by=ANN)

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Reconcile until it is so, and leave most of the processor to the jobs."""
        try:
            for _ in looks(what):
                if done():
                    return
                self.reconciler.tick()
                budgets.queue_notices(self.broker)  # as whoever reconciles does beside it
                with self.broker.store.reading() as look:
                    self.views = {name: look.job(view.id) or view for name, view in self.views.items()}
        except AssertionError as error:
            error.add_note(str([(name, view.state.value) for name, view in self.views.items()]))
            raise

    def all(self, state: JobState, *names: str) -> Callable[[], bool]:
        return lambda: all(self.views[name].state is state for name in names or self.views)

    def stop_of(self, name: str) -> ev.StopRequested:
        found = [e.body for e in jobs.events(self.broker, self.views[name]) if isinstance(e.body, ev.StopRequested)]
        assert found, f"{name} was not told to stop"
        return found[-1]


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
