"""The cost of served tokens in `gpubroker report units`: text, JSON, a file, tenants of LiteLLM, and bad files."""

import csv
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from broker.core.events.agent_events import ServedModel, TokensServed
from broker.core.values.clock import ManualClock
from broker.store import open_store
from tests.past import HOUR, finished

BEGINS = datetime(2026, 10, 10, tzinfo=UTC)
UP = BEGINS + timedelta(minutes=10)  # 110 minutes on a machine of $10 an hour: $18.333333
LITELLM = """date,team_id,api_key,model,prompt_tokens,completion_tokens,cache_read_input_tokens,spend
2026-10-10,search,k1,hosted_vllm/Qwen3-32B,7000000,200000,2000000,1.5
2026-10-10,chat,k2,hosted_vllm/Qwen3-32B,1000000,200000,500000,0.5
2026-10-10,chat,k3,hosted_vllm/Qwen3-32B,1000000,200000,0,0.5
2026-10-10,,k4,hosted_vllm/Qwen3-32B,999,999,0,0.5
"""


def count(since: datetime, minutes: int, *models: ServedModel, busy: int = 0, trouble: str = "") -> TokensServed:
    until = since + timedelta(minutes=minutes)
    return TokensServed(since=since, until=until, busy_ms=busy * 60_000, models=models, trouble=trouble)


@pytest.fixture
def served(home: Path) -> None:
    """A job that served Qwen3-32B for 50 minutes, 45 of them busy, and then nothing for 10."""
    qwen = ServedModel(
        model="Qwen3-32B", input=9_000_000, cached=2_500_000, output=600_000, input_ms=900_000, output_ms=2_100_000
    )
    store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=ManualClock(BEGINS + 10 * HOUR))
    finished(store, 0, BEGINS, [count(UP, 50, qwen, busy=45), count(UP + timedelta(minutes=50), 10)])
    finished(store, 1, BEGINS)
    store.close()


@pytest.mark.usefixtures("served")
def test_tokens_have_a_price_and_idle_time_a_cost(gpubroker: Any) -> None:
    found = gpubroker("report", "units", "--period", "2026-10", "--json").json
    (row,) = found["served"]
    by_job = gpubroker("report", "spend", "--by", "job", "--json").json["rows"]
    spent = {entry["group"]: Decimal(entry["cash"]) for entry in by_job}["past-00-tmplt"]
    assert Decimal(row["cost"]) == spent == Decimal("18.333333")
    assert Decimal(row["input_cost"]) == Decimal("2.25")  # 45 of 110 minutes, 30 % of them
    assert Decimal(row["output_cost"]) == Decimal("5.25")
    assert Decimal(row["idle_cost"]) == spent - Decimal("7.5")
    assert [tenant["tenant"] for tenant in row["tenants"]] == ["(none)"]
    assert Decimal(found["per_million_tokens"]) == round(spent / Decimal("9.6"), 6)
    text = gpubroker("report", "units", "--period", "2026-10").out
    assert (
        "Qwen3-32B:                   9,000,000 tokens in (2,500,000 cached), 600,000 out, $18.33, 59 % of it idle; "
        "$1.91 a million; $0.3462 a million in, busy and not cached; $8.75 a million out, busy\n"
    ) in text
    assert "(none)" not in text
    assert gpubroker("report", "units", "--period", "2026-10", "--team", "team-1", "--json").json["served"] == []
    assert gpubroker("report", "units", "--period", "2026-11", "--json").json["served"] == []


@pytest.mark.usefixtures("served")
def test_tenants_of_litellm_in_a_file_that_adds_up(gpubroker: Any, tmp_path: Path) -> None:
    (tmp_path / "litellm.csv").write_text(LITELLM)
    out = tmp_path / "tokens.csv"
    asked = ("report", "units", "--period", "2026-10", "--tenants", tmp_path / "litellm.csv")
    done = gpubroker(*asked, "--out", out)
    assert done.code == 0
    assert "the cost of 1 model is in" in done.err
    assert "  search:                    7,000,000 tokens in, 200,000 out, $3.48\n" in done.out
    rows = list(csv.DictReader(out.open()))
    assert [(row["tenant"], row["input"], row["cached"], row["output"]) for row in rows] == [
        ("chat", "2000000", "500000", "400000"),
        ("search", "7000000", "2000000", "200000"),
        ("(idle)", "0", "0", "0"),
    ]
    costs = [Decimal(row[name]) for row in rows for name in ("input_cost", "output_cost", "idle_cost")]
    assert sum(costs) == Decimal("18.333333")
    assert gpubroker(*asked, "--out", out).code == 2, "a file is never overwritten"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("date,team_id,model\n", "the column prompt_tokens is missing"),
        (LITELLM.replace("7000000", "-7"), "and whole numbers of tokens: found -7, 2000000, 200000"),
        (LITELLM.replace("2026-10-10,chat", "10/10/26,chat"), "expected a day such as 2026-11-20, and whole"),
    ],
)
def test_a_file_of_tenants_that_is_wrong(gpubroker: Any, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "litellm.csv").write_text(text)
    done = gpubroker("report", "units", "--tenants", tmp_path / "litellm.csv")
    assert (done.code, message in done.err) == (2, True)
    assert "LiteLLM_DailyTeamSpend" in done.err
    assert gpubroker("report", "units", "--tenants", tmp_path / "none.csv").code == 2


def test_a_count_for_a_time_that_was_counted_costs_nothing_again(gpubroker: Any, home: Path) -> None:
    """A node may write anything: times twice, backwards, outside of its machine's."""
    bge = ServedModel(model="", input=10, cached=99, output=1)
    counts = [count(UP, 60, bge, busy=60), count(UP, 50, bge, busy=50), count(UP - HOUR, 900, bge, busy=900)]
    counts += [count(UP + HOUR, -30, bge), count(UP, 1, trouble="port 8000: refused")]
    store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=ManualClock(BEGINS + 10 * HOUR))
    job_id = finished(store, 0, BEGINS, counts)
    store.close()
    found = gpubroker("report", "units", "--period", "2026-10", "--json").json
    (row,) = found["served"]
    assert (row["cost"], row["by_weights"]) == ("18.333333", True)
    assert (row["input"], row["cached"]) == (40, 40)
    story = gpubroker("status", job_id).out
    assert "a model without a name:" in gpubroker("report", "units", "--period", "2026-10").out
    assert "port 8000: refused" in story
