"""A team at work: viewers who refresh pages and people who submit, against two replicas on PostgreSQL over a ledger of
a million entries, while the leader is killed. Run:

    python -m tests.load [--minutes 10] [--entries 1000000] [--viewers 200] [--submitters 20] [--kills 5] [--every 15]

Prints the 95th percentile for each page and for submissions, the errors, and whether a budget was exceeded; exits
with 1 if there was an error, an excess, or a ledger that does not balance. Submitted jobs wait for an approval: their
money is held, and no machine is started. A request that meets a dead replica is sent to the other one, as a proxy does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from broker.app.billing import budgets
from broker.app.wiring import Broker
from broker.ledger.entries import faults
from broker.settings import Settings
from cli import registries
from tests.actors import EVERYBODYS
from tests.bench.bench_million import database
from tests.load.company import BUDGET, JOB, PAGES, filled, hired
from tests.slurm_cluster import free_ports


@dataclass
class Replica:
    """One `gpubroker serve`."""

    port: int
    home: Path
    store: str
    runs: str
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.home.mkdir(exist_ok=True)
        settings = {
            "GPUBROKER_HOME": str(self.home),
            "GPUBROKER_STORE": self.store,
            "GPUBROKER_RUNS": self.runs,
            "GPUBROKER_OFFLINE": "true",
            "GPUBROKER_SERVE__JOBS_HERE": "true",
            "GPUBROKER_SERVE__REQUESTS_PER_MINUTE": "6000",
        }
        with (self.home / "serve.out").open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cli", "serve", "--listen", f"127.0.0.1:{self.port}"],
                env={**os.environ, **settings}, stdout=said, stderr=said,
            )  # fmt: skip

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def leads(self) -> bool:
        try:
            return "leading" in httpx.get(f"{self.url}/healthz", timeout=5).text
        except httpx.HTTPError:
            return False


@dataclass
class Measured:
    """What people saw. ``seconds``: by page, of answered requests."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    answers: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    moved: int = 0

    def took(self, what: str, seconds: float, status: int, expected: tuple[int, ...]) -> None:
        self.seconds[what].append(seconds)
        self.answers[f"{what} {status}"] += 1
        if status not in expected:
            self.errors[f"{what} {status}"] += 1


class Crowd:
    """Everybody at once, until ``ends`` (monotonic)."""

    def __init__(self, replicas: list[Replica], every: float, ends: float) -> None:
        self._replicas, self._every, self._ends = replicas, every, ends
        self.measured = Measured()

    async def viewer(self, number: int, token: str) -> None:
        chance = random.Random(number)
        async with httpx.AsyncClient(timeout=60) as client:
            origin = {"Origin": self._replicas[0].url, "Host": f"127.0.0.1:{self._replicas[0].port}"}
            await asyncio.sleep(chance.uniform(0, self._every))
            entered = await self._sent(client, "POST", "/sign-in", data={"token": token}, headers=origin)
            if entered is None or entered.status_code != 303:
                self.measured.errors[f"sign-in {entered and entered.status_code}"] += 1
                return
            cookie = {"Cookie": "; ".join(f"{name}={value}" for name, value in entered.cookies.items())}
            while time.monotonic() < self._ends:
                page = chance.choice(PAGES)
                await self._measured(client, page, "GET", page, (200,), headers=cookie)
                await asyncio.sleep(chance.uniform(0.5, 1.5) * self._every)

    async def submitter(self, number: int, token: str) -> None:
        chance = random.Random(number)
        async with httpx.AsyncClient(timeout=60) as client:
            while time.monotonic() < self._ends:
                await asyncio.sleep(chance.uniform(0.5, 1.5) * self._every)
                headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": secrets.token_hex(16)}
                # 403: the budget is used up; 409: a request under this key was cut off when its server died
                await self._measured(
                    client, "submit", "POST", "/api/v1/jobs", (201, 202, 403, 409), json={"job_file": JOB},
                    headers=headers,
                )  # fmt: skip

    async def _measured(
        self, client: httpx.AsyncClient, what: str, method: str, path: str, expected: tuple[int, ...], **more: Any
    ) -> None:
        began = time.monotonic()
        answer = await self._sent(client, method, path, **more)
        if answer is not None:
            self.measured.took(what, time.monotonic() - began, answer.status_code, expected)

    async def _sent(self, client: httpx.AsyncClient, method: str, path: str, **more: Any) -> httpx.Response | None:
        """The answer of whichever replica lives; the request is the same on each."""
        first = random.randrange(len(self._replicas))
        for attempt in range(60):
            replica = self._replicas[(first + attempt) % len(self._replicas)]
            try:
                return await client.request(method, f"{replica.url}{path}", **more)
            except httpx.TransportError:
                self.measured.moved += 1
                await asyncio.sleep(0.25)  # another replica takes the lead meanwhile
        self.measured.errors[f"{path}: no replica answered"] += 1
        return None


async def killing(replicas: list[Replica], kills: int, seconds: float) -> int:
    """Kill whoever leads, evenly over the time, and start it again."""
    done = 0
    for _ in range(kills):
        await asyncio.sleep(seconds / (kills + 1))  # of the wall clock: the load is real
        leader = next((one for one in replicas if one.leads()), replicas[done % len(replicas)])
        leader.kill()
        done += 1
        print(f"killed the leader on port {leader.port}", flush=True)
        leader.start()
    return done


async def played(crowd: Crowd, viewers: list[str], submitters: list[str], kills: int, seconds: float) -> None:
    work = [
        *(crowd.viewer(number, token) for number, token in enumerate(viewers)),
        *(crowd.submitter(number, token) for number, token in enumerate(submitters)),
        killing(crowd._replicas, kills, seconds),
    ]
    await asyncio.gather(*work)


def percentile(found: list[float], part: float) -> float:
    return sorted(found)[min(int(len(found) * part), len(found) - 1)]


def main(asked: argparse.Namespace) -> int:
    seconds = asked.minutes * 60
    with tempfile.TemporaryDirectory(dir=asked.folder) as name, database("postgresql", Path(name)) as url:
        home = Path(name)
        runs = (home / "runs").as_uri()
        broker = Broker(Settings(home=home, store=url, runs=runs), registries(), EVERYBODYS)
        began = time.monotonic()
        jobs = filled(broker, asked.entries)
        viewers, submitters = hired(broker, asked.viewers, asked.submitters)
        print(f"{asked.entries:,} entries of {jobs:,} jobs made in {time.monotonic() - began:.0f} s", flush=True)
        replicas = [Replica(port, home / f"replica-{port}", url, runs) for port in free_ports(2)]
        try:
            for one in replicas:
                one.start()
            waited_for(replicas)
            crowd = Crowd(replicas, asked.every, time.monotonic() + seconds)
            asyncio.run(played(crowd, viewers, submitters, asked.kills, seconds))
        finally:
            for one in replicas:
                one.kill()
        failed = told(crowd.measured, broker)
        broker.close()
    return 1 if failed else 0


def waited_for(replicas: list[Replica]) -> None:
    deadline = time.monotonic() + 120
    while not all(answers(one) for one in replicas):
        if time.monotonic() > deadline:
            raise SystemExit("the replicas do not answer: " + (replicas[0].home / "serve.out").read_text()[-2000:])
        time.sleep(0.5)  # real processes start


def answers(replica: Replica) -> bool:
    try:
        return httpx.get(f"{replica.url}/healthz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def told(measured: Measured, broker: Broker) -> bool:
    """Print the figures; whether anything is wrong."""
    for what, found in sorted(measured.seconds.items()):
        print(
            f"{what:<12} {len(found):6} requests  median {percentile(found, 0.5) * 1000:7.0f} ms"
            f"  p95 {percentile(found, 0.95) * 1000:7.0f} ms"
        )
    line = next(one for one in budgets.budgets(broker) if "submitters" in one.spec.id)
    used = line.use.spent + line.use.held
    with broker.store.reading() as look:
        sent = look.jobs(name="load", limit=1_000_000)
        wrong = faults([entry for job in sent for entry in look.entries(job.id)])
    print(json.dumps({"answers": dict(measured.answers), "errors": dict(measured.errors), "moved": measured.moved}))
    print(f"budget of the submitters: {used} of {BUDGET} spent and held; {len(sent)} jobs: {wrong or 'balanced'}")
    return bool(measured.errors) or used > BUDGET or bool(wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--submitters", type=int, default=20)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--every", type=float, default=15, help="seconds between two requests of one person")
    parser.add_argument("--folder", type=Path, default=None, help="where the database is made, and deleted afterwards")
    sys.exit(main(parser.parse_args()))
