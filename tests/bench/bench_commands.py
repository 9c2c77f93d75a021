"""What commands cost, as processes of their own: user plus system time, the best of a few. Run: python -m tests.bench

Each has the limit it must stay within on an ordinary machine. The store of `plan` holds a whole market: one in forty
offers is of the machine that the job wants.
"""

import os
import subprocess
import tempfile
from pathlib import Path

from broker.core.values.clock import SystemClock
from broker.store import open_store
from tests.bench.bench_plan import NOW, market
from tests.program import GPUBROKER, environment

JOB = """\
name: bench
resources: {accelerators: "H100:8"}
run: python train.py
work: 48h on A100-80GB:8
checkpoint: {every: 10m, size: 14GB, restart: 6m}
"""
OFFERS = 50_000
ADVICE = (
    ("advise", "size", "--parameters", "7B"),
    ("advise", "parallelism", "--parameters", "70B", "--gpus", "64"),
    ("advise", "throughput", "--parameters", "7B", "--tokens", "1T", "--gpus", "64"),
    ("advise", "scale", "--parameters", "7B", "--tokens", "100B", "--chart"),
    ("advise", "unit-cost", "--gpu", "H100", "--tokens-per-second", "1500"),
    ("advise", "buy-or-rent", "--gpu", "H100", "--chart"),
    ("advise", "serve", "--requests-per-minute", "600", "--tokens-per-request", "300", "--parameters", "13B"),
    ("advise", "hardware", "--chart"),
    ("advise", "eco", "--hours", "100"),
    ("advise", "savings", "--inference"),
    ("advise", "deploy", "--for", "serve", "--parameters", "13B", "--requests-per-minute", "600"),
    ("advise", "deploy", "--for", "pretrain", "--parameters", "70B", "--deadline", "8w"),
)


def cpu_seconds(*arguments: str, home: Path, times: int = 3, **more: str) -> float:
    """User plus system seconds of one run of the program and all it started, the best of ``times``. ``more``: variables
    of its environment."""
    best = float("inf")
    variables = environment(home, **more)
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # nobody compiles the whole program anew for each command
    for _ in range(times):
        with subprocess.Popen(
            [*GPUBROKER, *arguments],
            cwd=home.parent,
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode in (0, 3, 4), f"{arguments} ended with {process.returncode}"
        best = min(best, used.ru_utime + used.ru_stime)
    return best


def fill(home: Path, number: int) -> None:
    """A store with so many fresh offers. Recording them is not what is measured."""
    store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock())
    store.record_poll("bench", started=NOW, finished=NOW, offers=market(number))
    store.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        job = Path(folder) / "job.yaml"
        job.write_text(JOB)
        measured = [("gpubroker --help", cpu_seconds("--help", home=home), 0.3)]
        cpu_seconds("offers", home=home, times=1)  # the first run makes and fills the store
        measured.append(("gpubroker offers", cpu_seconds("offers", home=home), 0.9))
        measured += [(f"gpubroker {' '.join(line[:2])}", cpu_seconds(*line, home=home), 0.5) for line in ADVICE]
        fill(home, OFFERS)
        filled = cpu_seconds(*ADVICE[0], home=home)
        measured.append((f"gpubroker advise size over {OFFERS:,} stored offers", filled, 0.5))
        planned = cpu_seconds("plan", str(job), home=home)
        measured.append((f"gpubroker plan over {OFFERS:,} stored offers", planned, 1.0))
    for what, seconds, limit in measured:
        print(f"{what:<58} {seconds:8.3f} s CPU {limit:8.1f} s at most{'' if seconds <= limit else '   TOO SLOW'}")


if __name__ == "__main__":
    main()
