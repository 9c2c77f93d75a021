"""Simulates a workload under policies, with changed capacity or demand, with the code that places real jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from broker.app.demo import example
from broker.app.policy.policies import read_files
from broker.core.documents import MAX_BYTES
from broker.core.errors import InvalidInput, did_you_mean
from broker.core.ports import PolicySet
from broker.whatif.figures import SimulationResult
from broker.whatif.run import Progress, simulate
from broker.whatif.workload import JobClass, SimulatedWorkload, WorkloadPool, WorkloadSize
from broker.whatif.workload_file import parse_workload


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Changes to a workload. ``capacity``: numbers of machines by pool or machine; ``demand``: factors by team,
    ``*`` for all others."""

    days: int
    seed: int
    jobs: int | None = None
    capacity: Mapping[str, int] | None = None
    demand: Mapping[str, float] | None = None


def example_files() -> tuple[Path, Path]:
    """The workload and the policies of the example. Raises FileNotFoundError for a broken installation."""
    folder = example("simulation")
    return folder / "workload.yaml", folder / "policy.yaml"


def read_workload(path: Path) -> SimulatedWorkload:
    """The workload of a file. Raises `InvalidInput` with every mistake and its line."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(path)) from error
    return parse_workload(text, file=str(path))


def policies_of(load: Callable[[Mapping[str, str]], PolicySet], paths: Sequence[Path]) -> PolicySet:
    """The policy set of these files. Raises `InvalidInput` with every finding."""
    return load(read_files(paths))


def played(
    workload: SimulatedWorkload, policy: PolicySet, changed: WhatIf, progress: Progress | None = None
) -> SimulationResult:
    """Simulate the workload. The same arguments give the same result. Raises `InvalidInput` for a change of a pool or
    team that the workload does not have, and for one without jobs."""
    demand = dict(changed.demand or {})
    teams = {one.team for one in workload.classes}
    for team in demand:
        if team != "*" and team not in teams:
            raise InvalidInput(
                f"no team {team!r} in the workload{did_you_mean(team, teams)}", where="--demand",
                hint=f"teams: {', '.join(sorted(teams))}",
            )  # fmt: skip
    with_users = tuple(_with_user(one, policy) for one in workload.classes)
    pools = _with_capacity(workload.pools, changed.capacity or {})
    made = replace(workload, classes=with_users, pools=pools)
    size = WorkloadSize(changed.days, changed.seed, changed.jobs, tuple(sorted(demand.items())))
    if not made.jobs().count(size):
        raise InvalidInput("no job arrives", where=workload.name, hint="more --days, or more `arrivals`")
    return simulate(made, policy, size, progress)


def _with_user(one: JobClass, policy: PolicySet) -> JobClass:
    """The class with a user: the one of the file, else the first member of its team, else the team's name."""
    if one.user:
        return one
    return replace(one, user=next(iter(policy.members(one.team)), one.team))


def _with_capacity(pools: Sequence[WorkloadPool], changed: Mapping[str, int]) -> tuple[WorkloadPool, ...]:
    """The pools with changed numbers of machines. A name is that of a pool, or of a machine type, which means its owned
    and reserved capacity."""
    found = list(pools)
    for name, number in changed.items():
        meant = [i for i, one in enumerate(found) if one.offer.pool == name] or [
            i for i, one in enumerate(found) if one.offer.machine == name and one.offer.may_be_free()
        ]
        if len(meant) != 1:
            names = [one.offer.pool for one in pools] + [one.offer.machine for one in pools if one.offer.may_be_free()]
            several = "several pools are" if meant else "no pool is"
            raise InvalidInput(
                f"{several} called {name!r}{did_you_mean(name, names)}", where="--capacity",
                hint=f"pools: {', '.join(dict.fromkeys(names))}",
            )  # fmt: skip
        offer = replace(found[meant[0]].offer, slots=number)
        found[meant[0]] = replace(found[meant[0]], offer=offer)
    return tuple(found)
