"""Where a machine learns that it will be taken back. A source is asked again and again; it answers None or a notice."""

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
class Notice:
    """``source``: who says so. ``terminates_at``: when the machine goes, if that was said (UTC, the spec's clock).
    ``warning``: it may go some time; nothing has to end for it."""

    source: str
    terminates_at: datetime | None = None
    warning: bool = False


NoticeSource = Callable[[], Optional[Notice]]


@dataclass(frozen=True)
class Source:
    """Whom to ask. ``gives``: how many seconds there are at least from its notice to the end, None where it promises
    nothing."""

    name: str
    look: NoticeSource
    gives: float | None = None

    def __call__(self) -> Notice | None:
        return self.look()


def from_file(path: Path) -> NoticeSource:
    """A file that whoever runs the machine puts there: ``{"source": …, "terminates_at": …}``. Any content counts."""

    def look() -> Notice | None:
        try:
            text = path.read_text()
        except OSError:
            return None
        try:
            values = json.loads(text)
            at = values.get("terminates_at")
            return Notice(str(values.get("source", "notice file")), from_text(at) if at else None)
        except (ValueError, AttributeError, TypeError):
            return Notice("notice file")

    return look


def from_variable() -> list[Source]:
    """The file that `FILE_VARIABLE` names, if it does; `SECONDS_VARIABLE` says how long before the end it comes."""
    path = os.environ.get(FILE_VARIABLE)
    try:
        gives: float | None = float(os.environ.get(SECONDS_VARIABLE, ""))
    except ValueError:
        gives = None
    return [Source("notice file", from_file(Path(path)), gives)] if path else []


def watch(every: float, asked: list[Source], tell: Callable[[Notice], None]) -> None:
    """Ask the sources every so many seconds, in a thread of its own, until one has a notice that is no warning."""

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
