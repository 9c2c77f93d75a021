"""The Git commit of a folder, read with the program `git`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from broker.core.job.snapshots import GitState

_PATIENCE = 10.0  # seconds; a repository that takes longer, for example on a slow disk, is skipped


def git_state(folder: Path) -> GitState | None:
    """None if the folder is in no repository, or if `git` is missing, slow or fails. Writes nothing."""
    if _git(folder, "rev-parse", "--is-inside-work-tree") != "true":
        return None
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD") or None
    branch = _git(folder, "symbolic-ref", "--short", "--quiet", "HEAD") or None
    changes = _git(folder, "status", "--porcelain", "--", ".")
    return GitState(commit=commit, branch=branch, dirty=bool(changes))


def _git(folder: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(  # noqa: S603 (the arguments are ours, and no option of git's begins with a slash)
            # A repository's settings may name any program as its file system monitor; do not run it.
            ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments],  # noqa: S607
            env={**environment, "GIT_TERMINAL_PROMPT": "0"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
