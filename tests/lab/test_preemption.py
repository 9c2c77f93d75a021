"""A pool of 64 cards with jobs of several sizes: how much work is repeated when urgent ones take places."""

import pytest

from broker.app.policy.policies import read_files
from cli import registries
from tests.lab.simulate import EXAMPLE, WhatIf, played
from tests.lab.simulation.figures import TeamTally
from tests.lab.simulation.preemption import Victims
from tests.lab.simulation.workload_file import read_workload


def simulated(victims: Victims, seed: int, *, saves: bool) -> TeamTally:
    policy = registries().load_policies(read_files([EXAMPLE / "preempts.yaml"]))
    found = played(read_workload(EXAMPLE / "cards.yaml"), policy, WhatIf(1, seed, victims=victims, saves=saves))
    assert found.faults == []
    return found.teams["research"]


def repeated(victims: Victims, *, saves: bool) -> float:
    """GPU-hours that jobs repeat which gave way, over some seeds."""
    tallies = [simulated(victims, seed, saves=saves) for seed in (1, 2)]
    assert sum(tally.preempted for tally in tallies) > 20
    return sum(tally.repeated_gpu_seconds for tally in tallies) / 3600


@pytest.mark.parametrize("saves", [False, True])
def test_half_as_much_work_is_repeated_as_when_the_newest_give_way(saves: bool) -> None:
    ours, newest = repeated(Victims.LEAST_LOST, saves=saves), repeated(Victims.NEWEST_FIRST, saves=False)
    assert ours <= newest / 2
