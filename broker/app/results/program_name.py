"""The program's name in printed commands."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def program() -> str:
    """The program's name in printed commands: ``gpubroker`` if the shell finds it under that name, else its path."""
    started = sys.argv[0]
    if Path(started).name != "gpubroker" or "/" not in started:
        return "gpubroker"
    found = shutil.which("gpubroker")
    same = found is not None and Path(found).resolve() == Path(started).resolve()
    return "gpubroker" if same else shlex.quote(started)
