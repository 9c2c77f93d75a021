"""What the installed SkyPilot reads in task files: `read_with_skypilot` in a process and a home of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

READER = Path(__file__).parent / "read_with_skypilot.py"


def read_there(cases: Sequence[tuple[str, dict[str, str]]], home: Path) -> list[dict[str, Any]]:
    """An answer for each text with its variables. ``home``: SkyPilot's, with its catalogue; relative paths of the texts
    are within it. Raises `RuntimeError` with what SkyPilot wrote if it cannot run."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    done = subprocess.run(
        [sys.executable, str(READER)],
        input=json.dumps(cases), capture_output=True, text=True, cwd=home, env=environment, check=False, timeout=300,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    answers: list[dict[str, Any]] = json.loads(done.stdout[done.stdout.index("[{") :])
    return answers
