"""Namespaces for a cluster of its own. Its processes, mounts, addresses and ports are in there and nowhere else, so two
runs do not meet, and nothing is left when the first process ends, in whatever way."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

APART = "GPUBROKER_TEST_APART"
_PREFIX = "gpubroker-kubernetes-"
_CGROUPS = "k8s.io"  # where containerd's containers are: cgroups have no namespace that would end with them


def namespaces() -> list[str]:
    """The command that starts another in new ones."""
    return ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]


def lacking_namespaces() -> str:
    """Why they cannot be made here; empty where they can."""
    if os.geteuid() != 0:
        return "a cluster of its own needs root"
    made = subprocess.run([*namespaces(), "true"], capture_output=True, check=False)
    return "" if made.returncode == 0 else "this machine lets nobody make namespaces"


def not_apart() -> str:
    """Why this process is not in namespaces of its own; empty if it is."""
    return "" if os.environ.get(APART) else "only in namespaces of its own: make test-kubernetes"


@contextmanager
def own_folder() -> Iterator[Path]:
    """An empty folder, removed afterwards. Those of runs that were killed are removed first."""
    top = Path(tempfile.gettempdir())
    for left in top.glob(f"{_PREFIX}*"):
        with suppress(Timeout, OSError), FileLock(left / "lock", timeout=0):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with FileLock(folder / "lock"):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_empty_cgroups() -> None:
    """What ended runs left. Those of another run under way are not empty."""
    for top in Path("/sys/fs/cgroup").glob(f"**/{_CGROUPS}"):
        for folder in sorted([top, *top.glob("**/")], reverse=True):
            with suppress(OSError):
                folder.rmdir()
