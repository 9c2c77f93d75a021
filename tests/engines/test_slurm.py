"""The Slurm engine on a real cluster: its contract, and Slurm's own preemptions, nodes, and absences."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest

from broker.agent.processes import processes
from broker.core.errors import AskAPerson, RetryLater, TryAnotherOffer
from broker.core.events.outcomes import Cause
from broker.core.job.placements import Placement
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.ports import EngineState
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.engines.slurm import SlurmEngine
from broker.engines.slurm_commands import error_of
from tests.contracts.engine_bench import Bench, eventually, lines
from tests.contracts.engine_contract import EngineContract
from tests.slurm_cluster import SlurmCluster

_NUMBERS = count(1)  # one cluster for all tests: no key twice
pytestmark = [pytest.mark.system, pytest.mark.xdist_group("slurm")]  # one cluster at a time: each has many daemons


@pytest.fixture(autouse=True)
def commands_find_it(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)


def placement(gpus: int = 0, nodes: int = 1, partition: str = "gpu") -> Placement:
    offer = Offer(
        provider="slurm",
        region="loop",
        zone=f"loop:{partition}",
        instance_type=f"h100:{gpus}" if gpus else "cpu",
        accelerator="H100" if gpus else None,
        count=gpus,
        capacity_type=CapacityType.OWNED,
        price=Money.ZERO,
        as_of=datetime.now(UTC),
        source="slurm",
        availability=Availability.AVAILABLE,
        engine="slurm",
        money=MoneyKind.AMORTISED,
    )
    return Placement(offer, nodes, Money.ZERO, Money.ZERO, (), None, None, 1.0, 1.0, 0.0)


def number_of(handle: str) -> str:
    return handle.split(":")[2]


@pytest.fixture
def bench(tmp_path: Path, cluster: SlurmCluster) -> Iterator[Bench]:
    def take_away(handle: str) -> None:
        cluster.run("scancel", number_of(handle))  # a stranger, as far as the engine knows

    yield Bench(
        make=lambda: SlurmEngine(tmp_path / "home", SystemClock()),
        placement=placement(),
        clock=SystemClock(),
        folder=tmp_path,
        doomed=placement(),
        take_away=take_away,
        numbers=_NUMBERS,
    )
    cluster.run("scancel", "--quiet", "--user=root")
    eventually(cluster.ready, "the nodes are idle again")


class TestSlurmEngine(EngineContract):
    plugin = "slurm"

    @pytest.fixture
    def bench(self, bench: Bench) -> Bench:
        return bench


def urgent(cluster: SlurmCluster) -> str:
    """Submit a job that takes both nodes away from others."""
    wrap = ["--wrap", "sleep 3", "--output=/dev/null", "--chdir=/", "--nodes=2", "--gres=gpu:h100:2"]
    return cluster.run("sbatch", "--parsable", "--partition=urgent", *wrap).strip()


def test_what_slurm_preempts_is_interrupted_with_time_to_save(bench: Bench, cluster: SlurmCluster) -> None:
    mark = bench.mark()
    command = f"trap 'echo saved >> {mark}; exit 0' TERM; echo up >> {mark}; while :; do sleep 0.02; done"
    launch = bench.launch(command, placement(gpus=2))
    handle = bench.engine.submit(launch)
    eventually(lambda: lines(mark) == ["up"], "the command runs")
    urgent(cluster)
    gone = bench.until(handle, EngineState.GONE)
    assert gone.interrupted
    assert "preempted" in gone.evidence
    assert list(dict.fromkeys(lines(mark))) == ["up", "saved"]  # told once or twice: by its engine and by the agent
    assert bench.ending(launch).cause is Cause.PREEMPTED
    assert bench.make().observe([handle])[handle] == gone


def test_a_gang_runs_once_on_every_node(bench: Bench) -> None:
    mark = bench.mark()
    launch = bench.launch(
        f'echo "$GPUBROKER_RANK of $GPUBROKER_NODES $SLURM_JOB_ID $(echo "$SKYPILOT_NODE_IPS" | wc -l)" >> {mark}',
        placement(gpus=1, nodes=2),
    )
    _two_nodes(bench, launch.key)
    handle = bench.engine.submit(launch)
    bench.until(handle, EngineState.GONE)
    number = number_of(handle)
    assert sorted(lines(mark)) == [f"0 of 2 {number} 2", f"1 of 2 {number} 2"]
    assert bench.ending(launch).cause is Cause.COMPLETED


def _two_nodes(bench: Bench, key: str) -> None:
    import json

    spec = bench.folder / "runs" / key.removesuffix("-1") / "attempts" / "1" / "spec.json"
    spec.write_text(json.dumps({**json.loads(spec.read_text()), "nodes": 2}))


def test_a_gang_that_is_cancelled_saves_on_every_node(bench: Bench) -> None:
    mark = bench.mark()
    command = f"trap 'echo saved >> {mark}; exit 0' TERM; echo up >> {mark}; while :; do sleep 0.02; done"
    launch = bench.launch(command, placement(gpus=2, nodes=2))
    _two_nodes(bench, launch.key)
    handle = bench.engine.submit(launch)
    eventually(lambda: lines(mark) == ["up", "up"], "both ranks run")
    bench.engine.cancel(handle)
    assert not bench.until(handle, EngineState.GONE).interrupted
    assert lines(mark)[:2] == ["up"] * 2
    assert lines(mark)[2:] in (["saved"] * 2, ["saved"] * 3, ["saved"] * 4), "some are told twice: by Slurm and by us"


def test_a_gang_that_is_preempted_saves_on_every_node(bench: Bench, cluster: SlurmCluster) -> None:
    """With a GraceTime on the partition; without one, Slurm lets srun cut the ranks off."""
    mark = bench.mark()
    command = f"trap 'echo saved >> {mark}; exit 0' TERM; echo up >> {mark}; while :; do sleep 0.02; done"
    launch = bench.launch(command, placement(gpus=2, nodes=2, partition="patient"))
    _two_nodes(bench, launch.key)
    handle = bench.engine.submit(launch)
    eventually(lambda: lines(mark) == ["up", "up"], "both ranks run")
    urgent(cluster)
    bench.until(handle, EngineState.GONE)
    assert lines(mark)[:2] == ["up", "up"]
    assert lines(mark)[2:] in (["saved"] * 2, ["saved"] * 3, ["saved"] * 4), "some are told twice: by Slurm and by us"
    assert bench.ending(launch).cause is Cause.PREEMPTED


def test_a_controller_that_is_away_is_no_news_of_the_job(bench: Bench, cluster: SlurmCluster) -> None:
    handle = bench.engine.submit(bench.launch("exec sleep 300"))
    bench.until(handle, EngineState.UP)
    cluster.stop("slurmctld")
    try:
        for call in (lambda: bench.look(handle), lambda: bench.engine.submit(bench.launch("true"))):
            with pytest.raises(RetryLater, match="slurm"):
                call()
    finally:
        cluster.start("slurmctld")
    seen = eventually(lambda: _quietly(bench, handle), "the controller answers again")
    assert seen is EngineState.UP
    bench.engine.cancel(handle)
    bench.until(handle, EngineState.GONE)


def _quietly(bench: Bench, handle: str) -> EngineState | None:
    try:
        return bench.look(handle).state
    except RetryLater:
        return None


def test_a_job_that_slurm_has_forgotten_ended_when_its_agent_did(bench: Bench, cluster: SlurmCluster) -> None:
    """Nobody looked until it was out of Slurm's memory; nobody is billed for that time."""
    launch = bench.launch("exit 3")
    handle = bench.engine.submit(launch)
    eventually(lambda: not cluster.run("squeue", "--noheader", "--states=R,CG,PD").strip(), "it has ended")
    ending = bench.ending(launch)
    unknown = handle.replace(f":{number_of(handle)}:", ":999999:")
    gone = bench.look(unknown)
    assert (gone.state, gone.gone_at, gone.interrupted) == (EngineState.GONE, ending.at, False), gone
    assert gone.since is not None
    assert "the agent ended: exit_status" in gone.evidence


def test_a_job_that_slurm_has_forgotten_and_whose_agent_said_nothing_is_lost(bench: Bench) -> None:
    launch = bench.launch("exec sleep 300")
    bench.engine.submit(launch)
    assert bench.look(f"slurm:loop:999999:{launch.key}").state is EngineState.LOST


def test_a_drained_node_ends_nothing(bench: Bench, cluster: SlurmCluster) -> None:
    launch = bench.launch("sleep 2", placement(gpus=2))
    handle = bench.engine.submit(launch)
    bench.until(handle, EngineState.UP)
    cluster.run("scontrol", "update", "nodename=one,two", "state=drain", "reason=test")
    try:
        assert bench.look(handle).state is EngineState.UP
        assert not bench.until(handle, EngineState.GONE).interrupted
        assert bench.ending(launch).cause is Cause.COMPLETED
    finally:
        cluster.run("scontrol", "update", "nodename=one,two", "state=resume")


def test_a_node_that_goes_down_is_an_interruption(bench: Bench, cluster: SlurmCluster) -> None:
    handle = bench.engine.submit(bench.launch("exec sleep 300", placement(gpus=2)))
    bench.until(handle, EngineState.UP)
    node = cluster.run("squeue", "-h", "-j", number_of(handle), "-o", "%N").strip()
    cluster.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    try:
        gone = bench.until(handle, EngineState.GONE)
        assert gone.interrupted
        assert "a node failed" in gone.evidence
    finally:
        with suppress(AssertionError):  # it may be back already
            cluster.run("scontrol", "update", f"nodename={node}", "state=resume")


def test_a_machine_that_no_node_has_is_another_offers_turn(bench: Bench) -> None:
    with pytest.raises(TryAnotherOffer, match="sbatch"):
        bench.engine.submit(bench.launch("true", placement(gpus=8)))
    with pytest.raises(TryAnotherOffer, match=r"[Pp]artition"):
        bench.engine.submit(bench.launch("true", placement(partition="none-such")))


def test_what_a_job_inherits_is_what_was_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    launch = bench.launch('echo "${DATABASE_PASSWORD:-nothing}"')
    bench.until(bench.engine.submit(launch), EngineState.GONE)
    assert bench.printed(launch) == ["nothing"]


def test_nothing_is_left_on_the_node(bench: Bench) -> None:
    launch = bench.launch('dirname "$GPUBROKER_CHECKPOINT_DIR"')
    bench.until(bench.engine.submit(launch), EngineState.GONE)
    (scratch,) = bench.printed(launch)
    assert not Path(scratch).exists()


def test_a_cluster_that_is_not_this_one_is_not_spoken_for(bench: Bench) -> None:
    assert bench.look("slurm:other:17:abc-1").state is EngineState.ELSEWHERE
    bench.engine.cancel("slurm:other:17:abc-1")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("sbatch: error: Unable to contact slurm controller (connect failure)", RetryLater),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", TryAnotherOffer),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition", AskAPerson),
    ],
)
def test_what_slurm_says_is_classed(said: str, kind: type[Exception]) -> None:
    assert isinstance(error_of("sbatch", said), kind)


@pytest.mark.parametrize("said", ["", " \n"])
def test_a_command_that_dies_without_a_word_is_run_again(said: str) -> None:
    assert isinstance(error_of("sbatch", said), RetryLater)


def test_the_agent_killed_is_not_an_interruption(bench: Bench) -> None:
    mark = bench.mark()
    handle = bench.engine.submit(bench.launch(f"echo $PPID >> {mark}; exec sleep 300"))
    guard = int(eventually(lambda: lines(mark) or None, "it runs")[0])
    agent = int(Path(f"/proc/{guard}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(agent, signal.SIGKILL)
    assert not bench.until(handle, EngineState.GONE).interrupted


def test_what_left_the_session_of_a_killed_agent_ends_before_its_job_is_gone(bench: Bench) -> None:
    mark = bench.mark()
    apart = f"setsid --fork sh -c 'echo $$ >> {mark}; exec sleep 300'"
    handle = bench.engine.submit(bench.launch(f"echo $PPID >> {mark}; {apart}; sleep 300"))
    guard, process = map(int, eventually(lambda: lines(mark) if len(lines(mark)) == 2 else None, "both run"))
    agent = int(Path(f"/proc/{guard}/stat").read_text().rpartition(")")[2].split()[1])
    for number in (signal.SIGSTOP, signal.SIGKILL):  # so that neither acts on the end of the other
        for victim in (agent, guard):
            os.kill(victim, number)
    bench.until(handle, EngineState.GONE)
    assert process not in processes(), "killed, and perhaps not yet waited for"
