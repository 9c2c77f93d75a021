"""A command under watch: what its end means, by what came when."""

import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from broker.agent.clock import NodeClock
from broker.agent.command import Exited, GroupEmpty
from broker.agent.endings import StopOrder
from broker.agent.formats import Lease, Spec
from broker.agent.journal import AttemptJournal
from broker.agent.stops import CommandMessage, Inbox, Stops
from broker.agent.supervised_command import SupervisedCommand


class QuietMailbox:
    """A mailbox whose lease goes on."""

    lease = Lease()

    def refresh_lease(self, timeout: float) -> Lease:
        return self.lease

    def over(self) -> None:
        return None


def watched(*messages: Any, grace: float = 2.0) -> SupervisedCommand:
    """A command of which all that comes has already come."""
    inbox, spec = Inbox(), Spec("j", 1, "j-1", "true", grace=grace)
    for message in messages:
        inbox.put(message)
    mailbox: Any = QuietMailbox()
    store: Any = None
    command: Any = SimpleNamespace(pid=None, terminate=lambda: None)
    return SupervisedCommand(
        command,
        1,
        spec,
        NodeClock(),
        Stops(inbox, spec, mailbox, AttemptJournal(store, None, NodeClock())),
        upload=lambda: 0.0,
        on_session=lambda pid: None,
        on_exit=lambda: None,
        on_stop=lambda: None,
    )


@pytest.mark.parametrize("status", [0, 3])
def test_a_signal_right_after_the_end_is_the_reason_for_it(status: int) -> None:
    told = StopOrder("preempted", "SIGTERM")
    ended = watched(CommandMessage(1, Exited(status)), told, CommandMessage(1, GroupEmpty())).run_to_end()
    assert (ended.status, ended.stop, ended.clean) == (status, told, status == 0)


@pytest.mark.parametrize("status", [0, 3])
def test_who_ends_and_hears_nothing_ended_by_itself(status: int) -> None:
    ended = watched(CommandMessage(1, Exited(status)), CommandMessage(1, GroupEmpty())).run_to_end()
    assert (ended.status, ended.stop, ended.clean) == (status, None, status == 0)


def test_half_of_the_notice_is_left_for_uploading(monkeypatch: pytest.MonkeyPatch) -> None:
    order = StopOrder("preempted", "a notice", NodeClock().now() + timedelta(seconds=1000))
    command = watched(order, CommandMessage(1, Exited(0)), CommandMessage(1, GroupEmpty()), grace=3600.0)
    next_message, left = command.stops.next, list[float]()

    def noted(deadline: float) -> Any:
        left.append(deadline - time.monotonic())
        return next_message(deadline)

    monkeypatch.setattr(command.stops, "next", noted)
    assert command.run_to_end().stop == order
    assert all(250 < one <= 500 for one in left[1:]), left
