"""How faults reach the processes that they strike: files in a folder, and a line for each time one really struck.

Standard library only: the agents read it, too.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

VARIABLE = "CHAOS_CONTROL"


class Control:
    """``folder``: where the files are; every process of a run knows it by the variable `VARIABLE`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "struck"

    @classmethod
    def from_environment(cls) -> Control | None:
        folder = os.environ.get(VARIABLE)
        return cls(Path(folder)) if folder else None

    def begin(self, kind: str, lasts: float, **more: Any) -> None:
        """From now on for so many seconds of the wall clock."""
        draft = self._folder / f".{kind}"
        draft.write_text(json.dumps({"until": time.time() + lasts, **more}))
        draft.replace(self._folder / kind)

    def now(self, kind: str) -> dict[str, Any] | None:
        """What was said when it began; None when it is not on."""
        try:
            told = json.loads((self._folder / kind).read_text())
        except (OSError, ValueError):
            return None
        return dict(told) if time.time() < told["until"] else None

    def end_all(self) -> None:
        """From now on nothing is wrong any more."""
        for file in self._folder.iterdir():
            if file.name != self._log.name:
                file.unlink(missing_ok=True)

    def struck(self, kind: str) -> None:
        """It did something to somebody."""
        with self._log.open("a") as log:
            log.write(f"{kind}\n")

    def counts(self) -> Counter[str]:
        """How often each kind struck."""
        return Counter(self._log.read_text().split()) if self._log.exists() else Counter()
