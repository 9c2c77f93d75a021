"""A million jobs of thirty days on a virtual clock, most of which run: CPU seconds, memory, the hash.
Run: python -m tests.bench.bench_simulate [JOBS] [SEED]

Not part of `make bench`: it takes minutes. At most 10 minutes and 2 GB for a million jobs. Exits with 1 if the ledger
does not balance or a limit is passed.
"""

from __future__ import annotations

import resource
import sys
import time

import cli
from tests.lab.simulate import WhatIf, played
from tests.lab.simulate_report import document
from tests.lab.simulation.workload_file import parse_workload

JOBS, SEED, DAYS = 1_000_000, 7, 30
SECONDS, KILOBYTES = 600, 2_000_000
WORKLOAD = """\
workload: a million jobs
market:
  - {machine: "A100-80GB:1", capacity: owned, machines: 1600, cost: $1.20}
  - {machine: "H100:8", capacity: owned, machines: 60, cost: $19}
  - {machine: "A100-80GB:1", provider: aws, region: us-east-1, capacity: on-demand, price: $5.10}
  - {machine: "H100:8", provider: aws, region: us-east-1, capacity: on-demand, price: $55}
  - {machine: "H100:8", provider: aws, region: us-east-1, capacity: spot, price: $21, machines: 200, varies: 15%,
     lost_every: 9h}
  - {machine: "L4:1", provider: gcp, region: us-central1, capacity: on-demand, price: $0.71}
  - {machine: "L4:1", provider: gcp, region: us-central1, capacity: spot, price: $0.28, varies: 10%, lost_every: 16h}
teams:
  nlp:
    user: ann
    jobs:
      - name: pretraining
        arrivals: 8
        duration: {median: 8h, p95: 40h}
        job: {resources: {accelerators: "H100:8"}, num_nodes: 4, checkpoint: {every: 20m}, max_duration: 96h}
      - name: fine-tuning
        arrivals: {per_day: 400, hours: 7-19}
        duration: {median: 40m, p95: 3h}
        job: {resources: {accelerators: "H100:8"}, checkpoint: {every: 10m}, deadline: 12h, max_duration: 12h}
      - name: trials
        arrivals: {per_day: 9000, together: 20}
        duration: {median: 20m, p95: 2h}
        job: {resources: {accelerators: "A100-80GB:1"}, max_duration: 6h}
  vision:
    user: bob
    jobs:
      - name: training
        arrivals: {per_day: 6000, hours: 6-22, together: 4}
        duration: {median: 1h, p95: 8h}
        job: {resources: {accelerators: "A100-80GB:1"}, num_nodes: 2, checkpoint: {every: 15m}, max_duration: 24h}
      - name: sweep
        arrivals: {per_day: 10000, together: 50}
        duration: {median: 6m, p95: 30m}
        job: {resources: {accelerators: "L4:1"}, checkpoint: {every: 5m}, max_duration: 4h, priority: low}
  speech:
    user: cem
    jobs:
      - name: evaluation
        arrivals: 8000
        duration: {mean: 10m}
        job: {resources: {accelerators: "L4:1"}, max_duration: 4h, deadline: 8h}
"""
POLICY = """\
version: 1
policy: million
defaults: {value_of_time: $3}
budgets:
  - {name: nlp, amount: "$4,000,000", period: month, scope: {team: nlp}}
  - {name: all, amount: "$2,500,000", period: week}
guardrails:
  - {name: prices, max_price_per_gpu_hour: $8}
  - {name: many, max_concurrent_gpus: 4000}
"""


def main(jobs: int, seed: int) -> None:
    policy = cli.registries().load_policies({"million.yaml": POLICY})
    workload = parse_workload(WORKLOAD, file="million.yaml")
    began = time.process_time()
    result = played(workload, policy, WhatIf(DAYS, seed, jobs))
    seconds, kilobytes = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = document(result, policy, [], {})
    total = report["total"]
    waiting = total["waiting"]
    print(f"{report['jobs']:,} jobs: {seconds:,.0f} s CPU (at most {SECONDS}), {kilobytes / 1000:,.0f} MB")
    print(f"{total['started']:,} started, {total['finished']:,} finished, refused {total['refused']}")
    print(f"{total['interruptions']:,} interruptions, {total['late']:,} of {total['with_deadline']:,} late")
    print(f"cost {total['cost']}; waiting: mean {waiting['mean_s']:,.0f} s, 95th percentile {waiting['p95_s']:,.0f} s")
    print(f"fairness {report['fairness_of_service']} {report['fairness_of_slowdown']}; {report['rounds']:,} rounds")
    print(f"{report['movements']:,} movements, balanced: {report['balanced']}; hash {report['digest']}")
    if not report["balanced"] or seconds > SECONDS or kilobytes > KILOBYTES:
        raise SystemExit(1)


if __name__ == "__main__":
    asked = [int(one) for one in sys.argv[1:3]]
    main(*(asked + [JOBS, SEED][len(asked) :]))
