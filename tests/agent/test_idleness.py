"""The agent stops what is idle by itself, from its own samples: checkpoint first, with the rule's words."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.agent import gpu
from broker.agent.formats import Lease, LeaseIdleLimit
from broker.agent.idleness import Idleness, busiest, idle_message, idleness_of_samples
from broker.agent.supervise import INTERRUPTED
from broker.core.events.outcomes import Cause
from tests.agent.node import SAVES_WHEN_TOLD, Node, eventually

LIMIT = LeaseIdleLimit(below=5.0, seconds=30.0, told="for 30s; the limit is 5% (team.yaml:3)")
looks = st.lists(st.tuples(st.floats(0.1, 50), st.integers(0, 12)), max_size=30)


def seen(*told: tuple[float, float]) -> Idleness:
    """``told``: percent, seconds."""
    made = Idleness()
    for percent, at in told:
        made.add_sample(percent, at)
    return made


@pytest.mark.parametrize(
    ("told", "most"),
    [
        ([], None),
        ([(0, 0)], None),
        ([(0, 0), (0, 29.9)], None),
        ([(0, 0), (3, 10), (1, 30)], 3),
        ([(90, 0), (0, 20), (2, 49)], None),
        ([(90, 0), (0, 20), (2, 50)], 2),
        ([(0, 0), (5, 31)], None),  # at the limit is not below it
        ([(0, 0), (6, 10), (0, 31)], None),
    ],
    ids=str,
)
def test_all_were_below_the_limit_all_through_the_time(told: list[tuple[float, float]], most: float | None) -> None:
    assert seen(*told).most(LIMIT) == most


@given(looks)
def test_what_is_forgotten_makes_no_difference(told: list[tuple[float, int]]) -> None:
    """The same as the policy's rule says of all looks together."""
    at, history = 0.0, []
    made = Idleness()
    for pause, percent in told:
        at += pause
        history.append((float(percent), at))
        made.add_sample(percent, at)
        before = [one for one in history if one[1] <= at - LIMIT.seconds]
        lately = [one for one in history if one[1] > at - LIMIT.seconds]
        idle = bool(before) and max(one[0] for one in (before[-1], *lately)) < LIMIT.below
        assert (made.most(LIMIT) is not None) == idle


def test_every_node_must_be_idle_and_one_that_nobody_knows_of_is_not() -> None:
    idle, busy = seen((1, 0), (2, 30)), seen((1, 0), (70, 30))
    assert idle_message([idle, seen((4, 0), (0, 31))], [LIMIT]) == (
        "accelerator utilization was at most 4% for 30s; the limit is 5% (team.yaml:3)"
    )
    assert idle_message([idle, busy], [LIMIT]) is None
    assert idle_message([idle, Idleness()], [LIMIT]) is None
    assert idle_message([idle], []) is None
    assert idle_message([], [LIMIT]) is None


def test_samples_of_other_nodes_are_read_as_they_are_written_and_nonsense_is_left_out() -> None:
    def line(at: str, *percents: float | None) -> str:
        return json.dumps({"at": at, "gpus": [{"utilisation": percent} for percent in percents]})

    text = "\n".join([line("2026-01-01T00:00:00Z", 1, 3), "torn", '{"at": 3}', line("2026-01-01T00:00:30Z", 0, 2)])
    assert idleness_of_samples(text.encode()).most(LIMIT) == 3
    assert (busiest([]), busiest([{"utilisation": None}]), busiest([{"utilisation": 4}])) == (None, None, 4.0)
    assert busiest([{"utilisation": 0}, {"utilisation": None}]) is None, "what is unknown is not idle"


@pytest.fixture
def accelerator(tmp_path: Path, node: Node) -> Path:
    """How busy the node's only accelerator says that it is: a file with the percentage. The agent asks as always."""
    tools, says = tmp_path / "tools", tmp_path / "percent"
    tools.mkdir()
    says.write_text("3")
    smi = tools / "nvidia-smi"
    smi.write_text(f'#!/bin/sh\necho "0, $(cat {says}), 100, 1000, 50"\n')
    smi.chmod(0o700)
    node.inherited["PATH"] = f"{tools}:{node.inherited['PATH']}"
    return says


@pytest.mark.parametrize(
    ("visible", "percent"),
    [("GPU-1a", [3.0]), ("0", [80.0]), ("", []), ("MIG-9c0e", []), ("0,MIG-GPU-1a2b/1/0", []), (None, [80.0, 3.0])],
)
def test_a_job_is_as_idle_as_its_own_accelerators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, percent: list[float]
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho '0, 80, 1, 9, 50, GPU-0f'; echo '1, 3, 1, 9, 50, GPU-1a2b'\n")
    smi.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [one.utilisation for one in gpu.sample()] == percent


@pytest.mark.parametrize(
    "part",
    [
        {"CUDA_VISIBLE_DEVICES": "MIG-9c0e"},
        {"CUDA_VISIBLE_DEVICES": "GPU-another"},
        {"CUDA_VISIBLE_DEVICES": "0", "SLURM_SHARDS_ON_NODE": "1"},
    ],
)
def test_a_job_whose_use_is_unknown_is_not_idle(node: Node, accelerator: Path, part: dict[str, str]) -> None:
    node.spec("sleep 2; echo done", lease=Lease(idle=(SOON,)), intervals=OFTEN)
    assert node.start(env=part).wait(240) == 0
    assert node.ending().cause is Cause.COMPLETED


SOON = LeaseIdleLimit(below=5.0, seconds=0.5, told="for 0.5s; the limit is 5% (team.yaml:3)")
OFTEN = {"metrics": 0.1}


def test_what_is_idle_is_told_to_stop_saves_and_says_why_with_nobody_there(node: Node, accelerator: Path) -> None:
    node.spec(SAVES_WHEN_TOLD, lease=Lease(idle=(SOON,)), intervals=OFTEN)
    agent = node.start()
    assert agent.wait(240) == INTERRUPTED
    ending = node.ending()
    assert ending.cause is Cause.STOPPED_BY_POLICY
    assert ending.evidence.startswith("accelerator utilization was at most 3% for 0.5s; the limit is 5% (team.yaml:3)")


@pytest.mark.system
def test_what_is_busy_goes_on_until_it_is_not(node: Node, accelerator: Path) -> None:
    accelerator.write_text("80")
    node.spec(SAVES_WHEN_TOLD, lease=Lease(idle=(SOON,)), intervals=OFTEN)
    agent = node.start()
    node.until_said("up")
    metrics = node.job / "attempts" / "1" / "metrics.jsonl"
    eventually(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 8, "it is looked at for a while")
    assert agent.poll() is None
    accelerator.write_text("0")
    assert agent.wait(240) == INTERRUPTED
    assert (node.ending().cause, node.saved()) == (Cause.STOPPED_BY_POLICY, [9])
    assert "at most 0%" in node.ending().evidence


@pytest.mark.system
def test_a_limit_that_comes_with_a_later_lease_counts_and_one_that_goes_does_not(node: Node, accelerator: Path) -> None:
    node.spec(SAVES_WHEN_TOLD, lease=Lease(idle=(LeaseIdleLimit(5.0, 9e9, "for ever"),)), intervals=OFTEN)
    agent = node.start()
    node.until_said("up")
    node.runs.write_lease(1, Lease())
    metrics = node.job / "attempts" / "1" / "metrics.jsonl"
    eventually(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 8, "it is looked at for a while")
    assert agent.poll() is None
    node.runs.write_lease(1, Lease(idle=(SOON,)))
    assert agent.wait(240) == INTERRUPTED
    assert (node.ending().cause, node.saved()) == (Cause.STOPPED_BY_POLICY, [9])


@pytest.mark.system
def test_of_several_nodes_the_first_looks_at_all(node: Node, accelerator: Path) -> None:
    """Both look at the same accelerator here. What another node tells counts for three intervals: long ones, so that a
    slow machine has time to write both files."""
    node.spec(SAVES_WHEN_TOLD, nodes=2, lease=Lease(idle=(SOON,)), intervals={"metrics": 2.0})
    agents = [node.start(rank=rank, gang="g") for rank in (0, 1)]
    assert [agent.wait(240) for agent in agents] == [INTERRUPTED] * 2
    assert node.ending().cause is Cause.STOPPED_BY_POLICY
    assert "at most 3%" in node.ending().evidence


@pytest.mark.system
def test_one_node_that_is_busy_keeps_all_of_them(node: Node, accelerator: Path, tmp_path: Path) -> None:
    busy = tmp_path / "busy"
    busy.mkdir()
    smi = busy / "nvidia-smi"
    smi.write_text('#!/bin/sh\necho "0, 90, 100, 1000, 50"\n')
    smi.chmod(0o700)
    node.spec(SAVES_WHEN_TOLD, nodes=2, lease=Lease(idle=(SOON,)), intervals=OFTEN)
    agents = [
        node.start(rank=0, gang="g"),
        node.start(rank=1, gang="g", env={"PATH": f"{busy}:{node.inherited['PATH']}"}),
    ]
    folder = node.job / "attempts" / "1"

    def lines(name: str) -> int:
        file = folder / name
        return len(file.read_text().splitlines()) if file.exists() else 0

    eventually(lambda: lines("metrics.jsonl") > 10 and lines("metrics-1.jsonl") > 10, "both are looked at")
    assert [agent.poll() for agent in agents] == [None, None]
