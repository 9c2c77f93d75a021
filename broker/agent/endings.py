"""Maps exit statuses and stops to the cause in ``exit.json``."""

from __future__ import annotations

import errno
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class StopOrder:
    """The attempt must end, checkpoint first.

    ``terminates_at``: when the machine ends (UTC). ``by_signal``: the agent got a signal; the lease may contain its
    reason.
    """

    cause: str
    evidence: str
    terminates_at: datetime | None = None
    exit_status: int | None = None
    by_signal: bool = False


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended: its exit status, the stop if any, and whether it succeeded by itself.

    ``during``: "setup" if the job's own command did not start.
    """

    status: int | None
    stop: StopOrder | None = None
    could_not_start: str = ""
    clean: bool = False
    during: str = ""

    def cause(self, said: Sequence[str], unsaved: Sequence[str]) -> tuple[str, int | None, str]:
        """Cause (one of `broker.core.events.outcomes.Cause`), exit status and evidence. ``said``: the command's last
        lines; ``unsaved``: checkpoints that could not be made durable.
        """
        status = shell_status(self.status)
        if self.could_not_start:
            cause, evidence = "cannot_start", [self.could_not_start]
        elif self.stop is not None:
            cause, evidence = self.stop.cause, [self.stop.evidence]
            status = status if self.stop.exit_status is None else self.stop.exit_status
        elif status == 0:
            cause, evidence = "completed", []
        elif status is not None and 128 < status <= 128 + 64:
            cause, evidence = "killed_by_signal", [f"killed by {_signal_name(status - 128)}", *said]
        else:
            cause, evidence = "exit_status", [f"exit status {status}", *said]
        if self.during:
            evidence[0] = f"{self.during}: {evidence[0]}"
        if unsaved:
            evidence.append(f"not saved: {', '.join(unsaved)}")
        return cause, status, "; ".join(evidence)


def disk_failure(what: str, error: OSError) -> CommandEnd:
    """The end of an attempt that could not write to this machine's disk: for good, unless the disk is only full."""
    place = f" ({error.filename})" if error.filename else ""
    evidence = f"{what}: {error.strerror or error}{place}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CommandEnd(None, StopOrder("machine_lost", evidence))
    return CommandEnd(None, could_not_start=evidence)


def shell_status(status: int | None) -> int | None:
    """The shell's exit status: 128 + N for signal N."""
    return None if status is None else status if status >= 0 else 128 - status


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
