"""A command of the job, from its start to its end, or until the attempt must stop."""

from __future__ import annotations

import logging
import os
import signal
import time
from dataclasses import dataclass, field, replace
from typing import Any, Callable

from broker.agent.clock import NodeClock
from broker.agent.command import CannotStart, Command, Exited, GroupEmpty, GuardGone, LeftEnded
from broker.agent.endings import CommandEnd, StopOrder
from broker.agent.entry import NewerAttempt
from broker.agent.formats import Spec
from broker.agent.notices import for_the_command
from broker.agent.stops import CommandMessage, Fenced, Stops

log = logging.getLogger("gpubroker-agent")

# A machine's shutdown signals all processes at once, so the command may end before the agent gets its signal. For this
# many seconds a late signal still counts as the reason. Slurm signals one by one.
_BESIDE = 1.0 if "SLURM_JOB_ID" in os.environ else 0.1


def _beside(status: int) -> float:
    """Seconds to wait for a signal to the agent: a shell dies of SIGTERM at once, but its program, which also gets the
    signal, may still be saving.
    """
    return max(_BESIDE, 1.0) if status == -signal.SIGTERM else _BESIDE


@dataclass
class _Heard:
    """How the command ended. ``left``: the exit statuses of processes that it left running at a stop."""

    status: int | None = None
    left: list[int] = field(default_factory=list)
    empty: bool = False

    def take(self, message: Exited | LeftEnded | GroupEmpty, *, stopping: bool) -> None:
        if isinstance(message, Exited):
            self.status = message.status
        elif isinstance(message, GroupEmpty):
            self.empty = True
        elif stopping:
            self.left.append(message.status)

    def in_all(self) -> int | None:
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

    def to_its_end(self) -> CommandEnd:
        """Wait for the end of the command. Raises NewerAttempt. The command may still run: the caller kills it."""
        stop: StopOrder | None = None
        deadline = float("inf")
        heard, session = _Heard(), None
        while True:
            message = self._next(deadline)
            if isinstance(message, (CannotStart, GuardGone)):
                return self._ended_by_guard(message, heard.status, stop)
            if isinstance(message, (Exited, LeftEnded, GroupEmpty)):
                heard.take(message, stopping=stop is not None)
                if isinstance(message, Exited) and stop is None:
                    deadline = time.monotonic() + _beside(message.status)
                    self.on_exit()
            elif self.command.pid is not None and session != self.command.pid:
                session = self.command.pid
                self.on_session(session)
            asked = self._stop_in(message, heard.status, stop)
            if asked is not None and stop is None:
                log.warning("stopping: %s (%s)", asked.cause, asked.evidence)
                stop, deadline = asked, time.monotonic() + self.spec.grace
                self.on_stop()
                self.command.terminate()
            if asked is not None and asked.terminates_at is not None:
                left = max(0.0, self.clock.wall_seconds_until(asked.terminates_at))
                deadline = min(deadline, time.monotonic() + for_the_command(left, self.upload()))
                stop = replace(stop or asked, terminates_at=asked.terminates_at)
            if heard.empty and stop is not None:
                return CommandEnd(heard.in_all(), stop, clean=heard.in_all() == 0)
            if time.monotonic() >= deadline:
                if stop is not None:
                    log.warning("the command did not stop in time")
                return CommandEnd(heard.status, stop, clean=stop is None and heard.status == 0)

    def _next(self, deadline: float) -> Any:
        """The next message that concerns this command. Raises NewerAttempt."""
        message = self.stops.next(deadline)
        if isinstance(message, Fenced):
            raise NewerAttempt
        if isinstance(message, CommandMessage):
            return message.what if message.command == self.number else None
        return message

    def _ended_by_guard(
        self, message: CannotStart | GuardGone, status: int | None, stop: StopOrder | None
    ) -> CommandEnd:
        if isinstance(message, CannotStart):
            return CommandEnd(None, could_not_start=message.because)
        return CommandEnd(status if status is not None else -signal.SIGKILL, stop)

    def _stop_in(self, message: Any, status: int | None, stop: StopOrder | None) -> StopOrder | None:
        """The stop that follows from the message. Once the command has ended, only a late order gives the reason."""
        asked = self.stops.in_message(message, already=stop)
        return None if status is not None and stop is None and not isinstance(message, StopOrder) else asked
