"""What is billed while SkyPilot launches, and after a launch that failed."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.core.errors import (
    Unreachable,
)
from broker.core.job.placements import Placement
from broker.core.ports import EngineState
from broker.engines.skypilot import aftermath, task
from broker.engines.skypilot import engine as skypilot_engine
from tests.contracts.engine_bench import Bench, eventually
from tests.engines.skypilot_bench import ApiServerConnectionError, bench_on, offer, placed
from tests.fakes import skypilot as fake


@pytest.fixture
def bench(tmp_path: Path, sky: fake.Sky) -> Bench:
    return bench_on(tmp_path, sky)


def slow_launch(bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch, what: Placement | None = None) -> str:
    """The handle of a launch that is under way, its cluster INIT, until `fails` or the end of the test."""
    monkeypatch.setattr(task, "_SETUP", "exec sleep 300 # {folder}{key}{pins}")
    handle = bench.engine.submit(bench.launch("true", what))
    eventually(lambda: bool(sky._clusters), "its cluster is made")
    return handle


def fails(sky: fake.Sky, handle: str, error: Exception) -> None:
    """The launch fails as SkyPilot's do whose machines do not come up: the cluster is removed, then the error told."""
    name = handle.rpartition(":")[2]
    (request,) = [one for one in sky._requests.values() if one.name.endswith("launch") and not one.done.is_set()]
    request.aborted.set()
    request.done.wait()
    with sky._lock:
        sky._remove(name)
    request.status, request.error = "FAILED", error


def test_machines_are_billed_from_when_their_cloud_is_asked_for_them(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = slow_launch(bench, sky, monkeypatch)
    starting = bench.until(handle, EngineState.PENDING)
    starting = eventually(lambda: one if (one := bench.look(handle)).since else None, "it is billed")
    assert starting.state is EngineState.PENDING
    fails(sky, handle, RuntimeError("the machines do not answer"))
    gone = bench.until(handle, EngineState.GONE)
    assert (gone.since, gone.no_capacity) == (starting.since, False)
    assert gone.gone_at is not None
    assert starting.since is not None
    assert gone.gone_at > starting.since, "billed until it was gone"


def test_what_comes_and_goes_between_two_looks_was_billed(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = slow_launch(bench, sky, monkeypatch)
    fails(sky, handle, RuntimeError("the machines do not answer"))
    gone = bench.until(handle, EngineState.GONE)
    assert gone.since is not None, "the server knows that there was a cluster"


def test_a_machine_of_a_launch_that_failed_before_anybody_looked_is_ended_too(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = slow_launch(bench, sky, monkeypatch)
    sky.lose(handle.rpartition(":")[2])
    fails(sky, handle, RuntimeError("its machines cannot be found"))
    monkeypatch.setattr(aftermath, "_LOST_AFTER", aftermath._LOST_AFTER * 0)
    gone = bench.until(handle, EngineState.GONE)
    assert not sky._lost
    assert gone.since is not None, "it is billed"


def test_a_cloud_that_has_no_machine_to_give_bills_none(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = slow_launch(bench, sky, monkeypatch)
    eventually(lambda: bench.look(handle).since, "it seems to start")
    sky.never.add(handle.rpartition(":")[2])
    fails(sky, handle, fake.ResourcesUnavailableError("sold out"))
    gone = bench.until(handle, EngineState.GONE)
    assert gone.no_capacity
    assert gone.since == gone.gone_at


def test_a_machine_that_its_cloud_knows_of_is_billed_whatever_skypilot_says(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that nothing was to be had also of a machine that came, and whose tags came late."""
    handle = slow_launch(bench, sky, monkeypatch)
    starting = eventually(lambda: bench.look(handle).since, "it starts")
    fails(sky, handle, fake.ResourcesUnavailableError("sold out"))
    gone = bench.until(handle, EngineState.GONE)
    assert (gone.no_capacity, gone.since) == (False, starting)


@pytest.mark.parametrize("cloud", ["aws", "kubernetes"])
def test_a_machine_that_was_taken_while_it_was_launched_was_not_sold_out(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch, cloud: str
) -> None:
    handle = slow_launch(bench, sky, monkeypatch, placed(offer(cloud)))
    sky._taken.add(handle.rpartition(":")[2])
    fails(sky, handle, fake.ResourcesUnavailableError("sold out"))
    gone = bench.until(handle, EngineState.GONE)
    assert (gone.no_capacity, gone.interrupted) == (False, True), gone.evidence


def test_a_server_that_does_not_answer_is_no_failure_of_the_launch(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = slow_launch(bench, sky, monkeypatch)
    get, restarts = sky.get, [True]

    def get_of(request: str) -> Any:
        if restarts and sky._requests[request].name.endswith("launch"):
            raise ApiServerConnectionError("it restarts")
        return get(request)

    monkeypatch.setattr(sky, "get", get_of)
    fails(sky, handle, fake.ResourcesUnavailableError("sold out"))
    sky.never.add(handle.rpartition(":")[2])
    with pytest.raises(Unreachable):
        bench.look(handle)
    restarts.clear()
    assert bench.until(handle, EngineState.GONE).no_capacity


class RequestInterruptedError(Exception):
    """As SkyPilot calls it: a server that is shut down makes that the end of what is under way."""


class NetworkError(Exception):
    """As SkyPilot calls it."""


@pytest.mark.parametrize("kind", [RequestInterruptedError, NetworkError, ConnectionError])
def test_a_launch_that_ended_out_of_somebodys_reach_has_failed(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    """Its server answers, and will tell the same for ever."""
    handle = slow_launch(bench, sky, monkeypatch)
    eventually(lambda: bench.look(handle).since, "it starts")
    fails(sky, handle, kind("nobody answered the launch"))
    gone = bench.until(handle, EngineState.GONE)
    assert "nobody answered the launch" in gone.evidence


def test_one_machine_of_several_may_have_been_there(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = slow_launch(bench, sky, monkeypatch, placed(offer(), nodes=2))
    eventually(lambda: bench.look(handle).since, "it starts")
    fails(sky, handle, fake.ResourcesUnavailableError("sold out"))
    gone = bench.until(handle, EngineState.GONE)
    assert not gone.no_capacity
    assert gone.since is not None


def test_machines_that_took_long_to_fail_may_have_been_there(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SkyPilot says that nothing is to be had also of a machine that came up and did not answer."""
    monkeypatch.setattr(skypilot_engine, "_REFUSED_WITHIN", timedelta(0))
    handle = slow_launch(bench, sky, monkeypatch)
    eventually(lambda: bench.look(handle).since, "it starts")
    fails(sky, handle, fake.ResourcesUnavailableError("sold out"))
    gone = bench.until(handle, EngineState.GONE)
    assert not gone.no_capacity
    assert gone.since is not None


@pytest.mark.parametrize("cloud", ["kubernetes", "slurm"])
def test_what_waits_in_a_clusters_queue_is_no_machine(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch, cloud: str
) -> None:
    handle = slow_launch(bench, sky, monkeypatch, placed(offer(cloud)))
    waiting = bench.until(handle, EngineState.QUEUED)
    assert waiting.since is None
    assert bench.until(handle, EngineState.QUEUED).since is None


def test_a_machine_that_cannot_be_ended_hides_no_other(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, other = (bench.engine.submit(bench.launch("exec sleep 300")) for _ in range(2))
    for handle in (stuck, other):
        bench.until(handle, EngineState.UP)
    ends = sky.down

    def down(cluster_name: str) -> str:
        if stuck.endswith(cluster_name):
            raise ApiServerConnectionError("no answer")
        return ends(cluster_name)

    with monkeypatch.context() as broken:
        broken.setattr(sky, "down", down)
        with pytest.raises(Unreachable):
            bench.engine.cancel(stuck)
        bench.engine.cancel(other)
        eventually(lambda: bench.engine.observe([stuck, other])[other].state is EngineState.GONE, "the other is gone")
        seen = bench.look(stuck)
        assert seen.state is EngineState.UP, "it is billed on"
        assert "cannot be ended: skypilot: no answer" in seen.evidence
    bench.until(stuck, EngineState.GONE)
