"""Who ended a pod, by what kubectl lists. On a real cluster: `tests/kubernetes`."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from broker.core.errors import LoginMissing, Unreachable
from broker.engines.skypilot.evidence import GCP, KUBERNETES, CloudVerdict, name_on_cloud
from broker.engines.skypilot.machine_ends import kubernetes_statement

KEY = "count-rdpu9v-1"
POD = "count-rdpu9v-1-fcd1e5cf-head"


def pod(phase: str = "Running", ending: bool = False, reason: str = "", disrupted: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": POD, **({"deletionTimestamp": "2026-11-25T16:00:00Z"} if ending else {})},
        "spec": {"nodeName": "node-a"},
        "status": {
            "phase": phase,
            "reason": reason,
            "conditions": [{"type": "DisruptionTarget", "reason": disrupted}] if disrupted else [],
        },
    }


def event(reason: str, message: str = "", about: str = POD) -> dict[str, Any]:
    return {"reason": reason, "message": message, "involvedObject": {"kind": "Pod", "name": about}}


ASSIGNED = event("Scheduled", f"Successfully assigned default/{POD} to node-a")


def node(name: str = "node-a", cordoned: bool = False) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"unschedulable": True} if cordoned else {}}


def said(
    pods: Sequence[Mapping[str, Any]] = (),
    events: Sequence[Mapping[str, Any]] = (),
    nodes: Sequence[Mapping[str, Any]] = (),
    key: str = KEY,
) -> CloudVerdict:
    def listed(context: str, words: Sequence[str]) -> list[Any]:
        assert context == "lab"
        if words[0] == "pods":
            assert f"--selector=gpubroker={key}" in words
        return list({"pods": pods, "events": events, "nodes": nodes}[words[0]])

    return kubernetes_statement(key, "lab", listed).verdict


@pytest.mark.parametrize(
    ("pods", "events", "nodes", "says"),
    [
        ([pod()], [], [], CloudVerdict.RUNS),
        ([pod("Pending")], [], [], CloudVerdict.RUNS),
        ([], [ASSIGNED, event("Preempted", "by default/rival on node node-a")], [node()], CloudVerdict.TAKEN),
        ([pod(ending=True)], [event("Preempted")], [node()], CloudVerdict.TAKEN),
        ([pod(ending=True, disrupted="PreemptionByScheduler")], [], [node()], CloudVerdict.TAKEN),
        ([pod(ending=True, disrupted="EvictionByEvictionAPI")], [], [node()], CloudVerdict.TAKEN),
        ([pod("Failed", disrupted="TerminationByKubelet")], [], [node()], CloudVerdict.BROKE),
        ([pod("Failed", reason="NodeLost")], [], [node()], CloudVerdict.BROKE),
        ([], [ASSIGNED, event("TaintManagerEviction")], [node()], CloudVerdict.BROKE),
        ([], [ASSIGNED, event("Killing")], [node(cordoned=True)], CloudVerdict.TAKEN),
        ([], [ASSIGNED], [node("node-b")], CloudVerdict.TAKEN),
        ([], [ASSIGNED, event("Killing")], [node(), node("node-b", cordoned=True)], CloudVerdict.ASKED_FOR),
        # The job itself used too much: the limit of its container, or of its scratch space.
        ([pod("Failed", reason="Evicted")], [ASSIGNED, event("Evicted")], [node()], CloudVerdict.ASKED_FOR),
        ([], [], [node(cordoned=True)], CloudVerdict.UNKNOWN),
        ([], [event("Preempted", about="count-rdpu9v-11-fcd1e5cf-head")], [node()], CloudVerdict.UNKNOWN),
        ([], [event("Preempted", about="xcount-rdpu9v-1-fcd1e5cf-head")], [node()], CloudVerdict.UNKNOWN),
    ],
)
def test_the_words_of_a_cluster(pods: Any, events: Any, nodes: Any, says: CloudVerdict) -> None:
    assert said(pods, events, nodes) is says


def test_a_key_that_begins_with_a_digit_and_one_that_skypilot_shortens() -> None:
    assert said(events=[event("Preempted", about="gpubroker-7b-x1y2z3-1-fcd1e5cf-head")], key="7b-x1y2z3-1") is (
        CloudVerdict.TAKEN
    )
    long = "a-name-of-a-job-that-is-long-ab12cd-12"
    assert (
        said(events=[event("Preempted", about=f"{name_on_cloud(long, KUBERNETES)}-fcd1e5cf-worker1")], key=long)
        is CloudVerdict.TAKEN
    )
    assert name_on_cloud(long, KUBERNETES) != name_on_cloud(long.replace("-12", "-13"), KUBERNETES), (
        "attempts are told apart"
    )


@pytest.mark.system
@pytest.mark.skipif(find_spec("sky") is None, reason="SkyPilot is not installed (extra skypilot)")
@pytest.mark.parametrize(
    "cluster", [KEY, "gpubroker-7b-1", "a-name-of-a-job-that-is-long-ab12cd-12", "x" * 33, "x" * 40]
)
def test_names_of_clusters_are_those_of_skypilot(cluster: str) -> None:
    from sky.utils import common_utils

    for ours, theirs in ((KUBERNETES, 42), (GCP, 35)):
        assert (
            name_on_cloud(cluster, ours) == common_utils.make_cluster_name_on_cloud(cluster, theirs).rpartition("-")[0]
        )


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("echo 'Error from server (Forbidden): events is forbidden' >&2; exit 1", LoginMissing),
        ("echo 'error: context \"lab\" does not exist' >&2; exit 1", LoginMissing),
        ("echo 'connection refused' >&2; exit 1", Unreachable),
        ("echo nonsense", Unreachable),
        ("echo '{}'", Unreachable),
    ],
)
def test_a_cluster_that_does_not_answer_or_refuses(
    script: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(error) as caught:
        kubernetes_statement(KEY, "lab")
    assert type(caught.value) is error
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(LoginMissing, match="kubectl cannot be run"):
        kubernetes_statement(KEY, "lab")
