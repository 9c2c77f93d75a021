"""A broker among faults: `make chaos`, or python -m tests.chaos [--minutes 15] [--seed 1] [--jobs 200] [--json]
[--hostile]

Jobs in the sandbox, on this machine and on a Slurm of its own (where it is installed) under two services over one
PostgreSQL, while faults strike by a schedule drawn from the seed. Then everything is let go well, and it is judged what
became of it all. The same seed gives the same jobs and the same schedule; what processes make of it, no two runs share.
With --hostile every third job writes over all documents that its node can reach.

Exit status: 0 all is right, and every kind of fault struck; 1 something is wrong.
"""

import argparse
import itertools
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from broker.app.wiring import Broker
from broker.settings import read_settings
from cli import registries
from tests.actors import EVERYBODYS
from tests.chaos.evidence import Manifests
from tests.chaos.load import SECRET, ChaosJob, Load, with_hostile_ones
from tests.chaos.load import plan as plan_jobs
from tests.chaos.report import table
from tests.chaos.schedule import KINDS, ON_SLURM, Strike
from tests.chaos.schedule import plan as plan_strikes
from tests.chaos.stage import POLICY, ChaosStage, belonging, staged, unmount
from tests.chaos.strikes import Striking
from tests.chaos.verdict import ChaosVerdict, acted, judge

# How long, after the last fault, jobs may take to end, and a fault that found no victim is tried again.
PATIENCE = 600.0
STEP = 0.2


def main() -> int:
    asked = _asked()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # whatever was started ends with us
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.chmod(0o755)  # PostgreSQL runs as another user
    try:
        with staged(folder) as stage:
            say(f"seed {asked.seed}, {asked.jobs} jobs, {asked.minutes:g} minutes, in {folder}")
            if stage.without:
                say(f"without Slurm: {stage.without}")
            if not stage.disk:
                say("without a disk to fill: only root may mount one")
            lacking = (*asked.leave_out, *(ON_SLURM if stage.cluster is None else ()))
            lacking += () if stage.disk else ("disk_filled",)
            kinds = tuple(kind for kind in KINDS if kind not in lacking)
            keep = Path(asked.keep) if asked.keep else None
            planned = plan_jobs(asked.seed, asked.jobs, slurm=stage.cluster is not None)
            planned = with_hostile_ones(planned) if asked.hostile else planned
            verdict = run(stage, asked.seed, planned, asked.minutes * 60, kinds, keep)
    finally:
        if asked.keep:
            shutil.copytree(folder, asked.keep, dirs_exist_ok=True, ignore=shutil.ignore_patterns("pg", "slurm"))
        unmount(folder / "home")
        shutil.rmtree(folder, ignore_errors=True)
    if asked.json:
        print(json.dumps({"seed": asked.seed, "right": not verdict.wrong, "wrong": verdict.wrong, **verdict.figures}))
    else:
        table(verdict)
    return 1 if verdict.wrong else 0


def run(
    stage: ChaosStage,
    seed: int,
    planned: list[ChaosJob],
    seconds: float,
    kinds: tuple[str, ...],
    keep: Path | None = None,
) -> ChaosVerdict:
    """The whole run, once the stage stands. ``kinds``: the kinds of fault that strike."""
    jobs = len(planned)
    os.environ.update(stage.variables)
    os.environ.pop("CHAOS_CONTROL")  # this process is spared
    os.environ[SECRET] = secrets.token_hex(16)
    broker = Broker(read_settings(), registries(), EVERYBODYS)
    broker.store.activate_policy({"chaos.yaml": POLICY}, by="chaos")
    load = Load(broker, planned, stage.folder, at_once=max(12, jobs // 12), seconds=0.8 * seconds)
    manifests = Manifests(stage.home / "runs")
    striking = Striking(stage, broker.store)
    strikes = plan_strikes(seed, seconds, kinds)
    stage.keep_serving()
    began = time.monotonic()
    _storm(stage, load, manifests, striking, strikes, began)
    # It goes on until every job has come in, which takes longer on a busy machine. A kind that found no victim is given
    # more chances, as long as there is something to strike at.
    longest, seeds = 2 * seconds, itertools.count(seed + 1)
    while (took := time.monotonic() - began) < longest + PATIENCE:
        missed = tuple(kind for kind in kinds if not stage.control.counts()[kind])
        if load.all_in and (not missed or took > longest):
            break
        more = plan_strikes(next(seeds), 20.0, missed or kinds)
        _storm(stage, load, manifests, striking, more, time.monotonic())
    striking.finish()
    stage.control.end_all()
    among = load.handed_in
    say(f"the faults are over after {time.monotonic() - began:.0f} s; {among} of {jobs} jobs came among them")
    _calm(stage, load, manifests)
    clean = stage.stop_serving()
    deadline = time.monotonic() + 60
    while belonging(stage.folder) and time.monotonic() < deadline:
        time.sleep(STEP)
    verdict = judge(stage, broker, planned, manifests, kinds)
    verdict.wrong += acted(broker, planned, load)
    if not clean:
        verdict.wrong.append("a service did not end when it was told to")
    if among < jobs:
        verdict.wrong.append(f"{jobs - among} jobs were handed in only after the faults were over")
    verdict.figures |= {
        "seconds": round(time.monotonic() - began),
        "handed_in_among_faults": among,
        "services_started": stage.started,
        "approved": len(load.approved),
        "refused": len(load.refused),
        "given_more_time": len(load.extended),
        "retried": len(load.retried),
        "without": stage.without,
        "handing_in": sorted(load.trouble),
    }
    broker.store.close()
    return verdict


def _storm(
    stage: ChaosStage, load: Load, manifests: Manifests, striking: Striking, strikes: list[Strike], began: float
) -> None:
    """Jobs come in, and faults strike when it is their time."""
    for strike in strikes:
        while time.monotonic() < began + strike.at:
            striking.again()
            _look_after(stage, load, manifests)
        striking(strike)
    last = max((strike.lasts for strike in strikes), default=0.0)
    until = time.monotonic() + min(last, 10.0)
    while time.monotonic() < until:
        striking.again()
        _look_after(stage, load, manifests)


def _calm(stage: ChaosStage, load: Load, manifests: Manifests) -> None:
    """Nothing goes wrong any more; until every job is closed, or for as long as that may take."""
    deadline = time.monotonic() + PATIENCE
    told = -1
    while time.monotonic() < deadline:
        _look_after(stage, load, manifests)
        left = load.left()
        if left == 0:
            return
        if left is not None and left != told:
            told = left
            say(f"{left} jobs are left")
    say("patience is over")


def _look_after(stage: ChaosStage, load: Load, manifests: Manifests) -> None:
    stage.keep_serving()
    load.step()
    load.people()
    manifests.look()
    time.sleep(STEP)  # between two looks; the faults go on beside it


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _asked() -> Any:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=15.0, help="for how long faults strike")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--json", action="store_true", help="one document instead of a table")
    parser.add_argument("--leave-out", action="append", default=[], choices=list(KINDS), help="a kind of fault")
    parser.add_argument("--hostile", action="store_true", help="every third job is hostile")
    parser.add_argument("--keep", help="a folder to copy run folders, marks and logs to")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
