"""What one page and one submission cost in the company of `tests.load`, one after the other, and what that comes to for
everybody at once. Run:

    python -m tests.load.costs [--database postgresql] [--entries 1000000] [--waiting 200] [--every 30]

Prints CPU milliseconds of this process (the client's are among them) and of PostgreSQL's, the slowest by the clock, and
the bytes of each page as sent and compressed; then the processors that the asked load takes.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from broker.app.access import tokens
from broker.app.service.health import Pulses
from broker.app.service.metrics import ServiceAnswers
from broker.app.wiring import Broker
from broker.core.access.permissions import TokenScope
from broker.page.application import with_page
from broker.server.transport import Transport
from broker.settings import ServeSettings, Settings
from cli import registries
from tests.actors import EVERYBODYS, ROOT
from tests.bench.bench_admission import DatabaseProcesses
from tests.bench.bench_million import database
from tests.load.company import JOB, PAGES, filled, hired
from tests.server.world import DAY

HERE = "http://127.0.0.1"
TIMES = 10


@dataclass(frozen=True)
class RequestCost:
    """Milliseconds a request; ``slowest``: by the clock."""

    ours: float
    databases: float
    slowest: float

    @property
    def both(self) -> float:
        return self.ours + self.databases


async def cost(server: DatabaseProcesses, call: Callable[[int], Awaitable[object]]) -> RequestCost:
    """Of `TIMES` calls, after one that warms up."""
    await call(0)
    slowest, cpu, theirs = 0.0, time.process_time(), server.seconds
    for number in range(TIMES):
        began = time.monotonic()
        await call(number)
        slowest = max(slowest, time.monotonic() - began)
    part = 1000 / TIMES
    return RequestCost((time.process_time() - cpu) * part, (server.seconds - theirs) * part, slowest * 1000)


async def entered(client: httpx.AsyncClient, token: str) -> dict[str, str]:
    answer = await client.post("/sign-in", data={"token": token}, headers={"Origin": HERE})
    assert answer.status_code == 303, answer.text
    cookie = "; ".join(f"{name}={value}" for name, value in answer.cookies.items())
    client.cookies.clear()
    return {"Cookie": cookie}


async def submitted(client: httpx.AsyncClient, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": secrets.token_hex(16)}
    answer = await client.post("/api/v1/jobs", json={"job_file": JOB}, headers=headers)
    assert answer.status_code in (201, 202, 403), answer.text


async def measured(broker: Broker, asked: argparse.Namespace) -> None:
    viewers, submitters = hired(broker, 5, 20)
    adams = tokens.create(broker, "adam", "", [TokenScope.READ], DAY, by=ROOT).text
    health = Pulses()
    app = with_page(broker, ServiceAnswers(broker, health, "127.0.0.1", None), health, Transport())
    server = DatabaseProcesses(broker)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HERE, timeout=600) as client:
        for number in range(asked.waiting):
            await submitted(client, submitters[number % 20])
        cookies = [await entered(client, token) for token in (*viewers, adams)]
        found = []
        for page in PAGES:
            for who, chosen in (("a team's viewer", cookies[:-1]), ("an administrator", cookies[-1:])):

                async def look(number: int, page: str = page, chosen: list[dict[str, str]] = chosen) -> None:
                    answer = await client.get(page, headers=chosen[number % len(chosen)])
                    assert answer.status_code == 200, answer.text

                one = await cost(server, look)
                body = (await client.get(page, headers=chosen[0])).content
                size = f"{len(body) / 1000:7.1f} kB, {len(gzip.compress(body)) / 1000:5.1f} kB compressed"
                told(f"{page:<10} {who}", one, size)
                if len(chosen) > 1:
                    found.append(one)
        sent = await cost(server, lambda number: submitted(client, submitters[number]))
        told("submit", sent, "")
    pages = sum(one.both for one in found) / len(found)
    of_pages, of_jobs = pages * asked.viewers / asked.every / 1000, sent.both * asked.submitters / asked.every / 1000
    print(
        f"{asked.viewers} viewers and {asked.submitters} submitters, one request each every {asked.every:g} s:"
        f" {of_pages:.2f} processors for pages, {of_jobs:.2f} for submissions",
        flush=True,
    )


def told(what: str, one: RequestCost, more: str) -> None:
    print(
        f"{what:<27} {one.ours:7.1f} ms CPU here {one.databases:7.1f} ms of the database"
        f"  slowest {one.slowest:7.1f} ms  {more}",
        flush=True,
    )


def main(asked: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=asked.folder) as name, database(asked.database, Path(name)) as url:
        settings = Settings(
            home=Path(name), store=url, runs=(Path(name) / "runs").as_uri(), offline=True,
            serve=ServeSettings(jobs_here=True, requests_per_minute=60_000),
        )  # fmt: skip
        broker = Broker(settings, registries(), EVERYBODYS)
        began = time.monotonic()
        jobs = filled(broker, asked.entries)
        print(f"{asked.database}: {jobs:,} jobs made in {time.monotonic() - began:.0f} s", flush=True)
        asyncio.run(measured(broker, asked))
        broker.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="postgresql")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--waiting", type=int, default=200, help="jobs that wait for an approval")
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--submitters", type=int, default=20)
    parser.add_argument("--every", type=float, default=30, help="seconds between two requests of one person")
    parser.add_argument("--folder", type=Path, default=None, help="where the database is made, and deleted afterwards")
    main(parser.parse_args())
