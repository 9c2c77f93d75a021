"""Preemption notices. A source is polled; it returns None or a notice.

The time between a notice and the machine's end is divided: the command saves first, then the checkpoint is uploaded.
The duration of the last upload predicts that of the next one. If it exceeds the notice, a warning is given in advance:
after an interruption, the job would resume from the previous checkpoint.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Callable, Optional

from broker.agent.clock import from_text
from broker.agent.journal import AttemptJournal

FILE_VARIABLE = "GPUBROKER_NOTICE_FILE"
SECONDS_VARIABLE = "GPUBROKER_NOTICE_SECONDS"


@dataclass(frozen=True)
class PreemptionNotice:
    """``source``: where the notice comes from.

    ``terminates_at``: when the machine ends, if known (UTC, the spec's clock). ``warning``: the machine may end at some
    time; nothing has to stop.
    """

    source: str
    terminates_at: datetime | None = None
    warning: bool = False


NoticeSource = Callable[[], Optional[PreemptionNotice]]


@dataclass(frozen=True)
class PolledSource:
    """A source to poll. ``gives``: minimum seconds from notice to end, None if unknown."""

    name: str
    look: NoticeSource
    gives: float | None = None

    def __call__(self) -> PreemptionNotice | None:
        return self.look()


def from_file(path: Path) -> NoticeSource:
    """A source that reads a file written by the machine's operator: ``{"source": …, "terminates_at": …}``.

    Any content counts as a notice.
    """

    def read_notice() -> PreemptionNotice | None:
        try:
            text = path.read_text()
        except OSError:
            return None
        try:
            values = json.loads(text)
            at = values.get("terminates_at")
            return PreemptionNotice(str(values.get("source", "notice file")), from_text(at) if at else None)
        except (ValueError, AttributeError, TypeError):
            return PreemptionNotice("notice file")

    return read_notice


def from_variable() -> list[PolledSource]:
    """The source that reads the file named by `FILE_VARIABLE`, if set; `SECONDS_VARIABLE`: its minimum seconds from
    notice to end.
    """
    path = os.environ.get(FILE_VARIABLE)
    try:
        gives: float | None = float(os.environ.get(SECONDS_VARIABLE, ""))
    except ValueError:
        gives = None
    return [PolledSource("notice file", from_file(Path(path)), gives)] if path else []


def watch(interval: float, sources: list[PolledSource], tell: Callable[[PreemptionNotice], None]) -> None:
    """Poll the sources every ``interval`` seconds, in its own thread, until one has a notice that is not a warning."""

    def run() -> None:
        pause = threading.Event()
        while True:
            for source in sources:
                notice = source()
                if notice is not None:
                    tell(notice)
                    if not notice.warning:
                        return
            pause.wait(interval)

    if sources:
        threading.Thread(target=run, name="notices", daemon=True).start()


# The command's minimum share of the time from notice to end.
_COMMANDS_SHARE = 0.2
# A margin, because the duration of uploads varies.
_SAFETY = 1.25


def command_seconds(left: float, upload: float) -> float:
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
        timed_sources = [source for source in sources if source.gives is not None]
        self._source = min(timed_sources, key=lambda source: source.gives or 0.0, default=None)
        self._journal = journal
        self._said = False
        self.upload = 0.0

    def record_upload(self, checkpoint: str, size: int, seconds: float) -> None:
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
