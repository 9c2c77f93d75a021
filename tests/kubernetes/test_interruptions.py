"""A job on Kubernetes whose pod is taken away, in the two ways in which clusters do that: each is an interruption, and
it goes on at its last checkpoint on another node."""

from __future__ import annotations

import pytest

from tests.kubernetes.cluster import GPUS, NODES
from tests.kubernetes.desk import LOST_AT_MOST, KubernetesDesk
from tests.kubernetes.lab import KubernetesLab

pytestmark = [pytest.mark.kubernetes, pytest.mark.system]
STEPS = 60


def test_preempted_by_a_higher_priority_class_then_drained_then_at_its_end(
    lab: KubernetesLab, desk: KubernetesDesk
) -> None:
    desk.submit(STEPS)
    desk.sky.until("checkpoint_saved", 2)
    first = desk.node()
    lab.take(first, GPUS)
    desk.sky.until("restored", 2)
    second = desk.node()
    assert {first, second} == set(NODES)
    lab.give_back()
    kept = len(desk.sky.events("checkpoint_saved"))
    desk.sky.until("checkpoint_saved", kept + 2)
    lab.drain(second)
    assert desk.sky.ended() == "succeeded"
    assert desk.sky.causes() == ["preempted", "preempted", "completed"]
    evidence = [one["evidence"] for one in desk.sky.events("machine_gone")]
    assert "Preempted" in evidence[0]
    assert f"{second} is cordoned" in evidence[1]
    done = desk.sky.steps_done()
    assert sorted(set(done)) == [*range(1, STEPS + 1)]
    assert len(done) - STEPS <= 2 * LOST_AT_MOST, "more is repeated than what came after the last checkpoint"
    desk.verify_nothing_left()
