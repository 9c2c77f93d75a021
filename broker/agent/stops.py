"""Messages to a running attempt, and which of them end it.

All messages arrive in one inbox: signals, notices, newer attempts, ends of other ranks, and reports of the command.
Lease and idleness send no message; they are checked at every wait.
"""

from __future__ import annotations

import contextlib
import queue
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Callable

from broker.agent.clock import to_text
from broker.agent.download import GaveUp
from broker.agent.endings import StopOrder
from broker.agent.entry import NewerAttempt, retry_while_unreachable
from broker.agent.formats import Exit, Spec
from broker.agent.journal import AttemptJournal
from broker.agent.mailbox import NodeMailbox


@dataclass(frozen=True)
class Fenced:
    """A newer attempt exists."""


@dataclass(frozen=True)
class CommandMessage:
    """A message of a command, with its number: the setup's last messages may arrive after the job's command started."""

    command: int
    what: Any


@dataclass(frozen=True)
class PeerEnded:
    """The end of another rank."""

    rank: int
    ending: Exit


class Inbox:
    """Messages in the order of arrival. Any thread and any signal handler may add one."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.put = self._queue.put
        self.empty = self._queue.empty

    def take(self, seconds: float) -> Any:
        """The next message; None after ``seconds``."""
        with contextlib.suppress(queue.Empty):
            return self._queue.get(timeout=max(0.005, seconds))
        return None

    def wait_for_message(self, seconds: float) -> bool:
        """Whether a message arrives within ``seconds``; it stays in the inbox."""
        with contextlib.suppress(queue.Empty):
            self._queue.put(self._queue.get(timeout=seconds))
            return True
        return False


class Stops:
    """Reads the inbox of one attempt. ``peers``: the other ranks that have ended, with their ends."""

    def __init__(self, inbox: Inbox, spec: Spec, mailbox: NodeMailbox, journal: AttemptJournal) -> None:
        self._inbox, self._spec = inbox, spec
        self._mailbox, self._journal = mailbox, journal
        self.peers: dict[int, Exit] = {}

    def next(self, deadline: float) -> Any:
        """The next message; None if it is time to check the lease or the deadline (monotonic)."""
        wait = min(1.0, self._spec.intervals.mail, deadline - time.monotonic())
        paid_until = self._mailbox.lease.paid_until
        if paid_until is not None:
            wait = min(wait, self._mailbox.seconds_until(paid_until))
        return self._inbox.take(wait)

    def stop_from(self, message: Any, *, already: StopOrder | None = None) -> StopOrder | None:
        """The stop that follows from the message, the lease or idleness; ``already``: a stop that was ordered
        before.
        """
        if isinstance(message, PeerEnded):
            self.peers[message.rank] = message.ending
            if message.ending.cause != "completed":
                ending = message.ending
                return StopOrder(
                    ending.cause, f"rank {message.rank}: {ending.evidence}", exit_status=ending.exit_status
                )
        if isinstance(message, StopOrder):
            if message.by_signal and already is None:
                self._mailbox.refresh_lease(2.0)
                over = self._mailbox.over()
                if over is not None:
                    return StopOrder(*over)
                self.tell_notice(message.evidence, None)
            return message
        return self.due() if already is None else None

    def due(self) -> StopOrder | None:
        """The stop if the lease has ended, or the accelerators have been idle for too long."""
        over = self._mailbox.over()
        return None if over is None else StopOrder(*over)

    def must_end(self) -> bool:
        """Whether a message arrived or the lease has ended; checked during long steps before the command starts."""
        return not self._inbox.empty() or self.due() is not None

    def tell_notice(self, source: str, at: datetime | None) -> None:
        """Record a preemption notice in the journal."""
        self._journal.append("notice_received", source=source, terminates_at=to_text(at) if at else None)

    def retry_until_stopped(self, fetch: Callable[[], None]) -> StopOrder | None:
        """Fetch something, retrying while the store is unreachable; returns the stop if one was ordered meanwhile.

        Raises NewerAttempt, StoreTrouble after the spec's patience, and what ``fetch`` raises.
        """
        while True:
            try:
                retry_while_unreachable(
                    fetch,
                    self._spec.intervals.patience,
                    lambda wait: self._inbox.wait_for_message(wait) or self.must_end(),
                )
                return None
            except GaveUp:
                message = self.next(float("inf"))
                if isinstance(message, Fenced):
                    raise NewerAttempt from None
                stop = self.stop_from(message)
                if stop is not None:
                    return stop
