"""Several jobs side by side on this machine: each has its part, and nothing is given twice."""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.core.errors import RetryLater
from broker.core.job.jobs import MachineRequest
from broker.core.job.placements import Placement
from broker.core.market.shares import MachineShare
from broker.core.ports import EngineState, SharesItsMachine
from broker.core.values.clock import SystemClock
from broker.engines.detached import Slot
from broker.engines.local import Local, LocalSettings
from broker.engines.register import MachineRegister
from broker.engines.runfolder.runfolder import RunFolder
from tests.agent.node import alive
from tests.contracts.engine_bench import Bench, eventually, lines
from tests.engines.test_local import agent_pid, placement, slot_of

WHOLE = MachineShare(3000, 3072, (("L4", 2),))


class Nvml:
    """Two cards, as the binding tells."""

    NVMLError = RuntimeError

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlDeviceGetCount": 2,
            "nvmlDeviceGetName": "NVIDIA L4",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=23 * 2**30),
            "nvmlDeviceGetMigMode": [0, 0],
        }
        return lambda *_: answers.get(name)


def placed(cpus: float = 1, gpus: int = 0) -> Placement:
    offer = replace(
        placement().offer, cpus=cpus, memory_gib=1, slots=1, count=gpus, accelerator="L4" if gpus else None, whole=WHOLE
    )
    return replace(placement(), offer=offer)


def engine(home: Path, machine: Path) -> Local:
    return Local(home, SystemClock(), LocalSettings(register=machine), Nvml)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(
        make=lambda: engine(tmp_path / "home", tmp_path / "machine"),
        placement=placed(gpus=1),
        clock=SystemClock(),
        folder=tmp_path,
        doomed=placed(),
        take_away=lambda handle: None,
    )
    yield made
    last = engine(tmp_path / "home", tmp_path / "machine")
    for one in last.machines():
        last.end(one.handle)


def submit(bench: Bench, command: str, where: Placement, by: Local | None = None, store: str = "ours") -> str:
    return (by or bench.engine).submit(replace(bench.launch(command, where), store=store))


def said(mark: Path, count: int = 1) -> list[str]:
    return eventually(lambda: lines(mark) if len(lines(mark)) == count else None, "it runs")


def test_each_job_sees_its_gpu_and_one_without_sees_none(bench: Bench) -> None:
    mark = bench.mark()
    what = 'echo "$CUDA_VISIBLE_DEVICES|$CUDA_DEVICE_ORDER|$OMP_NUM_THREADS"'
    for gpus in (1, 1, 0):
        submit(bench, f"{what} >> {mark}; sleep 300", placed(gpus=gpus))
    assert sorted(said(mark, 3)) == ["0|PCI_BUS_ID|1", "1|PCI_BUS_ID|1", "|PCI_BUS_ID|1"]
    with pytest.raises(RetryLater, match="0 CPUs, 0 GiB, 0 GPUs free now"):
        submit(bench, "true", placed(gpus=1))


class CutNvml(Nvml):
    """Two cards, the second cut into two slices."""

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return ("whole", "cut")[index]

    def nvmlDeviceGetMigMode(self, card: str) -> list[int]:
        return [int(card == "cut")] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, card: str) -> int:
        return 2

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: str, index: int) -> str:
        return f"MIG-{index}"

    def nvmlDeviceGetUUID(self, part: str) -> str:
        return part

    def nvmlDeviceGetName(self, device: str) -> str:
        return "NVIDIA H100 80GB HBM3" + (" MIG 1g.10gb" if device.startswith("MIG") else "")


def test_each_job_sees_its_slice_by_uuid_and_no_slice_is_given_twice(bench: Bench, tmp_path: Path) -> None:
    mark = bench.mark()
    local = Local(tmp_path / "home", SystemClock(), LocalSettings(register=tmp_path / "machine"), CutNvml)
    whole = MachineShare(3000, 3072, (("H100-1g.10gb", 2),))
    offer = replace(placed(gpus=1).offer, accelerator="H100-1g.10gb", whole=whole, cpus=0.5)
    where = replace(placed(), offer=offer)
    for _ in range(2):
        submit(bench, f"echo $CUDA_VISIBLE_DEVICES >> {mark}; sleep 300", where, local)
    card = replace(offer, accelerator="H100", whole=MachineShare(3000, 3072, (("H100", 1),)))
    submit(bench, f"echo $CUDA_VISIBLE_DEVICES >> {mark}; sleep 300", replace(where, offer=card), local)
    assert sorted(said(mark, 3)) == ["0", "MIG-0", "MIG-1"]
    with pytest.raises(RetryLater, match="0 GPUs free now"):
        submit(bench, "true", where, local)
    assert local.given_to_others(lambda: "theirs").gpus == (("H100", 1), ("H100-1g.10gb", 2))


@pytest.mark.system
def test_a_job_is_bound_to_its_cpus_or_to_those_that_are_free_and_the_broker_is_not(bench: Bench) -> None:
    before, mark = os.sched_getaffinity(0), bench.mark()
    prints = f"python3 -c 'import os; print(len(os.sched_getaffinity(0)))' >> {mark}; echo $OMP_NUM_THREADS >> {mark}"
    launch = bench.launch(f"{prints}; sleep 300", placed())
    named = launch.job.model_copy(update={"resources": (MachineRequest(cpus=1),)})
    bench.engine.submit(replace(launch, job=named, store="ours"))
    assert said(mark, 2) == ["1", "1"]
    submit(bench, f"{prints}; sleep 300", placed())
    assert said(mark, 4)[2:] == [str(min(2, len(before)))] * 2
    assert os.sched_getaffinity(0) == before


@pytest.mark.system
@pytest.mark.parametrize("how", ["it ends", "it is cancelled", "its agent is killed"])
def test_a_third_job_waits_until_one_is_gone(bench: Bench, tmp_path: Path, how: str) -> None:
    mark, stop = bench.mark(), tmp_path / "stop"
    first = submit(bench, f"echo >> {mark}; while [ ! -e {stop} ]; do sleep 0.1; done", placed(cpus=2))
    submit(bench, f"echo >> {mark}; sleep 300", placed())
    third = replace(bench.launch("true", placed(cpus=2)), store="ours")
    with pytest.raises(RetryLater, match="0 CPUs, 1 GiB free now, and the job needs 2 CPUs, 1 GiB"):
        bench.engine.submit(third)
    assert bench.engine.find(third.key) is None
    said(mark, 2)
    match how:
        case "it ends":
            stop.touch()
        case "it is cancelled":
            bench.engine.cancel(first)
        case _:
            os.kill(agent_pid(tmp_path / "home", first), signal.SIGKILL)
    bench.until(first, EngineState.GONE)
    eventually(lambda: len(MachineRegister(tmp_path / "machine").given()) == 1, "its part is free")
    handle = bench.make().submit(third)
    assert bench.make().submit(third) == handle, "a broker that was restarted starts no other"
    bench.until(handle, EngineState.GONE)


def test_what_was_given_is_on_record_and_outlives_the_broker(bench: Bench, tmp_path: Path) -> None:
    handle = submit(bench, "sleep 300", placed(gpus=1))
    kept = json.loads((slot_of(tmp_path / "home", handle) / "given.json").read_text())
    assert (kept["gpus"], kept["share"]["milli_cpus"], len(kept["cpus"])) == ([0], 1000, 1)
    later = bench.make()
    assert isinstance(later, SharesItsMachine)
    assert later.given_to_others(lambda: "ours") == MachineShare()
    assert later.given_to_others(lambda: "theirs") == MachineShare(1000, 1024, (("L4", 1),))


def test_two_brokers_never_give_one_gpu_twice(bench: Bench, tmp_path: Path) -> None:
    """Of two homes and stores, on one machine."""
    theirs, mark = engine(tmp_path / "theirs", tmp_path / "machine"), bench.mark()
    what = f"echo $CUDA_VISIBLE_DEVICES >> {mark}; sleep 300"
    submit(bench, what, placed(gpus=1))
    handle = submit(bench, what, placed(gpus=1), by=theirs, store="theirs")
    assert sorted(said(mark, 2)) == ["0", "1"]
    with pytest.raises(RetryLater):
        submit(bench, what, placed(gpus=1))
    theirs.end(handle)


def test_without_the_binding_no_gpu_is_given(bench: Bench, tmp_path: Path) -> None:
    def missing() -> Any:
        raise ModuleNotFoundError("No module named 'pynvml'")

    blind = Local(tmp_path / "home", SystemClock(), LocalSettings(register=tmp_path / "machine"), missing)
    with pytest.raises(RetryLater, match="pynvml"):
        submit(bench, "true", placed(gpus=1), by=blind)


def gang(bench: Bench, command: str, gpus: int = 0) -> tuple[str, str]:
    """A job of two nodes on a part for both: its handle and its run folder."""
    launch = bench.launch(command, placed(cpus=2, gpus=2 * gpus))
    spec = Path(launch.run_folder.removeprefix("file://")) / "spec.json"
    spec.write_text(spec.read_text().replace('"nodes": 1', '"nodes": 2'))
    job = launch.job.model_copy(update={"num_nodes": 2})
    return bench.engine.submit(replace(launch, job=job, store="ours")), launch.run_folder


@pytest.mark.system
def test_nodes_of_one_job_run_beside_each_other_each_with_its_own_part(bench: Bench) -> None:
    mark = bench.mark()
    what = 'echo "$SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES|$CUDA_VISIBLE_DEVICES|$(nproc)|"'
    ips = "$(echo $SKYPILOT_NODE_IPS | wc -w)"
    handle, folder = gang(bench, f"{what}{ips} >> {mark}; echo said; sleep 0.$SKYPILOT_NODE_RANK", gpus=1)
    gone = bench.until(handle, EngineState.GONE)
    assert sorted(lines(mark)) == ["0 of 2|0|1|2", "1 of 2|1|1|2"]
    runs = RunFolder(bench.runs_url, Path(folder).parents[1].name)
    assert [list(runs.logs(1, rank)) for rank in (0, 1)] == [["said"], ["said"]]
    assert (gone.evidence, gone.interrupted) == ("the agent ended: completed", False)


@pytest.mark.system
@pytest.mark.parametrize(
    ("how", "evidence", "interrupted"),
    [
        ("one fails", "the agent ended: exit_status", False),
        ("the machine is shut down", "the agent ended: preempted", True),
        ("it is cancelled", "the agent ended: preempted", False),
        ("an agent is killed", "the agent died without a message", False),
        ("what started them is killed", "the agent died without a message", False),
    ],
)
def test_nodes_of_one_job_end_together(
    bench: Bench, tmp_path: Path, how: str, evidence: str, interrupted: bool
) -> None:
    mark, stop = bench.mark(), tmp_path / "stop"
    waits = f"while [ ! -e {stop} ]; do sleep 0.1; done"
    handle, _ = gang(bench, f'echo $$ >> {mark}; if [ "$GPUBROKER_RANK" = 1 ]; then {waits}; exit 3; fi; sleep 300')
    pids = [int(pid) for pid in said(mark, 2)]
    slot = slot_of(tmp_path / "home", handle)
    starter = int(json.loads((slot / "started.json").read_text())["pid"])
    match how:
        case "one fails":
            stop.touch()
        case "it is cancelled":
            bench.engine.cancel(handle)
        case "an agent is killed":
            os.kill(int(json.loads((slot / "node-1" / "agent.json").read_text())["pid"]), signal.SIGKILL)
        case "the machine is shut down":
            os.kill(starter, signal.SIGTERM)
        case _:
            os.kill(starter, signal.SIGKILL)
    gone = bench.until(handle, EngineState.GONE)
    assert (gone.evidence, gone.interrupted) == (evidence, interrupted)
    assert not any(map(alive, pids))
    assert not MachineRegister(tmp_path / "machine").given()


@pytest.mark.system
def test_nodes_are_told_to_stop_though_their_starter_died_before_it_wrote_of_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Slot.write

    def all_but_the_start(slot: Slot, name: str, document: Mapping[str, Any]) -> None:
        if name != "started.json":
            write(slot, name, document)

    monkeypatch.setattr(Slot, "write", all_but_the_start)
    mark = bench.mark()
    handle, _ = gang(bench, f"echo $$ >> {mark}; sleep 300")
    pids = [int(pid) for pid in said(mark, 2)]
    bench.engine.cancel(handle)
    assert bench.until(handle, EngineState.GONE).evidence == "the agent ended: preempted"
    assert not any(map(alive, pids))
