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

from broker.agent.environment import Scratch
from broker.agent.formats import Spec
from broker.agent.journal import AttemptJournal
from broker.agent.rank import RankContext
from broker.agent.saver import Saver
from broker.agent.scan import Renames, Scanner
from broker.agent.store import ObjectFolder

SIZE = 512 << 20
AT_LEAST = 0.7  # of obstore's own speed
TRIES = 3


def timed(what: str, call: Callable[[], object]) -> float:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{what:<58} {cpu:8.3f} s CPU {wall:8.3f} s {SIZE / wall / 1e6:8.0f} MB/s")
    return wall


def saved_by_the_agent(folder: Path, checkpoint: Path) -> Callable[[], None]:
    """The agent's own saver over a folder into which the checkpoint is renamed."""
    scratch = Scratch(folder)
    watched = scratch.checkpoints
    watched.mkdir()
    store, spec = ObjectFolder.open((folder / "run").as_uri()), Spec("bench", 1, "bench-1", "true")
    scanner = Scanner(watched, lambda: set(), Renames(watched).since_last)
    journal = AttemptJournal(store, None, spec.clock)
    saver = Saver(RankContext(store, spec, 0, scratch, journal), scanner, lambda: False, lambda: None)

    def save() -> None:
        saver.start(None)
        checkpoint.rename(watched / checkpoint.name)
        latest = time.monotonic() + 300
        saver.finish(killed=False, hurry=False, deadline=lambda: latest)
        assert saver.last is not None
        assert saver.last.size == SIZE

    return save


def one_try(folder: Path) -> tuple[float, float]:
    """Seconds of obstore's own copy, and of the agent's."""
    checkpoint, size = folder / "step_1.bin", f"{SIZE >> 20} MiB"
    with checkpoint.open("wb") as file:
        for _ in range(SIZE >> 20):
            file.write(os.urandom(1 << 20))
    os.sync()  # what was just written shall not be in the way of what is measured
    target = LocalStore(folder / "plain", mkdir=True)
    plain = timed(f"obstore.put of {size}", lambda: obstore.put(target, "step_1.bin", checkpoint))
    timed(f"shutil.copyfile of {size}", lambda: shutil.copyfile(checkpoint, folder / "copy.bin"))
    shutil.rmtree(folder / "plain")
    (folder / "copy.bin").unlink()
    os.sync()
    return plain, timed(f"agent: {size} hashed and uploaded", saved_by_the_agent(folder, checkpoint))


def main() -> None:
    tries = []
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory() as name:
            tries.append(one_try(Path(name)))
    speed = min(plain for plain, _ in tries) / min(agent for _, agent in tries)
    slow = "   TOO SLOW" if speed < AT_LEAST else ""
    print(
        f"{'agent against obstore.put, the best of each':<58} {speed:8.0%} of its speed, {AT_LEAST:.0%} at least{slow}"
    )


if __name__ == "__main__":
    main()
