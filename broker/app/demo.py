"""The demo: one job from market to bill, on the simulated market; everything else is real.

It uses its own store, in which time runs up to 240 times as fast, so that two hours of training pass in half a minute.
On a slow or busy machine time runs slower (`demo_speed`), so that the story stays the same. The training, the agents,
the background reconciler, the interruptions (a notice, then SIGKILL), the checkpoints
and the ledger are those of every job.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

from broker.app.billing.report import ledger_faults
from broker.app.jobs import background, jobs
from broker.app.jobs.preview import Preview, preview
from broker.app.jobs.submit import submit
from broker.app.market.market import freshen
from broker.app.policy import policies
from broker.app.service.documents import DemoReport
from broker.app.wiring import Broker, Registries
from broker.core.actors import Actor, ProcessAccount
from broker.core.errors import BrokerError
from broker.core.events.events import Event
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.market.offers import SANDBOX, Availability, CapacityType, MoneyKind, Offer
from broker.core.values.money import Money
from broker.ledger.entries import Account
from broker.reconciler.progress import on_demand_cost, steps_redone
from broker.settings import Settings

DEFAULT_SEED = 7
_WORK = timedelta(hours=2)
_STEPS = 1000
_MAX_SPEED, _MIN_SPEED = 240.0, 40.0
_PROCESS_START = timedelta(seconds=90)  # the simulated time that the start of one process may take
_KEEP = timedelta(days=1)
_PATIENCE_SECONDS = 600.0


class DemoStuck(BrokerError):
    """The demo did not finish in time."""


def example(name: str) -> Path:
    """The path of an example: next to the package in a checkout, inside it in an installation. Raises FileNotFoundError
    for a broken installation."""
    package = Path(str(files("broker")))
    for folder in (package / "examples", package.parent / "examples"):
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(f"examples/{name} is not where gpubroker is installed ({package})")


def demo_speed(start_seconds: float) -> float:
    """How many times as fast as the wall clock time runs where the start of a process takes ``start_seconds``.

    A launch starts four processes in turn. At this speed they take a few simulated minutes on any machine.
    """
    return max(_MIN_SPEED, min(_MAX_SPEED, _PROCESS_START.total_seconds() / start_seconds))


def _start_seconds() -> float:
    """The wall time that starting one of the sandbox's machines takes here and now, in seconds. The first start, which
    may read files that are in no cache, does not count."""
    program = [sys.executable, "-P", "-c", "import broker.engines.sandbox.machine"]
    times = []
    for _ in range(3):
        began = time.monotonic()
        subprocess.run(program, check=True, cwd=Path(str(files("broker"))).parent)  # noqa: S603  # our own interpreter
        times.append(time.monotonic() - began)
    return sum(times[1:]) / 2


class Demo:
    """One demo in a folder of its own under ``home``: `prepare`, `plan`, `start`, `follow`, `summary`, in this
    order."""

    def __init__(self, home: Path, registries: Registries, actor: Actor, seed: int = DEFAULT_SEED) -> None:
        self.seed, self.speed = seed, demo_speed(_start_seconds())
        self.home = _new_folder(home / "demo")
        settings = Settings(
            home=self.home,
            store=f"sqlite:///{self.home / 'gpubroker.db'}",
            runs=(self.home / "runs").as_uri(),
            policy="",
            providers={SANDBOX: {"scenario": "demo", "seed": seed}},
            reconcile_every=0.2,
            settle_every=60.0,
        )
        self.broker = Broker(settings, registries, ProcessAccount(actor.identity))
        self._actor = actor
        self._job_id = ""

    def prepare(self) -> int:
        """Start the simulated time, apply the example policy and poll the market; returns the number of offers."""
        self.broker.set_clock(self.speed, datetime.now(UTC).replace(minute=0, second=0, microsecond=0))
        policies.apply(self.broker, [example("policy.yaml")], note="demo", by=self._actor)
        freshen(self.broker, sandbox=True)
        return len([o for o in self.broker.store.offers() if o.provider == SANDBOX])

    def plan(self) -> Preview:
        """The plan of the demo's job, with the verdict of the policy."""
        return preview(self.broker, self._job(), by=self._actor)

    def _job(self) -> Job:
        path = example("demo.yaml")
        job = parse_job(path.read_text(encoding="utf-8"), file=str(path), now=self.broker.clock.now())
        pace = _WORK.total_seconds() / _STEPS / self.speed
        return job.model_copy(update={"workdir": str(example("training")), "envs": {"PACE": f"{pace:.4f}"}})

    def cheapest(self) -> dict[CapacityType, list[Offer]]:
        """The available offers of the machine the job needs, by capacity type, cheapest first."""
        requests = self._job().resources
        offers_by_type: dict[CapacityType, list[Offer]] = {}
        for offer in self.broker.store.offers():
            if offer.provider != SANDBOX or offer.availability is not Availability.AVAILABLE or offer.price is None:
                continue
            if any(offer.accelerator == m.accelerator and offer.count == m.count for m in requests):
                offers_by_type.setdefault(offer.capacity_type, []).append(offer)
        for offers in offers_by_type.values():
            offers.sort(key=lambda o: (o.price or Money.ZERO, o.id))
        return dict(sorted(offers_by_type.items()))

    def give_up(self) -> None:
        """Cancel the job, if there is one; the background reconciler stops it."""
        if self._job_id:
            jobs.cancel(self.broker, jobs.find(self.broker, self._job_id), by=self._actor)
            background.ensure(self.broker)

    def start(self, seen: Preview) -> JobView:
        """Submit the job and start the background reconciler."""
        view = submit(self.broker, seen.job, by=self._actor)
        self._job_id = view.id
        background.ensure(self.broker)
        return view

    def follow(self, waiting: Callable[[JobView], None] = lambda view: None) -> Iterator[tuple[Event, JobView]]:
        """Every event as it is recorded, with the job then, until the job is closed. ``waiting`` is called between two
        reads. A reconciler that was killed is started again. Raises `DemoStuck` after ten minutes."""
        event_count, waited_seconds = 0, 0.0
        while True:
            with self.broker.store.reading() as reader:
                view, events = reader.job(self._job_id), reader.events(self._job_id)
            assert view is not None
            for event in events[event_count:]:
                yield event, view
            event_count = len(events)
            if view.closed:
                return
            if waited_seconds > _PATIENCE_SECONDS:
                raise DemoStuck(f"the demo's job is still {view.state.value}", hint=f"see {self.home}/reconciler.log")
            background.revive(self.broker)
            waiting(view)
            self.broker.clock.sleep(0.1)
            waited_seconds += 0.1

    def summary(self) -> DemoReport:
        """The figures of the finished job."""
        with self.broker.store.reading() as reader:
            view, entries = reader.job(self._job_id), reader.entries(self._job_id)
            balance = reader.balance(self._job_id)
        assert view is not None
        amounts = (e.amount for e in entries if e.account is Account.SPENT and e.money is MoneyKind.SANDBOX)
        held = balance[MoneyKind.SANDBOX].held if MoneyKind.SANDBOX in balance else Money.ZERO
        resumed_steps = [a.resumed_step for a in view.attempts if a.resumed_step is not None]
        end = view.ended_at or view.submitted_at
        cost, reference_cost = sum(amounts, Money.ZERO), on_demand_cost(view) or Money.ZERO
        savings = reference_cost - cost
        return DemoReport(
            job_id=view.id,
            job_state=view.state,
            attempts=view.attempt_count,
            interruptions=view.interruptions,
            failures=view.failures,
            resumed_from_step=resumed_steps[-1] if resumed_steps else 0,
            steps=max((a.last_step or 0 for a in view.attempts), default=0),
            steps_redone=sum(steps_redone(view.attempts).values()),
            cost=cost,
            on_demand_cost=reference_cost,
            savings=savings,
            savings_percent=round(100 * savings.micros / reference_cost.micros, 1) if reference_cost else 0.0,
            held=held,
            ledger_balanced=not ledger_faults(self.broker),
            seed=self.seed,
            speed=self.speed,
            simulated_seconds=(end - view.submitted_at).total_seconds(),
            home=self.home,
        )


def _new_folder(root: Path) -> Path:
    """A new private folder. Deletes folders of earlier demos that are older than a day; none in use is that old."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    now = datetime.now(UTC)
    for folder in root.iterdir():
        if now.timestamp() - folder.stat().st_mtime > _KEEP.total_seconds():
            shutil.rmtree(folder, ignore_errors=True)
    new_folder = root / now.strftime("%Y%m%dT%H%M%S.%f")
    new_folder.mkdir(mode=0o700)
    return new_folder
