"""Fetches results of other jobs, which are this job's inputs, from their run folders.

If several attempts wrote a file, the newest one counts; results of nodes other than the first are below ``rank-<k>``.
Each file is verified before it gets its final name.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Callable

from broker.agent.download import write
from broker.agent.formats import ATTEMPTS, BadDocument, WantedInput, attempt_path, rank_of
from broker.agent.outputs import OutputFile
from broker.agent.store import ObjectFolder


class NoInput(Exception):
    """The other job has no such result, or no intact one."""


def fetch(store: ObjectFolder, wanted: WantedInput, into: Path, give_up: Callable[[], bool]) -> int:
    """Fetch the results of one job into the folder, under their own paths; returns their number.

    ``store``: that job's run folder; ``give_up`` is checked after each piece. Raises NoInput, GaveUp, StoreTrouble
    (repeat), OSError if the node's disk fails.
    """
    found = _newest(store)
    chosen: set[str] = set()
    for pattern in wanted.paths:
        matching = {path for path in found if _is_at(path, pattern)}
        if not matching and not wanted.may_lack:
            raise NoInput(f"{wanted.job} has no result {pattern!r}")
        chosen |= matching
    for path in sorted(chosen):
        _copy(store, *found[path], into / path, give_up)
    return len(chosen)


def _newest(store: ObjectFolder) -> dict[str, tuple[str, OutputFile]]:
    """The results by path, each with the path of its content."""
    found: dict[str, tuple[str, OutputFile]] = {}
    for attempt in sorted(int(name) for name in store.folders(ATTEMPTS) if name.isdigit()):
        for name in store.files(attempt_path(attempt, "")):
            rank = rank_of(name, "outputs.json")
            if rank is None:
                continue
            for file in _listed(store, attempt_path(attempt, name)):
                path = f"rank-{rank}/{file.path}" if rank else file.path
                found[path] = attempt_path(attempt, file.object), file
    return found


def _listed(store: ObjectFolder, index: str) -> list[OutputFile]:
    document = store.read_json(index)
    try:
        return [OutputFile.from_json(one) for one in (document or {}).get("files", ())]
    except (BadDocument, KeyError, TypeError, ValueError) as error:
        raise NoInput(f"{index} is no list of results: {error}") from None


def _is_at(path: str, pattern: str) -> bool:
    wanted = pattern[2:] if pattern.startswith("./") else pattern
    wanted = wanted.rstrip("/")
    return wanted in (path, "", ".") or path.startswith(f"{wanted}/") or fnmatchcase(path, wanted)


def _copy(store: ObjectFolder, content: str, file: OutputFile, place: Path, give_up: Callable[[], bool]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{file.sha256[:16]}.part")
    try:
        with part.open("wb") as output:
            written = write(store.stream(content) if file.size else (), output, give_up)
    except FileNotFoundError:
        raise NoInput(f"{file.path} is no longer in the run folder") from None
    if written != (file.size, file.sha256):
        raise NoInput(f"{file.path} has another content than was saved (SHA-256 differs)")
    part.replace(place)
