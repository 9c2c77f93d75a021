"""Several nodes, one attempt."""

import signal

import pytest

from broker.agent.supervise import CLAIM_LOST, INTERRUPTED
from broker.core.events.agent_events import Restored
from broker.core.events.outcomes import Cause
from tests.agent.node import SAVE, Node, eventually

pytestmark = pytest.mark.system  # each starts real agents

RANK = "$SKYPILOT_NODE_RANK"


def test_a_checkpoint_exists_when_every_rank_has_saved_its_part(node: Node) -> None:
    """Rank 1 is late with its shard of step 2."""
    script = f"{SAVE} mkdir .a; echo shard{RANK} > .a/shard-{RANK}; mv .a step_1; echo up; "
    script += (
        f"[ {RANK} = 0 ] || while [ ! -e ../go ]; do sleep 0.02; done; mkdir .b; echo x > .b/shard-{RANK}; mv .b step_2"
    )
    node.spec(script, nodes=2)
    agents = [node.start(rank=rank, gang="g") for rank in (0, 1)]
    eventually(lambda: node.saved() == [1], "both have saved step 1")
    eventually(lambda: list((node.job / "checkpoints").glob("*step_2/part-0.json")), "rank 0 has saved step 2")
    assert [one.step for one in node.runs.checkpoints()] == [1]
    (node.scratch(1) / "go").touch()
    assert [agent.wait(240) for agent in agents] == [0, 0]
    assert node.saved() == [1, 2]
    assert node.ending().cause is Cause.COMPLETED
    whole = node.runs.checkpoints()[0]
    assert {(file.rank, file.path) for file in whole.files} == {(0, "step_1/shard-0"), (1, "step_1/shard-1")}

    node.spec("cd $GPUBROKER_CHECKPOINT_DIR; ls step_2", attempt=2, nodes=2)
    for agent in [node.start(attempt=2, rank=rank) for rank in (0, 1)]:
        assert agent.wait(240) == 0
    for rank in (0, 1):
        assert node.output(2, rank) == ["shard-0", "shard-1"], "as if they had saved into one shared folder"


def test_where_only_the_first_rank_saves_the_others_say_so(node: Node) -> None:
    script = f"{SAVE} [ {RANK} = 1 ] || save step_1; echo up; while [ ! -e ../go ]; do sleep 0.02; done"
    node.spec(script, nodes=2)
    agents = [node.start(rank=rank) for rank in (0, 1)]
    eventually(lambda: node.saved() == [1], "rank 1 has nothing to wait for")
    for number in (0, 1):
        (node.scratch(number) / "go").touch()
    assert [agent.wait(240) for agent in agents] == [0, 0]
    node.spec("cat $GPUBROKER_CHECKPOINT_DIR/*", attempt=2, nodes=2)
    for agent in [node.start(attempt=2, rank=rank) for rank in (0, 1)]:
        assert agent.wait(240) == 0
    assert node.output(2, 1) == ["step_1"], "every rank finds it"


def test_one_rank_failing_fails_the_attempt(node: Node) -> None:
    node.spec(f"[ {RANK} = 0 ] && exec sleep 300; echo broken; exit 5", nodes=2)
    agents = [node.start(rank=rank) for rank in (0, 1)]
    assert agents[1].wait(240) == 5
    agents[0].wait(240)
    assert (node.ending().cause, node.ending().exit_status) == (Cause.EXIT_STATUS, 5)
    assert node.ending().evidence == "rank 1: exit status 5; broken"


@pytest.mark.parametrize(
    ("command", "envs"),
    [
        ("train --master_port=1", {}),
        ("train --rdzv_endpoint $HEAD:1", {}),
        ("train", {"MASTER_PORT": "1"}),
        ("torchrun() { train; }; torchrun train.py", {}),
    ],
)
def test_ranks_that_do_not_meet_say_which_node_and_port_was_tried(
    node: Node, command: str, envs: dict[str, str]
) -> None:
    script = f"train() {{ [ {RANK} = 0 ] && exec sleep 300; echo cannot meet; exit 5; }}; {command}"
    node.spec(script, nodes=2, envs=envs)
    agents = [node.start(rank=rank) for rank in (0, 1)]
    for agent in agents:
        agent.wait(240)
    evidence = node.ending().evidence
    assert evidence.startswith("rank 1: exit status 5; cannot meet; from rank 1 on ")
    assert "to rank 0 on " in evidence
    assert evidence.endswith(f"), port {29500 if 'torchrun' in command else 1}: Connection refused")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[c10d] The client socket has failed to connect to [$HEAD]:32 (errno: 111 - Connection refused).", "port 32"),
        ("The client socket has timed out after 60000ms while trying to connect to ($HEAD, 32).", "port 32"),
        ("NCCL WARN socketStartConnect: Connect to $HEAD<32> failed : Connection refused", "port 32"),
        ("last error: UNKNOWN: ipv4:$HEAD:32: Failed to connect to remote host: Connection refused", "port 32"),
        ("OSError: [Errno 111] Connect call failed ('$HEAD', 32)", "port 32"),
        ("    socket.create_connection((head, 32), timeout=5)\nConnectionRefusedError: [Errno 111]", "port 32"),
        ("connect() timed out. Original timeout was 1000 ms. (127.0.0.1, 32)", "port 32, which is itself"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "name it as MASTER_PORT"),
        ("ValueError: 3, port=32", ""),
    ],
)
def test_a_refused_rank_says_which_node_and_port_its_program_tried(node: Node, line: str, expected: str) -> None:
    head = 'HEAD=$(echo "$SKYPILOT_NODE_IPS" | head -1)'
    node.spec(f"{head}; [ {RANK} = 0 ] && exec sleep 300; cat <<END\n{line}\nEND\nexit 5", nodes=2)
    for agent in [node.start(rank=rank) for rank in (0, 1)]:
        agent.wait(240)
    evidence = node.ending().evidence
    assert expected in evidence if expected else "rank 0" not in evidence
    if expected.endswith("2"):
        assert "from rank 1 on " in evidence
        assert "to rank 0 on " in evidence
        assert evidence.endswith("Connection refused")


def test_one_rank_taken_away_interrupts_all_and_all_save(node: Node) -> None:
    script = f"{SAVE} trap 'save step_9; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    node.spec(script, nodes=2)
    agents = [node.start(rank=rank) for rank in (0, 1)]
    for rank in (0, 1):
        node.until_said("up", rank=rank)
    agents[1].send_signal(signal.SIGTERM)
    assert [agent.wait(240) for agent in agents] == [INTERRUPTED, INTERRUPTED]
    assert node.ending().cause is Cause.PREEMPTED
    assert node.saved() == [9]


def test_the_ranks_of_two_gangs_do_not_mix(node: Node) -> None:
    node.spec("echo up; sleep 0.3", nodes=2)
    first = node.start(rank=0, gang="one")
    eventually(lambda: node.runs.read_attempt(1).claims, "the first gang claims")
    assert node.start(rank=1, gang="two").wait(240) == CLAIM_LOST
    assert node.start(rank=1, gang="one").wait(240) == 0
    assert first.wait(240) == 0


def test_a_gang_that_is_not_complete_in_time(node: Node) -> None:
    node.spec("echo ran", nodes=2, intervals={"patience": 0.5})
    assert node.start(rank=0).wait(240) != 0
    assert node.ending().cause is Cause.MACHINE_LOST
    waited = "no agent of rank 1 claimed the attempt within 0.5 s; there is rank 0 on"
    assert node.ending().evidence.startswith(f"only 1 of 2 nodes came up: {waited}")
    assert node.output() == []


def test_addresses_are_the_same_everywhere(node: Node) -> None:
    node.spec("echo $SKYPILOT_NODE_IPS", nodes=2)
    for agent in [node.start(rank=one) for one in (0, 1)]:
        assert agent.wait(240) == 0
    assert node.output(1, 1) == node.output(1, 0) != [""]
    assert isinstance(node.events()[1], Restored)
