"""Figures that a program reports: recorded as an event, whatever else is in the file."""

import sys

import pytest

from broker.core.events.agent_events import MetricsReported
from tests.agent.node import Node


def reports(node: Node) -> list[MetricsReported]:
    return [body for body in node.events() if isinstance(body, MetricsReported)]


def test_the_last_figures_of_a_program_are_recorded(node: Node) -> None:
    program = "import gpubroker_checkpoint as g; g.progress(7, 9); g.report(tokens=5e6); g.report(8, loss=0.4)"
    assert node.run(f'{sys.executable} -c "{program}"') == 0
    last = reports(node)[-1]
    assert (last.step, last.metrics) == (8, {"tokens": 5e6, "loss": 0.4})


def test_figures_that_stay_the_same_are_told_again_with_their_step(node: Node) -> None:
    program = (
        "import time, gpubroker_checkpoint as g\nfor step in range(1, 31): g.report(step, loss=9.0); time.sleep(0.05)"
    )
    assert node.run(f"{sys.executable} -c '{program}'", intervals={"figures": 0.1}) == 0
    told = reports(node)
    assert {tuple(one.metrics.items()) for one in told} == {(("loss", 9.0),)}
    steps = [one.step or 0 for one in told]
    assert len(steps) > 1
    assert steps == sorted(set(steps))
    assert steps[-1] == 30


@pytest.mark.parametrize("told", ["{", '{"metrics": {"a": NaN, "b": "x", "": 1, "c": true}}'])
def test_what_is_no_figure_is_left_out(node: Node, told: str) -> None:
    assert node.run(f"printf '%s' '{told}' > \"$GPUBROKER_PROGRESS_FILE\"") == 0
    assert reports(node) == []
