"""Somebody with a job for the cloud: submits it with the real program, and is shown what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from broker.core.market.capacity import TAG
from tests.cloud.lab import REGION, ZONES, CloudLab
from tests.program import eventually, processes, rows, run, start
from tests.skypilot_desk import JOB, SkyDesk, moment

# 3.6 $ an hour is a tenth of a cent a second; the second zone is dearer, so the first is always tried first.
PRICES = {"use1-az6": "3.6", "use1-az1": "4.32"}
POLICY = "version: 1\npolicy: lab\nbudgets: [{name: month, amount: $50, period: month}]\n"
PACE = 0.5  # seconds a step
EVERY = 3  # seconds between checkpoints
# After so many seconds without a sign nothing is waited for any more. A launch on a busy machine takes minutes.
_STILL = 420.0
# Each rank counts; every step is a checkpoint finished by rename, and is printed once it is kept.
COUNT = """\
cd "$GPUBROKER_CHECKPOINT_DIR"
last=$(ls | tail -n 1); last=${last#step-}; last=$((10#${last:-0}))
echo "rank ${GPUBROKER_RANK:-0} goes on after $last"
for n in $(seq $((last + 1)) $STEPS); do
  sleep $PACE
  echo "$n" > .new && mv .new "$(printf step-%06d $n)"
  echo "step $n"
done
"""


class CloudDesk(SkyDesk):
    """``folder``: its own, empty. ``steps``: how long the job is, at `PACE`."""

    def __init__(
        self,
        lab: CloudLab,
        folder: Path,
        steps: int = 30,
        nodes: int = 1,
        zones: tuple[str, ...] = tuple(ZONES),
        capacity_type: str = "spot",
        script: str = COUNT,
        retries: int = 2,
    ) -> None:
        super().__init__(folder, lab.environment)
        self.lab, self.steps, self.nodes, self.zones = lab, steps, nodes, zones
        self.capacity_type, self.script, self.retries = capacity_type, script, retries

    def hand_in(self) -> None:
        """Submit the job; the program stays until its end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        header = "region,zone,instance_type,accelerator,count,capacity_type,price_per_hour,cpus,memory_gib,engine\n"
        offers = [
            f"{REGION},{zone},m6i.large,,0,{self.capacity_type},{PRICES[zone]},2,8,skypilot\n" for zone in self.zones
        ]
        (self.folder / "offers.csv").write_text(header + "".join(offers))
        script = "".join(f"  {line}\n" for line in self.script.splitlines())
        retry = f"{{failures: {self.retries}, backoff: 0s}}"
        job = (
            f"name: {JOB}\nresources: {{cpus: 1}}\nnum_nodes: {self.nodes}\nmax_duration: 1h\nwork: 30s\ndeadline: 2h\n"
            f"checkpoint: {{every: {EVERY}s, size: 1KB, restart: 5s}}\nretry: {retry}\n"
            f"constraints: {{providers: [lab]}}\nenvs: {{STEPS: '{self.steps}', PACE: '{PACE}'}}\nrun: |\n{script}"
        )
        self.gpubroker("prices", "import", str(self.folder / "offers.csv"), "--provider", "lab")
        self.gpubroker("prices", "accept", "lab")  # dear for two CPUs
        self.submit(POLICY, job)

    def follow(self) -> None:
        """Look after the job again, once everything of the broker was killed."""
        self._cli = [start("logs", JOB, "--follow", home=self.home, **self.environment)]

    def sweep(self, *words: str) -> list[dict[str, Any]]:
        """What a sweep over the cloud finds, and with ``--end`` ends."""
        return list(self._swept(*words)["found"])

    def store_id(self) -> str:
        """By which this store's machines are tagged."""
        return str(self._swept()["store"])

    def _swept(self, *words: str) -> dict[str, Any]:
        self.folder.mkdir(parents=True, exist_ok=True)
        about = {"GPUBROKER_PROVIDERS__AWS__REGIONS": REGION, **self.lab.environment}
        done = run("doctor", "--sweep", "--json", *words, home=self.home, timeout=300, **about)
        assert done.returncode in (0, 2), done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        assert not document["trouble"], document
        return document

    def wait(self, happened: Callable[[], Any], what: str, seconds: float) -> None:
        self.while_it_gets_on(happened, what)

    def while_it_gets_on(self, happened: Callable[[], Any], what: str) -> None:
        """Wait for that, as long as something happens to the job: an event of it, or a machine that comes or goes."""
        while not happened():
            before = self._signs()
            eventually(partial(self._moved, happened, before), f"{what}; all was still", _STILL)

    def _moved(self, happened: Callable[[], Any], before: object) -> bool:
        return bool(happened()) or self._signs() != before

    def _signs(self) -> object:
        events = rows(self.store, "SELECT count(*) FROM attempt_event") if self.store.exists() else []
        return events, self.lab.states()

    def taken_back(self) -> list[bool]:
        """Of each attempt whether its machine was taken back, in the order of their ends."""
        return [bool(one["interrupted"]) for one in self.events("machine_gone")]

    def instances(self) -> list[dict[str, Any]]:
        """The instances that were ever started for this job, oldest first."""
        keys = {str(one["key"]) for one in self.events("launch_requested")}
        return [one for one in self.lab.instances() if _tag(one) in keys]

    def verify_nothing_left(self) -> None:
        """No machine, no cluster, no hold, no process; every movement balances; each attempt is billed its price for
        the time from its launch until its machines were gone, and no machine lived outside of that time."""
        assert not self.lab.alive(), "a machine runs on"
        eventually(lambda: not processes(self.home), "every process of the broker is gone")
        assert "No existing clusters" in self.lab.server.sky("status")
        entries = rows(self.store, "SELECT movement_id, account, micros, attempt FROM ledger_entry")
        assert sum(micros for _, account, micros, _ in entries if account == "held") == 0
        for movement in {movement for movement, *_ in entries}:
            assert sum(micros for one, _, micros, _ in entries if one == movement) == 0
        lives = {one["InstanceId"]: self.lab.life(one) for one in self.instances()}
        tags = {one["InstanceId"]: _tag(one) for one in self.instances()}
        for requested in self.events("launch_requested"):
            number, offer = requested["attempt"], requested["placement"]["offer"]
            spent = sum(micros for _, account, micros, of in entries if account == "spent" and of == number)
            since = [moment(one["since"]) for one in self.events("machine_up") if one["attempt"] == number]
            gone = [one["gone_at"] for one in self.events("machine_gone") if one["attempt"] == number]
            mine = [lives[id] for id, key in tags.items() if key == requested["key"]]
            if not mine:
                # Of a gang, one machine may have existed: it is billed until its cluster is gone.
                assert spent == 0 or self.nodes > 1, "billed without a machine"
                continue
            (began,), (until,) = since, [moment(one) for one in gone if one]
            assert Fraction(offer["price"]) >= Fraction(PRICES[offer["zone"]]), "the machine, and its disk"
            billed = Fraction(spent, round(Fraction(offer["price"]) * 1_000_000)) * 3600 / self.nodes
            late = billed - Fraction(until - began).limit_denominator(10**6)
            assert Fraction(-1, 100) < late < Fraction(101, 100), "billed in steps of a second, to micro-dollars"
            assert began <= min(birth for birth, _ in mine) + 1, "the machine ran before its bill began"
            assert until >= max(death for _, death in mine) - 1, "the machine ran after its bill had ended"

    def transcript(self) -> str:
        """What became of the job, as its user is shown it, and its ledger: account, USD, attempt."""
        entries = rows(
            self.store, "SELECT movement_id, account, micros, attempt FROM ledger_entry ORDER BY movement_id"
        )
        lines = [
            f"{id:48} {account:10} {micros / 1e6:10.6f} {attempt or ''}" for id, account, micros, attempt in entries
        ]
        return "\n".join([self.gpubroker("status", JOB), *lines])


def _tag(instance: dict[str, Any]) -> str:
    return next((str(tag["Value"]) for tag in instance.get("Tags", []) if tag["Key"] == TAG), "")
