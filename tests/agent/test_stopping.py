"""Being stopped: by a signal, a notice, or for want of money, always with time to save."""

import json
import os
import signal
from datetime import UTC, datetime, timedelta

import pytest

from broker.agent.clock import to_text
from broker.agent.supervise import INTERRUPTED
from broker.core.events.agent_events import NoticeReceived
from broker.core.events.outcomes import Cause
from tests.agent.node import SAVE, SAVES_WHEN_TOLD, Node, alive, eventually


def now() -> datetime:
    return datetime.now(UTC)


def test_sigterm_is_an_interruption_with_time_to_save(node: Node) -> None:
    node.spec(SAVES_WHEN_TOLD)
    agent = node.start()
    node.until_said("up")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(240) == INTERRUPTED
    assert node.ending().cause is Cause.PREEMPTED
    assert node.ending().evidence == "SIGTERM"
    assert node.saved() == [9]
    assert [body.source for body in node.events() if isinstance(body, NoticeReceived)] == ["SIGTERM"]


@pytest.mark.system
def test_a_shell_waits_for_the_program_that_is_saving(node: Node) -> None:
    program = "trap 'sleep 0.3; save step_9; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    node.spec(f"{SAVE} ( {program} ); echo never")
    agent = node.start()
    node.until_said("up")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(240) == INTERRUPTED
    assert node.saved() == [9]
    assert "never" not in node.output(), "the rest of the script is not run"


def test_a_notice_tells_when_the_machine_goes(node: Node) -> None:
    notice = node.folder / "notice.json"
    node.spec(SAVES_WHEN_TOLD, grace=60.0)
    agent = node.start(env={"GPUBROKER_NOTICE_FILE": str(notice)})
    node.until_said("up")
    at = now() + timedelta(seconds=600)
    notice.write_text(json.dumps({"source": "the cloud", "terminates_at": to_text(at)}))
    assert agent.wait(240) == INTERRUPTED
    told = [body for body in node.events() if isinstance(body, NoticeReceived)]
    assert [(body.source, body.terminates_at) for body in told] == [("the cloud", at)]
    assert node.ending().cause is Cause.PREEMPTED
    assert node.saved() == [9]


def test_who_ignores_sigterm_is_killed_after_the_grace(node: Node) -> None:
    node.spec("trap '' TERM; echo up; while :; do sleep 0.02; done", grace=0.3)
    agent = node.start()
    node.until_said("up")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(240) == INTERRUPTED
    assert node.ending().cause is Cause.PREEMPTED


@pytest.mark.system
def test_sigterm_while_setting_up(node: Node) -> None:
    node.spec("echo ran", setup="echo up; exec sleep 300")
    agent = node.start()
    node.until_said("up")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(240) == INTERRUPTED
    assert node.ending().cause is Cause.PREEMPTED
    assert node.output() == ["up"]


@pytest.mark.parametrize("status", [0, 3])
def test_a_command_that_was_told_before_the_agent_was_is_interrupted_too(node: Node, status: int) -> None:
    """As on a machine that is shut down: everybody is told at once, and the command may be the quicker one."""
    node.spec(f"{SAVE} trap 'save step_9; exit {status}' TERM; echo $$; while :; do sleep 0.02; done")
    agent = node.start()
    command = int(eventually(lambda: node.output(), "it runs")[0])
    agent.send_signal(signal.SIGSTOP)  # how quick this test is must not matter
    os.kill(command, signal.SIGTERM)
    eventually(lambda: not alive(command), "it has ended")
    agent.send_signal(signal.SIGTERM)
    agent.send_signal(signal.SIGCONT)
    assert agent.wait(240) == INTERRUPTED
    assert node.ending().cause is Cause.PREEMPTED
    assert node.saved() == [9]


@pytest.mark.system
def test_what_a_program_says_at_a_stop_counts_though_its_shell_died_of_the_signal(node: Node) -> None:
    """What it wrote in place, without rest or rename, is whole: it ended well."""
    program = "import os, signal, sys, time; from pathlib import Path;"
    program += ' at = Path(os.environ["GPUBROKER_CHECKPOINT_DIR"]);'
    program += ' signal.signal(15, lambda *_: (at.joinpath("step_9").write_text("9"), sys.exit(0)));'
    node.spec(f"python3 -c '{program} print(\"up\", flush=True); time.sleep(300)'\necho never")
    agent = node.start()
    node.until_said("up")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(240) == INTERRUPTED
    assert node.saved() == [9]
    assert (node.ending().exit_status, node.output()) == (0, ["up"])
