"""Preemption notices. A source is polled; it returns None or a notice."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Callable, Optional

from broker.agent.clock import from_text

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

    def look() -> PreemptionNotice | None:
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

    return look


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


def watch(every: float, asked: list[PolledSource], tell: Callable[[PreemptionNotice], None]) -> None:
    """Poll the sources every ``every`` seconds, in its own thread, until one has a notice that is not a warning."""

    def run() -> None:
        pause = threading.Event()
        while True:
            for source in asked:
                notice = source()
                if notice is not None:
                    tell(notice)
                    if not notice.warning:
                        return
            pause.wait(every)

    if asked:
        threading.Thread(target=run, name="notices", daemon=True).start()
