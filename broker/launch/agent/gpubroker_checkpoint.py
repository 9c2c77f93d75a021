"""For training programs, if they want it: save checkpoints whole, find the newest, tell the progress.

Importable in every command that the agent runs. Standard library only; without the agent it works in the folder that
``GPUBROKER_CHECKPOINT_DIR`` names, or in ``checkpoints`` below the current one. ::

    from gpubroker_checkpoint import newest, progress, save

    start = newest()                                   # a Path, or None
    with save("step_000120.pt", step=120) as path:     # becomes visible when the block ends, whole or not at all
        torch.save(state, path)
    progress(120, 1000)
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path


def folder() -> Path:
    """Where checkpoints go; made if missing."""
    place = Path(os.environ.get("GPUBROKER_CHECKPOINT_DIR", "checkpoints"))
    place.mkdir(parents=True, exist_ok=True)
    return place


@contextlib.contextmanager
def save(name: str, step: int | None = None) -> Iterator[Path]:
    """A path to write a file or folder to; it takes its name when the block ends without an exception."""
    target, draft = folder() / name, folder() / f".{name}.tmp"
    _remove(draft)
    try:
        yield draft
        for path in [draft, *draft.rglob("*")] if draft.is_dir() else [draft]:
            if path.is_file():
                with path.open("rb+") as file:
                    os.fsync(file.fileno())
        inode = draft.stat().st_ino
        if target.is_dir():
            _remove(target)
        draft.replace(target)
    finally:
        _remove(draft)
    _note(name, inode, step)


def newest() -> Path | None:
    """The entry of the folder that was written last, or None."""
    entries = [p for p in folder().iterdir() if not p.name.startswith(".") and p.suffix not in (".tmp", ".partial")]
    return max(entries, key=lambda path: path.stat().st_mtime_ns, default=None)


def progress(step: int, total: int | None = None) -> None:
    """Say how far the program is. Cheap; call it as often as you like to log."""
    place = os.environ.get("GPUBROKER_PROGRESS_FILE")
    if place:
        _replace(Path(place), {"step": step, "total": total})


def _note(name: str, inode: int, step: int | None) -> None:
    notes = folder() / ".gpubroker-saved.json"
    try:
        known = json.loads(notes.read_text())
    except (OSError, ValueError):
        known = {}
    there = {key: value for key, value in known.items() if (folder() / key).exists()}
    _replace(notes, {**there, name: {"inode": inode, "step": step}})


def _replace(path: Path, document: Mapping[str, object]) -> None:
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(json.dumps(document))
    draft.replace(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
