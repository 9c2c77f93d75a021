"""`gpubroker backtest placement` as people run it."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from random import Random

import pytest
from rich.console import Console

from broker.backtest.run import DEFAULT_POLICIES, Request, run_backtest
from broker.cli.backtest_placement_view import tables
from tests.cli.conftest import SANDBOX_JOB, Gpubroker

pytest.importorskip("numpy", reason="a backtest needs the extra 'backtest'")

Write = Callable[[str, str], Path]
MORE = ("eager-next-region", "time-sliced")
QUICK = ("--work", "8h", "--deadline", "10h", "--starts", "2", "--workers", "1")


def trace(seed: int, ticks: int = 400) -> str:
    """Spells of capacity of a few hours, ten minutes a tick."""
    dice, bits = Random(seed), list[int]()
    while len(bits) < ticks:
        bits += [1] * dice.randint(3, 24) + [0] * dice.randint(1, 12)
    return json.dumps({"metadata": {"gap_seconds": 600}, "data": bits[:ticks]})


def test_the_document_of_traces_however_they_are_named(gpubroker: Gpubroker, write: Write) -> None:
    a, b = write("a.json", trace(1)), write("b.json", trace(2))
    done = gpubroker(
        *("backtest", "placement", a, "--traces", b, *QUICK, "--deadline", "14h", "--changeover", "12m"),
        *("--changeover", "72s", "--policies", "gpubroker, uniform-progress,omniscient", "--per-window", "--json"),
    )
    assert done.code == 0
    cells = done.json["cells"]
    assert {(c["pool"], c["deadline_s"], c["changeover_s"], c["policy"]) for c in cells} == {
        (pool, deadline, changeover, policy)
        for pool in "ab"
        for deadline in (36_000, 50_400)
        for changeover in (720, 72)
        for policy in ("gpubroker", "uniform-progress", "omniscient")
    }
    assert all(cell["missed"] == 0 and cell["windows"] == len(cell["per_window"]) == 2 for cell in cells)
    again = gpubroker(
        *("backtest", "placement", "--traces", a, "--traces", b, *QUICK, "--deadline", "14h", "--changeover", "12m"),
        *("--changeover", "72s", "--policies", "gpubroker,uniform-progress,omniscient", "--per-window", "--json"),
    )
    assert again.json == done.json


def test_zones_together_are_one_pool(gpubroker: Gpubroker, write: Write) -> None:
    write("a.json", trace(1)), write("b.json", trace(2))
    policies = ("--policies", "gpubroker,eager-next-region,time-sliced")
    done = gpubroker("backtest", "placement", ".", *QUICK, "--zones", "together", *policies, "--json")
    assert done.code == 0
    assert {cell["pool"] for cell in done.json["cells"]} == {"a+b"}


def test_tables_and_charts_for_people(gpubroker: Gpubroker, write: Write, tmp_path: Path) -> None:
    picture = tmp_path / "placement.html"
    done = gpubroker("backtest", "placement", write("a.json", trace(1)), *QUICK, "--chart", "--picture", picture)
    assert done.code == 0
    assert "8 h of work on 1 pool" in done.out
    assert "uniform-progress" in done.out
    assert "missed" in done.out
    assert "<svg" in picture.read_text()


def test_a_narrow_terminal_keeps_what_matters(write: Write) -> None:
    request = Request([write("a.json", trace(1))], 8 * 3600, [36_000], starts=1, policies=(*DEFAULT_POLICIES, *MORE))
    console = Console(width=80, file=StringIO(), record=True)
    for part in tables(console, run_backtest(request)):
        console.print(part)
    text = console.export_text()
    assert "gpubroker" in text
    assert "uniform-progress" in text
    assert "left out for want of width" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ('{"metadata": {"gap_seconds": 600},\n "data": [1, 0', (), "a.json:2"),
        ('{"metadata": {"gap_seconds": 600}, "data": [1, -1]}', (), "data[1]: expected a whole number"),
        (trace(1), ("--deadline", "7h"), "shorter than the work"),
        (trace(1), ("--deadline", "10"), "--deadline: expected a duration with its unit"),
        (trace(1), ("--changeover", "0s"), "longer than nothing"),
        (trace(1), ("--deadline", "10h", "--changeover", "3h"), "longer than the slack, 2 h"),
        (trace(1), ("--policies", "gredy"), "greedy"),
        (trace(1), ("--deadline", "90h"), "no room for a window"),
        (trace(1), ("--from", "1"), "--from"),
        (trace(1), ("--spot-price", "-1"), "--spot-price: USD per hour: expected a positive number"),
        (trace(1), ("--gang", "0"), "--gang"),
        (trace(1), ("--pool", "b"), "unknown zone 'b'"),
        (trace(1), ("--job", "job.yaml"), "not both"),
    ],
)
def test_what_cannot_be_replayed_ends_with_a_sentence(
    gpubroker: Gpubroker, write: Write, text: str, arguments: tuple[str, ...], says: str
) -> None:
    quick = ("--work", "8h", "--starts", "2", "--workers", "1")
    done = gpubroker("backtest", "placement", write("a.json", text), *quick, *arguments)
    assert done.code == 2
    assert says in done.err


def test_machine_counts_without_prices(gpubroker: Gpubroker, write: Write) -> None:
    rows = "".join(f"2025-10-{3 + i // 24:02}T{i % 24:02}:00,{i % 7}\n" for i in range(200))
    path = write("counts.csv", "time,zone-a\n" + rows)
    done = gpubroker("backtest", "placement", path, *QUICK)
    assert done.code == 2
    assert "prices.json: expected the zones' prices" in done.err
    stated = ("--on-demand-price", "10", "--spot-price", "4", "--gang", "2")
    assert gpubroker("backtest", "placement", path, *QUICK, *stated).code == 0


def test_without_traces_and_without_a_job(gpubroker: Gpubroker) -> None:
    done = gpubroker("backtest", "placement")
    assert done.code == 2
    assert "expected traces, or a job" in done.err


def test_a_job_on_the_history_in_the_store(gpubroker: Gpubroker, write: Write) -> None:
    job = write("trial.yaml", SANDBOX_JOB + "deadline: 3h\n")
    gpubroker("plan", job)  # a first look at the market
    done = gpubroker("backtest", "placement", "--job", job)
    assert done.code == 2
    assert "the store knows" in done.err
    assert gpubroker("backtest", "placement", "--job", write("endless.yaml", SANDBOX_JOB)).code == 2
