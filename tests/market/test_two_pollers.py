"""Two real processes that poll one store: no duplicate rows, no lost change, one leader."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from broker.core.values.clock import SystemClock
from broker.store import Store, open_store
from broker.store.engine.leader import LeaderRole
from tests.cli.documents import check
from tests.program import ROOT, eventually, start
from tests.waiting import LONGEST

pytestmark = pytest.mark.system

POLLS, OFFERS = 15, 40

# Prices change all the time: which step of time it is, is the price. Every poll tells the truth of its own moment.
POLLER = """
import sys
from datetime import datetime
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.core.market.offers import CapacityType, Offer
from broker.market.poller import poll
from broker.store import open_store

class Truth:
    name = "truth"
    def offers(self, query):
        now = SystemClock().now()
        for place in range(int(sys.argv[3])):
            price = Money(1 + (int(now.timestamp() * 50) + place) // 4)
            yield Offer("truth", "here", None, f"t{place}", "H100", 8, CapacityType.SPOT, price, now, "api")

print("ready", flush=True)
sys.stdin.readline()
store = open_store(sys.argv[1], clock=SystemClock())
for _ in range(int(sys.argv[2])):
    assert poll(Truth(), store, SystemClock()).ok
"""


def test_no_row_twice_and_no_change_lost(url: str) -> None:
    began = datetime.now(UTC) - timedelta(seconds=1)
    words = [sys.executable, "-c", POLLER, url, str(POLLS), str(OFFERS)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    processes = [subprocess.Popen(words, **pipes) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.communicate("\n", timeout=240)
        assert process.returncode == 0
    store = open_store(url, clock=SystemClock())
    runs = store.market.poll_runs("truth")
    assert len(runs) == 2 * POLLS
    offers = store.offers()
    assert len({offer.id for offer in offers}) == len(offers) == OFFERS
    changes = 0
    for offer in offers:
        points = store.market.price_series(offer, began, datetime.now(UTC))
        prices = [point.price for point in points]
        assert prices[-1] == offer.price
        assert all(one != other for one, other in pairwise(prices))
        assert prices == sorted(
            prices, key=lambda price: price.micros if price else 0
        )  # as time went on; nothing out of order
        changes += len(points)
    assert changes == sum(run.changed for run in runs)
    heard = [run for run in runs if not run.skipped]
    assert max(run.started for run in heard) == heard[0].started  # the newest counts
    store.close()


@contextmanager
def serving(home: Path, url: str) -> Iterator[subprocess.Popen[str]]:
    words = ("serve", "--provider", "owned", "--listen", "off", "--json")
    with start(*words, home=home, GPUBROKER_STORE=url) as process:
        yield process
        process.kill()


def says(process: subprocess.Popen[str], words: str) -> bool:
    """Whether it says so, sooner or later."""
    assert process.stderr is not None
    return any(line.strip() == words for line in process.stderr)


def test_one_polls_and_the_other_takes_over(url: str, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    store = open_store(url, clock=SystemClock())
    with serving(tmp_path / "home", url) as first:
        assert says(first, "polling")
        with serving(tmp_path / "home", url) as second:
            assert says(second, "standby: another process polls this store")
            eventually(lambda: store.last_polls(), "the first has polled")
            assert store.is_led(LeaderRole.PRICES)
            first.send_signal(signal.SIGTERM)
            assert first.wait(LONGEST) == 0
            assert says(second, "polling")
            second.send_signal(signal.SIGINT)
            assert second.wait(LONGEST) == 0
            assert says(second, "stopped")
            assert second.stdout is not None
            check("serve", json.load(second.stdout))
    _left_to_nobody(store)
    store.close()


def _left_to_nobody(store: Store) -> None:
    eventually(lambda: not store.is_led(LeaderRole.PRICES), "the lead is given up")
