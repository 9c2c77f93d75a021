"""Every figure at once: `make bench`, or python -m tests.bench."""

import os
import platform
from datetime import UTC, datetime

from tests.bench import bench_admission, bench_commands, bench_market, bench_plan, bench_store, bench_tick

PARTS = {
    "commands, as processes of their own": bench_commands.main,
    "planning": bench_plan.main,
    "store": bench_store.main,
    "admission": bench_admission.main,
    "market": bench_market.main,
    "the reconciler": bench_tick.main,
}

if __name__ == "__main__":
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {os.cpu_count()} CPUs, {platform.machine()}"
    )
    for title, part in PARTS.items():
        print(f"\n== {title}", flush=True)
        part()
