"""What the lease grants, and that nothing outlives it."""

import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from obstore.store import MemoryStore

from broker.agent.clock import NodeClock
from broker.agent.entry import read_lease
from broker.agent.formats import Lease, attempt_path
from broker.agent.mailbox import HeldLease
from broker.agent.store import ObjectFolder, StoreTrouble
from broker.agent.supervise import FOLDER_OUT_OF_REACH, INTERRUPTED
from broker.core.events.agent_events import NoticeReceived
from broker.core.events.outcomes import Cause
from tests.agent.node import SAVE, SAVES_WHEN_TOLD, SLEEP, Node, eventually

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def now() -> datetime:
    return datetime.now(UTC)


def test_the_broker_stops_it_through_the_lease(node: Node) -> None:
    node.spec(SAVES_WHEN_TOLD)
    agent = node.start()
    node.until_said("up")
    node.runs.write_lease(1, Lease(stop="moved"))
    assert agent.wait(240) == INTERRUPTED
    assert node.ending().cause is Cause.MOVED
    assert node.saved() == [9]
    assert not [body for body in node.events() if isinstance(body, NoticeReceived)], "no notice of a provider's"


def test_sigterm_after_the_broker_asked_is_the_brokers_stop(node: Node) -> None:
    node.spec(SAVES_WHEN_TOLD, intervals={"mail": 600.0, "log": 0.05})
    agent = node.start()
    output = node.scratch() / "output.log"
    eventually(lambda: output.exists() and "up" in output.read_text(), "it runs")
    node.runs.write_lease(1, Lease(stop="cancelled_by_user"))
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(240) == INTERRUPTED
    assert node.ending().cause is Cause.CANCELLED_BY_USER


@pytest.mark.parametrize(("field", "cause"), [("paid_until", Cause.PAID_UNTIL), ("ends_at", Cause.MAX_DURATION)])
def test_it_does_not_outlive_its_money_or_its_time(node: Node, field: str, cause: Cause) -> None:
    """On a clock 100 times as fast as the wall's, and with nobody there to renew anything."""
    clock = NodeClock(now(), datetime(2026, 1, 1, tzinfo=UTC), 100.0)
    node.spec(SAVES_WHEN_TOLD, clock=clock, grace=60.0)
    agent = node.start()
    node.until_said("up")
    until = clock.now() + timedelta(seconds=20)
    changed: dict[str, Any] = {field: until}
    node.runs.write_lease(1, Lease(**changed))
    assert agent.wait(240) == INTERRUPTED
    assert node.ending().cause is cause
    assert until <= node.ending().at < until + timedelta(seconds=18_000), (
        "three times the grace is all that is paid for"
    )
    assert node.saved() == [9]


def test_a_longer_lease_lets_it_run_on() -> None:
    held = HeldLease(Lease(paid_until=LONG_AGO), NodeClock())
    assert held.over() is not None
    held.read(Lease(paid_until=now() + timedelta(hours=1)))
    assert held.over() is None


@pytest.mark.parametrize("torn", [None, b"", b'{"paid_until": "2026-01-0', b"{}", b"[]"])
def test_half_a_lease_is_none(torn: bytes | None) -> None:
    store = ObjectFolder(MemoryStore())
    if torn is not None:
        store.write(attempt_path(1, "lease.json"), torn)
    with pytest.raises(StoreTrouble):
        read_lease(store, 1)


def test_without_a_lease_nothing_begins(node: Node) -> None:
    """Who does not know how long it is paid for does not guess "for ever"."""
    node.spec("echo ran", intervals={"patience": 0.3})
    (node.job / "attempts" / "1" / "lease.json").write_bytes(b"{}")
    assert node.start().wait(240) == FOLDER_OUT_OF_REACH
    assert node.output() == []
    assert node.runs.read_attempt(1).claims == (), "another machine may try"


def test_a_lease_that_comes_late_is_waited_for(node: Node) -> None:
    node.spec("echo ran")
    lease = node.job / "attempts" / "1" / "lease.json"
    lease.write_bytes(b"{")
    agent = node.start()
    eventually(lambda: "the lease cannot be read" in node.said(), "it says what it waits for")
    node.runs.write_lease(1, Lease())
    assert agent.wait(240) == 0
    assert node.output() == ["ran"]


def test_a_lease_torn_later_does_not_undo_the_last_one(node: Node) -> None:
    node.spec(SAVES_WHEN_TOLD)
    agent = node.start()
    node.until_said("up")
    node.runs.write_lease(1, Lease(paid_until=now() + timedelta(seconds=1)))

    def beat() -> object:
        heart = node.runs.read_attempt(1).heartbeat
        return heart and heart.at

    for _ in range(2):  # the lease is read before each
        last = beat()
        eventually(lambda: beat() != last or agent.poll() is not None, "another heartbeat")  # noqa: B023  # called at once
    (node.job / "attempts" / "1" / "lease.json").write_bytes(b'{"paid_until": null')
    assert agent.wait(240) == INTERRUPTED
    assert node.ending().cause is Cause.PAID_UNTIL


def test_uploading_does_not_outlive_its_money_either(node: Node) -> None:
    """The command has ended well and before its time, and the store does not take what it saved."""
    node.spec(SAVE + "save step_1", grace=1.0, intervals={"patience": 3000.0})
    (node.job / "checkpoints").write_text("in the way")
    agent = node.start()

    def saving() -> bool:
        heart = node.runs.read_attempt(1).heartbeat
        return heart is not None and heart.phase == "saving"

    eventually(saving, "it tries to upload")
    node.runs.write_lease(1, Lease(paid_until=now() + timedelta(seconds=0.2)))
    assert agent.wait(240) == 0
    assert node.ending().evidence == "not saved: step_1"


def test_nobody_looking_after_it_for_too_long_whatever_the_brokers_clock_shows(node: Node) -> None:
    node.spec(SLEEP, lease=Lease(max_unattended=0.5, renewed_at=now() + timedelta(days=2)))
    assert node.start().wait(240) == INTERRUPTED
    assert node.ending().cause is Cause.UNATTENDED


def test_whom_the_broker_looks_after_goes_on_though_its_clock_is_hours_behind(node: Node) -> None:
    node.spec("echo up; while [ ! -e go ]; do sleep 0.02; done", lease=Lease(max_unattended=3600, renewed_at=LONG_AGO))
    agent = node.start()
    node.until_said("up")
    (node.scratch() / "work" / "go").touch()
    assert agent.wait(240) == 0
    assert node.ending().cause is Cause.COMPLETED


@pytest.mark.parametrize("scale", [1.0, 3600.0])
def test_silence_counts_from_the_last_renewal_in_the_time_of_the_specs_clock(scale: float) -> None:
    """A simulated market lets its clock run faster."""
    running = [0.0]
    first = Lease(max_unattended=60 * scale, renewed_at=LONG_AGO)
    held = HeldLease(first, NodeClock(now(), LONG_AGO, scale), lambda: running[0])
    second, third = (replace(first, renewed_at=LONG_AGO + timedelta(minutes=n)) for n in (1, 2))
    for at, lease, over in (
        (50, first, False),
        (59, second, False),
        (118, second, False),
        (120, second, True),
        (121, third, False),
    ):
        running[0] = at
        held.read(lease)
        assert (held.over() is not None) is over, at


def test_a_stop_that_was_there_before_it_began(node: Node) -> None:
    node.spec("echo ran", lease=Lease(stop="cancelled_by_user"))
    assert node.start().wait(240) == INTERRUPTED
    assert node.ending().cause is Cause.CANCELLED_BY_USER
    assert node.output() == []


@pytest.mark.parametrize("apart", [timedelta(days=-2), timedelta(days=2)])
def test_it_stops_when_its_money_ends_however_wrong_the_nodes_clock_is(node: Node, apart: timedelta) -> None:
    """Whose clock is wrong, the node's or the broker's, is all the same."""

    def lease(left: timedelta) -> Lease:
        return Lease(paid_until=now() + apart + left, renewed_at=now() + apart)

    node.spec(SAVES_WHEN_TOLD, lease=lease(timedelta(hours=1)))
    agent = node.start()
    node.until_said("up")
    node.runs.write_lease(1, lease(timedelta(seconds=1)))
    assert agent.wait(240) == INTERRUPTED
    assert node.ending().cause is Cause.PAID_UNTIL
    assert node.saved() == [9]
