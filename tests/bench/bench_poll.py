"""What a poll of every source without a login costs: bytes, seconds, memory, offers: python -m tests.bench.bench_poll

The answers are GENERATED, in the forms of the sources and of about their real sizes, and served on loopback: what it
shows is this program's share of a poll, not the sources' speed. Each source is polled in a process of its own, which
tells its memory; then all of them in one. Of AWS one region's list of 100 MB is read (the real one has 400 MB, and
there are some thirty regions).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

from tests.bench.bench_market import price_list
from tests.fakes import aws_files
from tests.fakes.scaleway import rates
from tests.fakes.server import FakeServer, HttpAnswer, encode
from tests.market.hostile import answers_of
from tests.program import ROOT

# How many times the rows of the tests' answers are served, under other names.
TIMES = {
    "azure": 1_500,
    "gpuhunt: lium": 100,
    "oci": 1,
    "ovh": 150,
    "runpod": 1,
    "scaleway": 30,
    "vast": 400,
    "vultr": 60,
}
PRICE_LIST_BYTES = 100_000_000
POLL = """
import json, sys
from broker.app.results.prices import PollOutcome
from broker.core.values.clock import SystemClock
from broker.market.concurrent_poll import poll_concurrently
from broker.market.poller import PollRequest, peak_memory
from broker.market.suspicion import Suspicion
from broker.store import open_store
from providers.registry import build
clock, idle = SystemClock(), peak_memory()
def ask(name, settings):
    return PollRequest(name, lambda: build(name, clock=clock, settings=settings), timeout=600, judge=Suspicion())
asks = [ask(name, settings) for name, settings in json.loads(sys.argv[1]).items()]
for result in poll_concurrently(asks, open_store(sys.argv[2], clock=clock), clock):
    print(PollOutcome.of(result).model_dump_json(), idle)
"""


@contextmanager
def served(name: str, times: int) -> Iterator[str]:
    """The URL of a source with so many times the rows of its tests."""
    answers, again = answers_of(name)
    body = json.loads(encode(answers.body))
    rows = answers.rows(body)
    if again is not None:
        rows += [again(json.loads(json.dumps(row)), number) for row in list(rows) for number in range(1, times)]
    hijacked = answers.hijacked()
    hijacked.body = encode(body)
    with FakeServer(hijacked) as server:
        yield server.url


def sources(stack: ExitStack) -> dict[str, dict[str, Any]]:
    """The settings of each source, with the address of what is served."""
    urls = {name: stack.enter_context(served(name, times)) for name, times in TIMES.items()}
    found: dict[str, dict[str, Any]] = {
        name: {"retail_prices_url" if name == "azure" else "base_url": url}
        for name, url in urls.items()
        if ":" not in name
    }
    found["gpuhunt"] = {"base_url": urls["gpuhunt: lium"], "clouds": ["lium"]}
    today = rates(datetime.now(UTC).date().isoformat())
    found["scaleway"]["rates_url"] = stack.enter_context(FakeServer(lambda _: HttpAnswer(200, today))).url
    files = stack.enter_context(aws_files.serve_files())
    files.answers["/us-east-1.csv"] = aws_files.FileAnswer(price_list(PRICE_LIST_BYTES))
    files.put_advisor(aws_files.advisor({"us-east-1": {"p5.48xlarge": (60, 1)}}))
    files.answers["/advisor.json"] = files.answers["/spot-advisor-data.json"]
    found["aws"] = {"price_list_url": f"{files.url}/{{region}}.csv", "spot_advisor_url": f"{files.url}/advisor.json"}
    found["aws"]["regions"] = ["us-east-1"]
    return found


def poll(settings: dict[str, dict[str, Any]], folder: str, name: str) -> list[tuple[dict[str, Any], float]]:
    """The outcome of each source, and the memory that the program had before (MB), in a process of its own."""
    command = [sys.executable, "-c", POLL, json.dumps(settings), f"sqlite:///{folder}/{name}.db"]
    keyless = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "AZURE_"))}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**keyless, "HOME": folder, "AWS_EC2_METADATA_DISABLED": "true"},
    )
    lines = [line.rpartition(" ") for line in done.stdout.splitlines()]
    return [(json.loads(outcome), float(idle)) for outcome, _, idle in lines]


def main() -> None:
    print("generated answers of about real size, on loopback")
    print(f"{'source':12}{'MB read':>10}{'answers':>9}{'seconds':>9}{'peak MB':>9}{'offers':>9}{'skipped':>9}  status")

    def show(name: str, one: dict[str, Any]) -> None:
        skipped = sum(one["rows_skipped"].values())
        print(
            f"{name:12}{one['bytes'] / 1e6:>10,.1f}{one['answers']:>9,}{one['seconds']:>9,.1f}"
            f"{one['peak_mb']:>9,.0f}{one['offers_seen']:>9,}{skipped:>9,}  {one['status']}",
            flush=True,
        )

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        found = sources(stack)
        for name, settings in sorted(found.items()):
            [(outcome, idle)] = poll({name: settings}, folder, name)
            show(name, outcome)
        together = poll(found, folder, "all")
        whole = {key: sum(one[key] for one, _ in together) for key in ("bytes", "answers", "offers_seen")}
        whole |= {"seconds": max(one["seconds"] for one, _ in together), "status": "all at once"}
        whole |= {"peak_mb": max(one["peak_mb"] for one, _ in together), "rows_skipped": {}}
        show("all", whole)
    print(f"the program had {idle:,.0f} MB before it asked anybody")


if __name__ == "__main__":
    main()
