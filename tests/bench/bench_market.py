"""How fast the market is kept and asked on SQLite. Run: python -m tests.bench.bench_market [full]

Polls and how they grow, a year of spot history and the questions asked of it, and the memory of a poll that reads the
whole AWS price list. A year is measured on one series in twenty and extrapolated; ``full`` measures all of it (some
minutes, 1 GB of disk). CPU and wall seconds of this process; one run each, so run it twice on a busy machine.
"""

import os
import random
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from broker.core.job.jobs import Job, MachineRequest
from broker.core.market.offers import Offer, OfferQuery
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.market.suspicion import Suspicion
from broker.placement.feasibility import PreparedJob, fit
from broker.store import Store, open_store
from tests.bench.bench_plan import CONDITIONS
from tests.bench.bench_store import NOW, market, timed
from tests.fakes import aws_files
from tests.program import ROOT

TEN_MINUTES = timedelta(minutes=10)
SERIES = 20_000
POLLS = 144 * 365
POLLS_A_CHANGE = 36  # every six hours
LIST_BYTES = 400_000_000
WANTED = OfferQuery(accelerators=("H100",), count=8)
JOB = Job(name="bench", run="true", resources=(MachineRequest(accelerator="H100", count=8),))


def polled(store: Store, offers: list[Offer], at: timedelta) -> None:
    started = NOW + at
    finished = started + timedelta(seconds=30)
    store.record_poll("bench", started=started, finished=finished, offers=offers, judge=Suspicion())


def cheapest(store: Store) -> Offer | None:
    """The cheapest offer that could serve the job now."""
    request = PreparedJob.of(JOB, CONDITIONS, NOW, {})
    fitting = [offer for offer in store.offers(WANTED) if isinstance(fit(offer, request), int)]
    return min(fitting, key=lambda offer: offer.price or Money.ZERO, default=None)


def bench_polls(folder: Path, number: int) -> None:
    """Polls of so many offers, and what is asked of them."""
    store = open_store(f"sqlite:///{folder / f'{number}.db'}", clock=SystemClock())
    offers = market(number)
    timed(f"{number:,} offers: first poll", lambda: polled(store, offers, timedelta(0)))
    chance = random.Random(2)
    for round_, what in ((1, "2 % changed, after new offers"), (2, "2 % changed (at most 1 s)"), (3, "2 % changed")):
        at = round_ * TEN_MINUTES
        for place, offer in enumerate(offers):
            assert offer.price is not None
            moved = offer.price.micros * chance.randrange(80, 126) // 100  # not odd: odd prices are judged as well
            price = Money(moved) if chance.random() < 0.02 else offer.price
            offers[place] = replace(offer, as_of=NOW + at, price=price)
        timed(f"{number:,} offers: judged poll, {what}", partial(polled, store, offers, at))
    timed(f"{number:,} offers: cheapest feasible H100:8 (at most 0.01 s)", lambda: cheapest(store))
    timed(f"{number:,} offers: all as they were", lambda: store.market.offers_at(NOW + TEN_MINUTES))
    timed(f"{number:,} offers: freshness", lambda: store.market.freshness(NOW))
    store.close()


def changes(series: int) -> Iterator[tuple[int, int, int]]:
    """A year's changes in the order in which polls tell of them: series, time, price."""
    chance = random.Random(3)
    for number in range(1, POLLS):
        at = int((NOW + number * TEN_MINUTES).timestamp() * 1e6)
        for one in chance.sample(range(1, series + 1), series // POLLS_A_CHANGE):
            yield one, at, chance.randrange(10**5, 10**8)


def bench_year(folder: Path, series: int) -> None:
    """A year of that many series, written straight into the table as polls would, and what is asked of it."""
    path = folder / f"year-{series}.db"
    store = open_store(f"sqlite:///{path}", clock=SystemClock())
    offers = market(series)
    polled(store, offers, timedelta(0))
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.execute("PRAGMA cache_size = -1000000")  # KB; only to write a year within minutes
    before = path.stat().st_size
    raw.execute("BEGIN")
    raw.executemany("INSERT INTO price_change (series, at, micros, availability) VALUES (?, ?, ?, 0)", changes(series))
    raw.execute("COMMIT")
    total = raw.execute("SELECT count(*) FROM price_change").fetchone()[0] - series
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    each = (path.stat().st_size - before) / total
    whole = each * SERIES * POLLS / POLLS_A_CHANGE / 1e9
    print(f"{f'{series:,} series: {total:,} changes; 20,000 are (at most 1 GB)':<58} {each:8.1f} B     {whole:8.2f} GB")
    start = NOW + timedelta(days=180)

    def a_month() -> int:
        return len(store.market.price_series(offers[5], start, start + timedelta(days=30)))

    found = timed(f"{series:,} series: 30 days of one (at most 0.05 s)", a_month)
    print(f"{f'{series:,} series: changes in those 30 days':<58} {found:8}")
    month = start + timedelta(days=30)
    timed(f"{series:,} series: 30 days of fifty", lambda: store.market.price_series_of(offers[:50], start, month))
    timed(f"{series:,} series: all as they were (at most 1 s)", lambda: store.market.offers_at(start))
    timed(f"{series:,} series: cheapest feasible H100:8 (at most 0.01 s)", lambda: cheapest(store))
    timed(f"{series:,} series: what to prune after 180 days", lambda: store.market.prune(start, dry_run=True))
    store.close()


def price_list(size: int) -> bytes:
    """A region's list of about that size, most of it about machines without accelerators, as in the real one."""
    gpus = (
        "p5.48xlarge",
        "p4d.24xlarge",
        "p4de.24xlarge",
        "g5.48xlarge",
        "g6.12xlarge",
        "g6e.48xlarge",
        "p5en.48xlarge",
    )
    told = []
    for number, name in enumerate(gpus):
        product = aws_files.product(name, "us-east-1")
        told.append(aws_files.on_demand(product, f"{10 + number}.1200000000"))
        for years in (1, 3):
            told += aws_files.reserved(product, years, "No Upfront", f"{5 + number}.5", None)
            told += aws_files.reserved(product, years, "All Upfront", "0.0000000000", "87600")
    text = aws_files.price_list(told)
    plain = aws_files.product("m7i.TYPE", "us-east-1", sku="SKUNUMBER", GPU="NA", Instance_Family="General purpose")
    line = aws_files.price_list([aws_files.on_demand(plain, "0.4032000000")]).splitlines()[-1]
    windows = line.replace('"Linux"', '"Windows"')
    parts, length, number = [text], len(text), 0
    while length < size:
        number += 1
        part = (
            (line if number % 8 == 0 else windows).replace("SKUNUMBER", f"SKU{number:013}").replace("TYPE", str(number))
        )
        parts.append(part + "\n")
        length += len(part) + 1
    return "".join(parts).encode()


# Not getrusage: its ru_maxrss counts what the parent had when it started this process.
POLL_AWS = """
import re, sys, time
from pathlib import Path
from broker.core.values.clock import SystemClock
from broker.market.poller import PollRequest
from broker.market.concurrent_poll import poll_concurrently
from broker.store import open_store
from providers.registry import build
url, store = sys.argv[1:]
where = {"price_list_url": url + "/{region}.csv", "spot_advisor_url": url + "/advisor.json", "regions": ["us-east-1"]}
clock = SystemClock()
ask = PollRequest("aws", lambda: build("aws", clock=clock, settings=where), timeout=900)
[found] = poll_concurrently([ask], open_store(store, clock=clock), clock)
assert found.ok, found.error
peak = int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
print(found.offers_seen, (found.finished - found.started).total_seconds(), peak, time.process_time())
"""


def bench_price_list(folder: Path) -> None:
    """What a poll needs that reads a whole list, in a process of its own."""
    advice = aws_files.advisor({"us-east-1": {"p5.48xlarge": (60, 1)}})
    keyless = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    for size in (LIST_BYTES // 8, LIST_BYTES):
        with aws_files.serve_files() as files:
            files.answers["/us-east-1.csv"] = aws_files.FileAnswer(price_list(size))
            files.put_advisor(advice)
            files.answers["/advisor.json"] = files.answers["/spot-advisor-data.json"]
            command = [sys.executable, "-c", POLL_AWS, files.url, f"sqlite:///{folder / f'aws-{size}.db'}"]
            environment = {**keyless, "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(folder)}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT)
        offers, seconds, megabytes, cpu = done.stdout.split()
        what = f"AWS price list of {size // 10**6} MB, {offers} offers (at most 300 MB)"
        print(f"{what:<58} {float(cpu):8.3f} s CPU {float(seconds):8.3f} s {megabytes:>6} MB")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number in (10_000, 30_000, 100_000):
            bench_polls(Path(folder), number)
        shares = (SERIES // 100, SERIES // 20, *([SERIES] if "full" in sys.argv[1:] else []))
        for series in shares:
            bench_year(Path(folder), series)
        bench_price_list(Path(folder))


if __name__ == "__main__":
    main()
