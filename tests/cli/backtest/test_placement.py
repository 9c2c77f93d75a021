"""`gpubroker backtest placement` as people run it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from random import Random

import pytest
from rich.console import Console

from broker.app.results.backtests import PlacementBacktest
from broker.backtest.placement.run import DEFAULT_POLICIES, PlacementReplay, run_backtest
from broker.cli.backtest.placement_view import tables
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


def test_where_the_system_does_not_say_which_processors_are_ours(
    gpubroker: Gpubroker, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    asked = ("--work", "8h", "--deadline", "10h", "--starts", "1", "--policies", "greedy", "--json")
    assert gpubroker("backtest", "placement", write("a.json", trace(1)), *asked).code == 0


def test_zones_together_are_one_pool(gpubroker: Gpubroker, write: Write) -> None:
    write("a.json", trace(1)), write("b.json", trace(2))
    policies = ("--policies", "gpubroker,eager-next-region,time-sliced")
    done = gpubroker("backtest", "placement", ".", *QUICK, "--zones", "together", *policies, "--json")
    assert done.code == 0
    assert {cell["pool"] for cell in done.json["cells"]} == {"a+b"}
    assert {family["pool"] for family in done.json["families"]} == {"2 pools together"}
    shown = gpubroker("backtest", "placement", ".", *QUICK, "--zones", "together", "--policies", "greedy", "--chart")
    assert "8 h of work on 2 pools together" in shown.out


def test_all_of_it_says_what_the_table_and_the_chart_say(gpubroker: Gpubroker, write: Write) -> None:
    """Mean cost over mean optimum, whatever pools and prices are mixed; of a gang, the cost of all machines."""
    cheap, dear = json.loads(trace(1)), json.loads(trace(2))
    for document, price in ((cheap, 0.1), (dear, 50.0)):
        document["metadata"]["on_demand_price"] = 3 * price
        document |= {"data": [2 * bit for bit in document["data"]], "spot_price": [price] * len(document["data"])}
        write(f"{price:g}.json", json.dumps(document))
    asked = ("backtest", "placement", ".", *QUICK, "--policies", "greedy", "--gang", "2")
    (family,) = gpubroker(*asked, "--json").json["families"]
    done = gpubroker(*asked, "--chart")
    (total,) = [line.split() for line in done.out.splitlines() if line.startswith("greedy ") and "$" in line]
    assert total[2] == f"{family['ratio_mean']:.3f}"
    assert f" {round(100 * (family['ratio_mean'] - 1), 1):g}" in done.out.splitlines()[2]
    windows = [w for c in gpubroker(*asked, "--per-window", "--json").json["cells"] for w in c["per_window"]]
    costs = [float(w["gang_cost"]) for w in windows]
    assert costs == pytest.approx([2 * float(w["cost"]) for w in windows])
    assert total[1] == f"${sum(costs) / len(costs):,.2f}"
    assert "gangs of 2" in done.out
    assert "Mean cost is for all 2 machines." in done.out


def test_a_picture_that_may_not_be_drawn_is_refused_before_anything_is_replayed(
    gpubroker: Gpubroker, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.backtest.placement.run.run_backtest", lambda *_, **__: pytest.fail("replayed"))
    done = gpubroker("backtest", "placement", write("a.json", trace(1)), *QUICK, "--picture", "x.pdf")
    assert done.code == 2
    assert "unknown picture format '.pdf'" in done.err


def test_tables_and_charts_for_people(gpubroker: Gpubroker, write: Write, tmp_path: Path) -> None:
    picture = tmp_path / "placement.html"
    done = gpubroker("backtest", "placement", write("a.json", trace(1)), *QUICK, "--chart", "--picture", picture)
    assert done.code == 0
    assert "8 h of work on 1 pool" in done.out
    assert "uniform-progress" in done.out
    assert "missed" in done.out
    assert "<svg" in picture.read_text()


def test_a_narrow_terminal_keeps_what_matters(write: Write) -> None:
    request = PlacementReplay(
        [write("a.json", trace(1))], 8 * 3600, [36_000], starts=1, policies=(*DEFAULT_POLICIES, *MORE)
    )
    console = Console(width=80, file=StringIO(), record=True)
    for part in tables(console, PlacementBacktest.of(run_backtest(request))):
        console.print(part)
    text = console.export_text()
    assert "gpubroker" in text
    assert "uniform-progress" in text
    assert "hidden columns" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ('{"metadata": {"gap_seconds": 600},\n "data": [1, 0', (), "a.json:2"),
        ('{"metadata": {"gap_seconds": 600}, "data": [1, -1]}', (), "data[1]: expected a whole number"),
        (trace(1), ("--deadline", "7h"), "shorter than the work"),
        (trace(1), ("--deadline", "10"), "--deadline: expected a duration with its unit"),
        (trace(1), ("--changeover", "0s"), "expected a changeover above 0"),
        (trace(1), ("--deadline", "10h", "--changeover", "3h"), "longer than the slack, 2 h"),
        (trace(1), ("--policies", "gredy"), "--policies: unknown policy 'gredy'; did you mean 'greedy'"),
        (trace(1), ("--deadline", "90h"), "no room for a window"),
        (trace(1), ("--from", "1"), "--from"),
        (trace(1), ("--spot-price", "-1"), "--spot-price: USD per hour: expected a positive number"),
        (trace(1), ("--gang", "0"), "--gang: expected at least one machine"),
        (trace(1), ("--gang", "1" + "0" * 400), "--gang: expected at least one machine, and a plausible number"),
        (trace(1), ("--pool", "b"), "--pool: unknown pool 'b'"),
        (trace(1), ("--days", "3"), "--days: only with --job"),
        (trace(1), ("--per-window",), "--per-window: only with --json"),
        (trace(1), ("--force",), "--force: only with --picture"),
        (trace(1), ("--job", "job.yaml"), "cannot be combined"),
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
    assert "expected traces or a job" in done.err


@pytest.mark.parametrize(
    "option",
    [
        ("--work", "8h"),
        ("--changeover", "2m"),
        ("--from-part", "0.5"),
        ("--to-part", "1"),
        ("--zones", "apart"),
        ("--pool", "x"),
        ("--on-demand-price", "3"),
        ("--spot-price", "1"),
        ("--gang", "1"),
    ],
)
def test_what_means_nothing_for_a_job_is_refused(gpubroker: Gpubroker, write: Write, option: tuple[str, str]) -> None:
    done = gpubroker("backtest", "placement", "--job", write("trial.yaml", SANDBOX_JOB + "deadline: 3h\n"), *option)
    assert done.code == 2
    assert f"{option[0]}: not with --job" in done.err


def test_a_job_on_the_history_in_the_store(gpubroker: Gpubroker, write: Write) -> None:
    job = write("trial.yaml", SANDBOX_JOB + "deadline: 3h\n")
    gpubroker("plan", job)  # a first look at the market
    done = gpubroker("backtest", "placement", "--job", job)
    assert done.code == 2
    assert "history of these pools, too little" in done.err
    assert gpubroker("backtest", "placement", "--job", write("endless.yaml", SANDBOX_JOB)).code == 2
