"""The agent of a standby prepares its machine, waits for the handover, and never writes before its turn."""

from dataclasses import replace

from broker.agent.formats import Lease
from broker.agent.supervise import FENCED
from broker.core.events.agent_events import Restored, StandsBy
from broker.core.events.outcomes import Cause
from tests.agent.node import SAVE, SAVES_WHEN_TOLD, Node, eventually

STANDBY = Lease(standby=True)
# Prints what it found and goes on from there.
RESUMES = SAVE + "ls; save step_10"


def test_the_job_goes_on_where_it_stopped_on_a_machine_that_was_set_up_before(node: Node) -> None:
    node.spec(SAVES_WHEN_TOLD)
    old = node.start()
    node.until_said("up")
    node.spec(RESUMES, attempt=2, lease=STANDBY, setup="echo set up")
    new = node.start(attempt=2)
    node.until_event("stands_by", attempt=2)
    assert [body.kind for body in node.events(2)] == ["claimed", "stands_by"], "nothing is restored yet"
    eventually(lambda: node.output(2) == ["set up"], "the setup ran before its turn")
    assert old.poll() is None, "the one that works is not fenced"
    node.runs.write_lease(1, Lease(stop="moved"))
    assert old.wait(240) != 0
    assert node.ending().cause is Cause.MOVED
    assert node.saved() == [9], "saved because it was told to stop"
    assert new.poll() is None, "the end of the other one is not its turn yet"
    node.runs.write_lease(2, Lease())
    assert new.wait(240) == 0
    (restored,) = (body for body in node.events(2) if isinstance(body, Restored))
    assert (restored.step, node.output(2)) == (9, ["set up", "step_9"])
    assert node.saved(2) == [10]


def test_whoever_gets_its_turn_fences_the_one_before(node: Node) -> None:
    """The old machine was only out of sight: it learns by the lease that lets the new one begin."""
    node.spec(SAVE + "save step_1; echo up; exec sleep 300")
    old = node.start()
    eventually(lambda: node.saved() == [1], "a checkpoint")
    (node.job / "attempts" / "2").mkdir()  # as a disk shows it, just before its lease is there
    heartbeat = node.job / "attempts" / "1" / "heartbeat.json"
    for _ in range(2):
        before = heartbeat.stat().st_mtime_ns
        eventually(lambda: heartbeat.stat().st_mtime_ns != before, "a look at the run folder")  # noqa: B023
    assert old.poll() is None
    node.spec("true", attempt=2, lease=STANDBY)
    node.runs.write_lease(2, Lease())
    assert old.wait(240) == FENCED
    assert node.runs.read_attempt(1).exit is None, "writes nothing more"


def test_a_standby_that_is_not_needed_ends_and_fences_nobody(node: Node) -> None:
    node.spec(SAVE + "echo up; while [ ! -e go ]; do sleep 0.02; done; save step_2")
    old = node.start()
    node.until_said("up")
    node.spec("true", attempt=2, lease=STANDBY)
    new = node.start(attempt=2)
    node.until_event("stands_by", attempt=2)
    node.runs.write_lease(2, replace(STANDBY, stop="not_needed"))
    assert new.wait(240) != 0
    assert node.ending(2).cause is Cause.NOT_NEEDED
    assert not [body for body in node.events(2) if isinstance(body, Restored)]
    assert [body.kind for body in node.events(2) if not isinstance(body, StandsBy)] == ["claimed"]
    assert old.poll() is None
    (node.scratch() / "checkpoints" / "go").touch()
    assert old.wait(240) == 0
    assert node.saved() == [2]
