"""Divides the time between a preemption notice and the machine's end, and warns if the upload of a checkpoint does not
fit.

The command saves first, then the checkpoint is uploaded. The duration of the last upload predicts that of the next one.
If it exceeds the notice, a warning is given in advance: after an interruption, the job would resume from the previous
checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.agent.journal import AttemptJournal
from broker.agent.notices import PolledSource

# The command's minimum share of the time from notice to end.
_COMMANDS_SHARE = 0.2
# A margin, because the duration of uploads varies.
_SAFETY = 1.25


def for_the_command(left: float, upload: float) -> float:
    """Seconds for the command to save and exit: half of the seconds ``left``, less if the upload is expected to take
    longer than the other half, but at least a fifth. An upload that cannot fit in any case does not reduce it.
    """
    if upload >= left * (1 - _COMMANDS_SHARE):
        return left / 2
    return max(left * _COMMANDS_SHARE, min(left / 2, left - _SAFETY * upload))


class NoticeTime:
    """Compares the shortest notice of this machine's sources with uploads.

    ``upload``: seconds of the last one; 0 before the first.
    """

    def __init__(self, sources: Iterable[PolledSource], journal: AttemptJournal) -> None:
        promised = [source for source in sources if source.gives is not None]
        self._source = min(promised, key=lambda source: source.gives or 0.0, default=None)
        self._journal = journal
        self._said = False
        self.upload = 0.0

    def uploaded(self, checkpoint: str, size: int, seconds: float) -> None:
        """Record an upload's bytes and wall-clock seconds. Warn once if it does not fit, again after a change."""
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
