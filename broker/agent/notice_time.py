"""How the time between a notice and the end of the machine is shared, and whether a checkpoint fits into it.

The command saves first, then what it saved is uploaded. How long uploading takes is known from the last time. Where it
is more than there will be, that is told while there is still time to do something about it: an interruption then falls
back to the checkpoint before.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.agent.journal import Journal
from broker.agent.notices import Source

# Of the time from a notice to the end of the machine, what the command gets in any case.
_COMMANDS_SHARE = 0.2
# Uploads are not equally quick each time.
_SAFETY = 1.25


def for_the_command(left: float, upload: float) -> float:
    """How many of the seconds that are left to the machine are the command's, to save and go: half of them, or less
    where uploading is expected to take longer, but a fifth in any case. An upload that fits nowhere changes nothing."""
    if upload >= left * (1 - _COMMANDS_SHARE):
        return left / 2
    return max(left * _COMMANDS_SHARE, min(left / 2, left - _SAFETY * upload))


class NoticeTime:
    """The shortest notice that this machine's sources promise, against the uploads as they go. ``upload``: what the
    last one took, in seconds; 0 before the first."""

    def __init__(self, sources: Iterable[Source], journal: Journal) -> None:
        promised = [source for source in sources if source.gives is not None]
        self._source = min(promised, key=lambda source: source.gives or 0.0, default=None)
        self._journal = journal
        self._said = False
        self.upload = 0.0

    def uploaded(self, checkpoint: str, size: int, seconds: float) -> None:
        """A checkpoint of so many bytes took so many seconds of the wall clock. Said once when it would not fit, and
        again when that changed meanwhile."""
        self.upload = seconds
        if self._source is None or self._source.gives is None:
            return
        too_long = seconds > self._source.gives * (1 - _COMMANDS_SHARE)
        if too_long and not self._said:
            self._journal.append(
                "notice_too_short",
                source=self._source.name,
                notice_seconds=self._source.gives,
                checkpoint=checkpoint,
                size=size,
                seconds=round(seconds, 3),
            )
        self._said = too_long
