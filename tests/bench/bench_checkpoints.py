"""How fast the agent brings a checkpoint to the object store (here: a local disk), beside copies of the same file.

The agent reads the file once, hashes it (SHA-256) and uploads it in pieces, then writes the manifest. Run:
python -m tests.bench
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import obstore
from obstore.store import LocalStore

from broker.launch.agent.clock import NodeClock
from broker.launch.agent.formats import Spec
from broker.launch.agent.journal import Journal
from broker.launch.agent.renames import Renames
from broker.launch.agent.saver import Saver
from broker.launch.agent.scan import Scanner
from broker.launch.agent.store import Store

SIZE = 512 << 20


def timed(what: str, call: Callable[[], object]) -> float:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{what:<58} {cpu:8.3f} s CPU {wall:8.3f} s {SIZE / wall / 1e6:8.0f} MB/s")
    return wall


def saved_by_the_agent(folder: Path, checkpoint: Path) -> Callable[[], None]:
    """The agent's own saver over a folder into which the checkpoint is renamed."""
    watched = folder / "checkpoints"
    watched.mkdir()
    store, clock, spec = Store.open((folder / "run").as_uri()), NodeClock(), Spec("bench", 1, "bench-1", "true")
    scanner = Scanner(watched, lambda: set(), Renames(watched).since_last)
    journal = Journal(store, None, clock)
    saver = Saver(store, watched, scanner, spec, 0, clock, journal, lambda: False, lambda: None)

    def save() -> None:
        saver.start(None)
        checkpoint.rename(watched / checkpoint.name)
        saver.finish(killed=False, hurry=False, deadline=time.monotonic() + 300)
        assert saver.last is not None
        assert saver.last.size == SIZE

    return save


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoint = folder / "step_1.bin"
        with checkpoint.open("wb") as file:
            for _ in range(SIZE >> 20):
                file.write(os.urandom(1 << 20))
        target = LocalStore(folder / "plain", mkdir=True)
        plain = timed(f"obstore.put of {SIZE >> 20} MiB", lambda: obstore.put(target, "step_1.bin", checkpoint))
        timed(f"shutil.copyfile of {SIZE >> 20} MiB", lambda: shutil.copyfile(checkpoint, folder / "copy.bin"))
        agent = timed(f"agent: {SIZE >> 20} MiB hashed and uploaded", saved_by_the_agent(folder, checkpoint))
        print(f"{'agent / obstore.put':<58} {agent / plain:8.2f} times as long")


if __name__ == "__main__":
    main()
