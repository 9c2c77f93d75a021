"""Runs the tests on a cluster of their own: what takes a network is built first, then all runs in namespaces that end
with it, whatever happens: `python -m tests.kubernetes [options of pytest]`."""

from __future__ import annotations

import os
import sys

from tests.cloud.image import machine_layer
from tests.kubernetes.apart import APART, namespaces
from tests.kubernetes.binaries import cluster_binaries
from tests.kubernetes.lab import missing


def main(options: list[str]) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "tests/kubernetes",
        "-m",
        "kubernetes",
        "-n",
        "0",
        "--durations",
        "0",
        "--timeout",
        "1200",
        *options,
    ]
    if missing():
        os.execv(command[0], command)
    cluster_binaries()
    machine_layer()
    os.execvpe("unshare", [*namespaces(), *command], {**os.environ, APART: "1"})


main(sys.argv[1:])
