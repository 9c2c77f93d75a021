"""Play a workload on a virtual clock: cost, waiting, utilisation, fairness, budgets, refusals.

Placement, policies, queue and ledger are those of real jobs; machines, prices and money are simulated. Nothing is
started, held or stored. The same workload, policies, seed and options give the same hash. Exit code 1 if the ledger
does not balance at the end, which is a defect of the broker.

    python -m tests.lab.simulate --example
    python -m tests.lab.simulate workload.yaml --jobs 1000000 --days 30 --seed 7 --policy policies/ --json
    python -m tests.lab.simulate workload.yaml --policy policies/ --capacity A100-80GB:8=60 --against before.json
    python -m tests.lab.simulate workload.yaml --policy new.yaml --demand nlp=1.5 --demand '*=1.1'
    python -m tests.lab.simulate --last 30d --policy new.yaml
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import cli
from broker.app.policy.policies import read_files
from broker.app.wiring import Broker
from broker.core.actors import ProcessAccount
from broker.core.errors import InvalidInput, did_you_mean
from broker.core.ports import PolicySet
from broker.settings import read_settings
from tests.lab import command, simulate_report
from tests.lab.simulation.figures import SimulationResult
from tests.lab.simulation.preemption import Victims
from tests.lab.simulation.recorded_jobs import recorded_workload
from tests.lab.simulation.run import simulate
from tests.lab.simulation.workload import JobClass, SimulatedWorkload, WorkloadPool, WorkloadSize
from tests.lab.simulation.workload_file import read_workload

EXAMPLE = Path(__file__).parent / "example"
N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Changes to a workload. ``capacity``: numbers of machines by pool or machine; ``demand``: factors by team,
    ``*`` for all others. ``victims``, ``saves``: as in `WorkloadSize`."""

    days: int
    seed: int
    jobs: int | None = None
    capacity: Mapping[str, int] | None = None
    demand: Mapping[str, float] | None = None
    victims: Victims = Victims.LEAST_LOST
    saves: bool = True


def main(arguments: Sequence[str]) -> int:
    parser = command.parser(__doc__)
    parser.add_argument("workload", nargs="?", type=Path, metavar="WORKLOAD.yaml")
    parser.add_argument("--example", action="store_true", help=f"simulate {EXAMPLE.name}/workload.yaml")
    parser.add_argument("--last", type=command.seconds, metavar="TIME", help="simulate the jobs recorded in the store")
    parser.add_argument("--jobs", type=int, help="total number of jobs; default: by the rates")
    parser.add_argument("--days", type=int, help="days in which jobs arrive; default: 7; all of a trace or of --last")
    parser.add_argument("--seed", type=int, default=7, help="of arrivals, lengths, prices and losses")
    parser.add_argument("--policy", action="append", default=[], type=Path, metavar="FILE", help="default: in force")
    parser.add_argument("--capacity", action="append", default=[], metavar="POOL=N", help="another number of machines")
    parser.add_argument("--demand", action="append", default=[], metavar="TEAM=X", help="factor; * for all others")
    parser.add_argument(
        "--victims", type=Victims, choices=list(Victims), default=Victims.LEAST_LOST,
        help="who gives way to jobs of a priority that preempts",
    )  # fmt: skip
    parser.add_argument("--unsaved", action="store_true", help="they leave without a checkpoint")
    parser.add_argument("--against", type=Path, metavar="FILE", help="an earlier report, saved from --json")
    given = parser.parse_args(arguments)
    if (given.workload is not None) + given.example + (given.last is not None) != 1:
        raise InvalidInput("expected one of a workload file, --example and --last", where="WORKLOAD.yaml")
    if not all(number is None or number > 0 for number in (given.days, given.jobs)):
        raise InvalidInput("expected 1 or more", where="--days, --jobs")
    files = given.policy or ([EXAMPLE / "policy.yaml"] if given.example else [])
    if given.last is not None:
        workload = recorded_workload(_broker(), timedelta(seconds=given.last))
    else:
        workload = read_workload(given.workload or EXAMPLE / "workload.yaml")
    policy = cli.registries().load_policies(read_files(files)) if files else _broker().policy()
    capacity, demand = _numbers("--capacity", given.capacity, int), _numbers("--demand", given.demand, float)
    days = given.days or workload.days or 7
    what_if = WhatIf(days, given.seed, given.jobs, capacity, demand, given.victims, not given.unsaved)
    before = None if given.against is None else _earlier(given.against)
    with command.progress() as progress:
        result = played(workload, policy, what_if, progress)
    report = simulate_report.document(result, policy, [str(file) for file in files], capacity)
    command.show(report, lambda console: simulate_report.tables(console, report, before), as_json=given.json)
    return 0 if report["balanced"] else 1


@cache
def _broker() -> Broker:
    """The broker of this machine's store."""
    return Broker(read_settings(), cli.registries(), ProcessAccount(""))


def played(
    workload: SimulatedWorkload, policy: PolicySet, what_if: WhatIf, progress: command.Progress | None = None
) -> SimulationResult:
    """Simulate the workload. The same arguments give the same result. Raises `InvalidInput` for a change of a pool or
    team that the workload does not have, and for one without jobs."""
    demand = dict(what_if.demand or {})
    teams = {one.team for one in workload.classes}
    if unknown := sorted(demand.keys() - teams - {"*"}):
        said = f"no team {unknown[0]!r} in the workload{did_you_mean(unknown[0], teams)}"
        raise InvalidInput(said, where="--demand", hint=f"teams: {', '.join(sorted(teams))}")
    classes = tuple(_with_user(one, policy) for one in workload.classes)
    pools = _with_capacity(workload.pools, what_if.capacity or {})
    made = replace(workload, classes=classes, pools=pools)
    factors = tuple(sorted(demand.items()))
    size = WorkloadSize(what_if.days, what_if.seed, what_if.jobs, factors, what_if.victims, what_if.saves)
    if not made.jobs().count(size):
        raise InvalidInput("no job arrives", where=workload.name, hint="more --days, or more `arrivals`")
    return simulate(made, policy, size, progress)


def _with_user(one: JobClass, policy: PolicySet) -> JobClass:
    """The class with a user: the one of the file, else the first member of its team, else the team's name."""
    return one if one.user else replace(one, user=next(iter(policy.members(one.team)), one.team))


def _with_capacity(pools: Sequence[WorkloadPool], changed: Mapping[str, int]) -> tuple[WorkloadPool, ...]:
    """The pools with changed numbers of machines. A name is that of a pool, or of a machine type, which means its owned
    and reserved capacity."""
    found = list(pools)
    for name, number in changed.items():
        meant = [i for i, pool in enumerate(found) if pool.offer.pool == name] or [
            i for i, pool in enumerate(found) if pool.offer.machine == name and pool.offer.may_be_free()
        ]
        if len(meant) != 1:
            names = [pool.offer.pool for pool in pools]
            names += [pool.offer.machine for pool in pools if pool.offer.may_be_free()]
            said = f"{'several pools are' if meant else 'no pool is'} called {name!r}{did_you_mean(name, names)}"
            raise InvalidInput(said, where="--capacity", hint=f"pools: {', '.join(dict.fromkeys(names))}")
        pool = found[meant[0]]
        found[meant[0]] = replace(pool, offer=replace(pool.offer, slots=number))
    return tuple(found)


def _numbers(option: str, texts: Sequence[str], kind: Callable[[str], N]) -> dict[str, N]:
    """Numbers by name from ``name=number``."""
    found: dict[str, N] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            value = kind(number)
        except ValueError as error:
            raise InvalidInput(f"expected NAME=NUMBER; got {text!r}", where=option) from error
        if not name or name in found or not 0 <= value <= 10_000_000:
            raise InvalidInput(f"expected NAME=NUMBER, each name once; got {text!r}", where=option)
        found[name] = value
    return found


def _earlier(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from error
    if not isinstance(found, dict) or not found.get("simulated"):
        raise InvalidInput("is not a report of `python -m tests.lab.simulate --json`", where=str(path))
    return found


if __name__ == "__main__":
    command.run(main)
