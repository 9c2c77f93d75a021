"""A command of the job, from its start to its end, or until the attempt must stop."""

from __future__ import annotations

import logging
import os
import signal
import time
from dataclasses import dataclass, field, replace
from typing import Any, Callable

from broker.agent.clock import NodeClock
from broker.agent.command import CannotStart, Command, Exited, GroupEmpty, GuardGone, OrphanExited
from broker.agent.endings import CommandEnd, StopOrder
from broker.agent.entry import NewerAttempt
from broker.agent.formats import Spec
from broker.agent.notices import command_seconds
from broker.agent.stops import CommandMessage, Fenced, Stops

log = logging.getLogger("gpubroker-agent")

# A machine's shutdown signals all processes at once, so the command may end before the agent gets its signal. For this
# many seconds a late signal still counts as the reason. Slurm signals one by one.
_LATE_SIGNAL = 1.0 if "SLURM_JOB_ID" in os.environ else 0.1


def _late_signal_wait(status: int) -> float:
    """Seconds to wait for a signal to the agent: a shell dies of SIGTERM at once, but its program, which also gets the
    signal, may still be saving.
    """
    return max(_LATE_SIGNAL, 1.0) if status == -signal.SIGTERM else _LATE_SIGNAL


@dataclass
class _CommandExit:
    """How the command ended. ``left``: the exit statuses of processes that it left running at a stop."""

    status: int | None = None
    left: list[int] = field(default_factory=list)
    empty: bool = False

    def take(self, message: Exited | OrphanExited | GroupEmpty, *, stopping: bool) -> None:
        if isinstance(message, Exited):
            self.status = message.status
        elif isinstance(message, GroupEmpty):
            self.empty = True
        elif stopping:
            self.left.append(message.status)

    def final_status(self) -> int | None:
        """The exit status at a stop. If the shell died of the signal, that of its programs: the first failure, or 0."""
        return next(filter(None, self.left), 0) if self.left and self.status == -signal.SIGTERM else self.status


@dataclass(frozen=True)
class SupervisedCommand:
    """One command under supervision.

    ``number``: its number in the attempt; messages of other commands are ignored. ``upload``: expected seconds to
    upload a checkpoint. ``on_session``: called with its process id once it runs; ``on_exit``: called when it has ended
    for a reason that is not known yet; ``on_stop``: called at a stop.
    """

    command: Command
    number: int
    spec: Spec
    clock: NodeClock
    stops: Stops
    upload: Callable[[], float]
    on_session: Callable[[int], None]
    on_exit: Callable[[], None]
    on_stop: Callable[[], None]

    def run_to_end(self) -> CommandEnd:
        """Wait for the end of the command. Raises NewerAttempt. The command may still run: the caller kills it."""
        stop: StopOrder | None = None
        deadline = float("inf")
        outcome, session = _CommandExit(), None
        while True:
            message = self._next(deadline)
            if isinstance(message, (CannotStart, GuardGone)):
                return self._end_from_guard(message, outcome.status, stop)
            if isinstance(message, (Exited, OrphanExited, GroupEmpty)):
                outcome.take(message, stopping=stop is not None)
                if isinstance(message, Exited) and stop is None:
                    deadline = time.monotonic() + _late_signal_wait(message.status)
                    self.on_exit()
            elif self.command.pid is not None and session != self.command.pid:
                session = self.command.pid
                self.on_session(session)
            order = self._stop_in(message, outcome.status, stop)
            if order is not None and stop is None:
                log.warning("stopping: %s (%s)", order.cause, order.evidence)
                stop, deadline = order, time.monotonic() + self.spec.grace
                self.on_stop()
                self.command.terminate()
            if order is not None and order.terminates_at is not None:
                left = max(0.0, self.clock.wall_seconds_until(order.terminates_at))
                deadline = min(deadline, time.monotonic() + command_seconds(left, self.upload()))
                stop = replace(stop or order, terminates_at=order.terminates_at)
            if outcome.empty and stop is not None:
                return CommandEnd(outcome.final_status(), stop, clean=outcome.final_status() == 0)
            if time.monotonic() >= deadline:
                if stop is not None:
                    log.warning("the command did not stop in time")
                return CommandEnd(outcome.status, stop, clean=stop is None and outcome.status == 0)

    def _next(self, deadline: float) -> Any:
        """The next message that concerns this command. Raises NewerAttempt."""
        message = self.stops.next(deadline)
        if isinstance(message, Fenced):
            raise NewerAttempt
        if isinstance(message, CommandMessage):
            return message.what if message.command == self.number else None
        return message

    def _end_from_guard(
        self, message: CannotStart | GuardGone, status: int | None, stop: StopOrder | None
    ) -> CommandEnd:
        if isinstance(message, CannotStart):
            return CommandEnd(None, could_not_start=message.because)
        return CommandEnd(status if status is not None else -signal.SIGKILL, stop)

    def _stop_in(self, message: Any, status: int | None, stop: StopOrder | None) -> StopOrder | None:
        """The stop that follows from the message. Once the command has ended, only a late order gives the reason."""
        order = self.stops.stop_from(message, already=stop)
        return None if status is not None and stop is None and not isinstance(message, StopOrder) else order
