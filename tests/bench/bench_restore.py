"""How fast a checkpoint comes back from a store that sends each connection so many bytes a second, beside one plain
stream of the same bytes (as ``aws s3 cp - | …`` with one request, or a program that reads the object from its start).

python -m tests.bench.bench_restore [GB] [FILES] [MB_PER_SECOND]     20 GB, 100,000 files, 50 MB/s unless given

The store is a process on this machine and takes a processor of its own; each of its answers comes after 20 ms.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

from broker.agent.checkpoints import Manifest, SavedFile, checkpoint_id, restore
from broker.agent.store import ObjectFolder
from tests.fakes.throttled_s3 import ThrottledS3, sha256

DELAY = 0.02  # seconds: a store in the same region
SMALL = 2000  # bytes of a small file


def checkpoint_of(sizes: dict[str, int], nodes: int = 1) -> tuple[dict[str, int], dict[str, bytes]]:
    """The objects of job ``j`` with one finished checkpoint of files of these sizes: by key, and those with content."""
    identity = checkpoint_id(1, 5, "step_5")
    digests = {size: sha256(size) for size in set(sizes.values())}
    place = f"team/j/checkpoints/{identity}"
    files = tuple(SavedFile(path, f"rank-0/{path}", size, digests[size]) for path, size in sizes.items())
    manifest = Manifest(identity, "step_5", 1, 5, datetime(2026, 11, 25, tzinfo=UTC), nodes, files)
    objects = {f"{place}/rank-0/{path}": size for path, size in sizes.items()}
    return objects, {f"{place}/manifest.json": manifest.to_bytes()}


def _serve(said: Connection, objects: dict[str, int], small: dict[str, bytes], rate: float) -> None:
    with ThrottledS3(objects, small, rate, DELAY) as server:
        said.send(server.variables)
        said.recv()


@contextmanager
def served(sizes: dict[str, int], rate: float) -> Iterator[ObjectFolder]:
    """The job's folder in a store of its own process."""
    objects, small = checkpoint_of(sizes)
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=_serve, args=(theirs, objects, small, rate), daemon=True
    )
    process.start()
    try:
        os.environ.update(ours.recv())
        yield ObjectFolder.open("s3://runs/team/j")
    finally:
        process.terminate()
        process.join()


def plain(store: ObjectFolder, sizes: dict[str, int], into: Path) -> None:
    """One connection, one file after the other, verified as well."""
    for path in sizes:
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with target.open("wb") as output:
            for piece in store.stream(f"checkpoints/{checkpoint_id(1, 5, 'step_5')}/rank-0/{path}"):
                digest.update(piece)
                output.write(piece)


def timed(what: str, total: int, call: Callable[[], object]) -> float:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{what:<58} {cpu:8.1f} s CPU {wall:8.1f} s {total / wall / 1e6:8.1f} MB/s", flush=True)
    return wall


def both(what: str, sizes: dict[str, int], rate: float, sample: dict[str, int] | None = None) -> tuple[float, float]:
    """Seconds of the agent's restore and of the plain one (of ``sample`` alone, if given)."""
    total = sum(sizes.values())
    with served(sizes, rate) as store:
        folder = Path(tempfile.mkdtemp(prefix="restore-"))
        try:
            ours = timed(f"{what}: restored by the agent", total, lambda: restore(store, folder, 0))
            shutil.rmtree(folder)
            folder.mkdir()
            tried = sample or sizes
            least = timed(
                f"{what}: one stream, {len(tried):,} of them", sum(tried.values()), lambda: plain(store, tried, folder)
            )
            return ours, least * len(sizes) / len(tried)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def main(gigabytes: float = 20.0, files: int = 100_000, rate: float = 50.0) -> None:
    ours, one = both(f"{gigabytes:g} GB", {"step_5.pt": int(gigabytes * 1e9)}, rate * 1e6)
    print(f"{one / ours:.1f} times as fast")
    many = {f"step_5/{number // 1000}/{number}.bin": SMALL for number in range(files)}
    sample = dict(list(many.items())[: max(1, files // 50)])
    ours, one = both(f"{files:,} files of {SMALL:,} bytes", many, rate * 1e6, sample)
    print(f"{one / ours:.1f} times as fast (the one stream reckoned from its sample)")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(*(kind(value) for kind, value in zip((float, int, float), given, strict=False)))
