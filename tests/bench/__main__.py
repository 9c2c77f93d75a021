"""Every figure at once: `make bench`, or python -m tests.bench."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime

from tests.bench import (
    bench_admission,
    bench_agent,
    bench_board,
    bench_budgets,
    bench_checkpoints,
    bench_commands,
    bench_market,
    bench_month,
    bench_placement,
    bench_plan,
    bench_policies,
    bench_store,
    bench_tick,
)

PARTS = {
    "commands, as processes of their own": bench_commands.main,
    "planning": bench_plan.main,
    "ranking and queues": bench_board.main,
    "strategy": bench_placement.main,
    "policies": bench_policies.main,
    "store": bench_store.main,
    "admission": bench_admission.main,
    "budgets": bench_budgets.main,
    "market": bench_market.main,
    "the reconciler": bench_tick.main,
    "jobs that have run for a month": bench_month.main,
    "checkpoints": bench_checkpoints.main,
    "the agent": bench_agent.main,
}

if __name__ == "__main__":
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {os.cpu_count()} CPUs, {platform.machine()}"
    )
    for title, part in PARTS.items():
        print(f"\n== {title}", flush=True)
        part()
