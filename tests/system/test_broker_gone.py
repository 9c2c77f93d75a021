"""The broker is gone for hours of the sandbox's time: nothing is killed, nothing runs longer than it is paid for or may
be left alone, and when the broker is back it picks everything up, with the bill right."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.app.wiring import Broker
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.values.money import Money
from broker.ledger.entries import Account, faults
from broker.settings import Settings
from cli import registries
from tests.actors import EVERYBODYS
from tests.billing import metered
from tests.program import eventually, kill, processes, run

pytestmark = pytest.mark.system

# An hour of the sandbox in twelve seconds.
SPEED = 300.0
# What a process of a loaded machine may need to do what it is to do now, by the wall. Left alone, jobs run much longer.
SLOW = timedelta(seconds=40)
MARKET = """\
name = "patient"
boot_seconds = [60, 120]
max_age_minutes = 100000
minimum_seconds = 60
[behaviours.steady]
machines = [8, 8]
[[zones]]
name = "sandbox-east-a"
region = "sandbox-east"
spot = "steady"
on_demand = "steady"
[[machines]]
instance_type = "sandbox-4cpu"
cpus = 4
memory_gib = 16
on_demand = "0.40"
"""
POLICY = """\
version: 1
policy: gone
budgets: [{name: pretend, amount: $1000, period: month, counts: [sandbox]}]
"""
# Counts, a checkpoint a number; says every so often that it lives.
COUNT = """\
echo "$GPUBROKER_ATTEMPT" >> "$MARKS/attempts"
cd "$GPUBROKER_CHECKPOINT_DIR"
last=$(ls | tail -n 1); last=${last#step-}; last=$((10#${last:-0}))
for n in $(seq $((last + 1)) $STEPS); do
  sleep 0.5
  date +%s >> "$MARKS/lived"
  echo "$n" > .new && mv .new "$(printf step-%06d $n)"
done
"""


class Away:
    """One job on the sandbox, and a broker that comes and goes."""

    def __init__(self, folder: Path, limits: str, steps: int) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir(mode=0o700)
        (folder / "market.toml").write_text(MARKET)
        (folder / "policy.yaml").write_text(POLICY)
        script = "".join(f"  {line}\n" for line in COUNT.splitlines())
        (folder / "job.yaml").write_text(
            f"name: count\nresources: {{cpus: 1}}\nmax_duration: 1000h\n{limits}"
            "constraints: {providers: [sandbox]}\n"
            f"envs: {{MARKS: {folder}, STEPS: '{steps}'}}\nrun: |\n{script}"
        )
        self.variables = {
            "GPUBROKER_PROVIDERS__SANDBOX__SCENARIO": str(folder / "market.toml"),
            "GPUBROKER_POLICY": str(folder / "policy.yaml"),
            "GPUBROKER_RECONCILE_EVERY": "0.2",
        }
        self.broker = Broker(
            Settings(home=self.home, providers={"sandbox": {"scenario": str(folder / "market.toml")}}),
            registries(),
            EVERYBODYS,
        )
        self.broker.set_clock(SPEED, datetime.now(UTC))

    def cli(self, *words: str) -> str:
        """What the program prints; like any of its commands, this starts a reconciler that is missing."""
        done = run(*words, home=self.home, env=self.variables)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def leave(self) -> None:
        """Once the job runs and has saved something, every process of the broker dies."""
        self.cli("submit", str(self.folder / "job.yaml"), "--yes", "--detach")
        eventually(lambda: any(self.home.glob("runs/*/checkpoints/*/manifest.json")), "a checkpoint is saved")
        eventually(lambda: self.lease()["paid_until"] and self.view.attempts[0].up_since, "it is known to run")
        assert kill(processes(self.home, "reconciler"))

    @property
    def view(self) -> JobView:
        with self.broker.store.reading() as look:
            (view,) = look.jobs()
        return view

    def lease(self) -> dict[str, Any]:
        (path,) = self.home.glob("runs/*/attempts/1/lease.json")
        return dict(json.loads(path.read_text()))

    def exit(self) -> dict[str, Any] | None:
        """The last word of the first attempt's agent."""
        found = list(self.home.glob("runs/*/attempts/1/exit.json"))
        return dict(json.loads(found[0].read_text())) if found else None

    def lived_until(self) -> datetime:
        """The last sign of life of the command itself, by the sandbox's clock."""
        last = datetime.fromtimestamp(int((self.folder / "lived").read_text().split()[-1]), UTC)
        return self.broker.clock.now() - (datetime.now(UTC) - last) * SPEED

    def billed_right(self) -> None:
        """Each attempt for its machine's time, the books balance, nothing is held."""
        with self.broker.store.reading() as look:
            (view,) = look.jobs()
            entries = look.entries()
            assert faults(entries) == []
            assert all(not balance.held for balance in look.balance(view.id).values())
            for attempt in view.attempts:
                own = [e.amount for e in entries if e.account is Account.SPENT and e.tags.attempt == attempt.number]
                assert sum(own, Money.ZERO) == metered(attempt, self.broker.clock.now(), look.price_series)


def time_of(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def test_a_node_goes_on_alone_until_its_money_ends_and_no_longer(tmp_path: Path) -> None:
    away = Away(tmp_path, "max_cost: $1\n", steps=10**5)
    away.leave()
    paid_until = time_of(away.lease()["paid_until"])
    assert paid_until - away.broker.clock.now() > timedelta(hours=1), "there is money for a while"
    ended = eventually(away.exit, "its agent has ended it", 300)
    assert ended["cause"] == "paid_until"
    assert time_of(ended["at"]) >= paid_until, "nothing was killed before"
    assert away.lived_until() <= paid_until + SLOW * SPEED
    eventually(lambda: not processes(away.home, "machine"), "the machine is off")
    away.cli("jobs", "list")  # somebody is back
    eventually(lambda: away.view.state is JobState.PAUSED_BUDGET, "the job waits for money", 250)
    # The node keeps back what stopping may take; where that pays for another start, it is used up first.
    assert {attempt.cause for attempt in away.view.attempts} == {Cause.PAID_UNTIL}
    assert away.view.attempt_count <= 2
    eventually(lambda: not any(b.held for b in balances(away)), "nothing is held")
    away.billed_right()


def test_a_node_that_may_not_be_left_alone_for_long_stops_and_its_job_goes_on_when_the_broker_is_back(
    tmp_path: Path,
) -> None:
    away = Away(tmp_path, "max_cost: $20\nmax_unattended: 1h\n", steps=110)
    away.leave()
    paid_until = time_of(away.lease()["paid_until"])
    alone_since = time_of(away.lease()["renewed_at"])
    ended = eventually(away.exit, "its agent has ended it", 300)
    assert ended["cause"] == "unattended"
    assert alone_since + timedelta(hours=1) <= time_of(ended["at"]) < paid_until
    assert away.lived_until() <= alone_since + timedelta(hours=1) + SLOW * SPEED
    eventually(lambda: not processes(away.home, "machine"), "the machine is off")
    away.cli("jobs", "list")
    eventually(lambda: away.view.closed, "the job is finished", 400)
    first, *_, last = away.view.attempts
    assert (away.view.state, first.cause, last.cause) == (JobState.SUCCEEDED, Cause.UNATTENDED, Cause.COMPLETED)
    assert last.resumed_from is not None
    away.billed_right()


def test_a_job_that_ends_while_nobody_looks_is_found_as_it_is(tmp_path: Path) -> None:
    away = Away(tmp_path, "max_cost: $50\n", steps=40)
    away.leave()
    ended = eventually(away.exit, "the job ends by itself", 300)
    assert ended["cause"] == "completed"
    eventually(lambda: not processes(away.home, "machine"), "the machine is off")
    away.cli("jobs", "list")
    eventually(lambda: away.view.closed, "the job is closed")
    (attempt,) = away.view.attempts
    assert (away.view.state, attempt.cause) == (JobState.SUCCEEDED, Cause.COMPLETED)
    away.billed_right()
    assert processes(away.home, "agent") == []


def balances(away: Away) -> list[Any]:
    with away.broker.store.reading() as look:
        return list(look.balance(away.view.id).values())
