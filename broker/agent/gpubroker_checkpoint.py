"""An optional helper for training programs: save checkpoints atomically, resume from the newest, know when to save.

Importable in every command that the agent runs. Standard library only; without the agent it works in the folder that
``GPUBROKER_CHECKPOINT_DIR`` names, or in ``checkpoints`` below the current one. ::

    from gpubroker_checkpoint import progress, report, resume, save, should_checkpoint, should_stop

    start = resume()                                       # the newest checkpoint's Path, or None
    while step < 1000:
        …
        progress(step, 1000)
        report(tokens=step * 4096, loss=loss)
        stop = should_stop()                               # the machine is taken away, or the job is stopped
        if stop or should_checkpoint(every=600):           # or ten minutes have passed
            with save(f"step_{step:06d}.pt", step) as path:  # becomes visible when the block ends, whole or not at all
                torch.save(state, path)
        if stop:
            sys.exit(143)

If several processes train together, each gets its own answer: combine the answers (an all-reduce of
``should_checkpoint()``) before acting on them, and save from one process only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import FrameType

_stop_event = threading.Event()
_listening = False
_saved_at = time.monotonic()
_document: dict[str, object] = {}
_metrics: dict[str, float] = {}


def should_stop() -> bool:
    """Whether the program should stop (SIGTERM was received): save, and exit with status 143.

    The first call of this function or of `should_checkpoint` installs the signal handler; before it, SIGTERM ends the
    program as usual. The first call must come from the main thread. An existing handler is called, too.
    """
    global _listening
    if not _listening:
        previous = signal.getsignal(signal.SIGTERM)

        def listen(number: int, frame: FrameType | None) -> None:
            _stop_event.set()
            if callable(previous):
                previous(number, frame)

        signal.signal(signal.SIGTERM, listen)
        _listening = True
    return _stop_event.is_set()


def should_checkpoint(every: float | None = None) -> bool:
    """Whether to save now: a stop was requested, or ``every`` seconds have passed since the last save (or the start).

    Takes little time; call it after each step.
    """
    return should_stop() or (every is not None and time.monotonic() - _saved_at >= every)


def folder() -> Path:
    """The checkpoint folder; created if missing."""
    place = Path(os.environ.get("GPUBROKER_CHECKPOINT_DIR", "checkpoints"))
    place.mkdir(parents=True, exist_ok=True)
    return place


@contextlib.contextmanager
def save(name: str, step: int | None = None) -> Iterator[Path]:
    """A path to write a file or folder to; renamed to its final name when the block ends without an exception.

    ``name``: of the entry in the checkpoint folder; it should contain the step. ``step``: needed if the name contains
    none.
    """
    target, draft = folder() / name, folder() / f".{name}.tmp"
    _remove(draft)
    try:
        yield draft
        for path in [draft, *draft.rglob("*")] if draft.is_dir() else [draft]:
            if path.is_file():
                with path.open("rb+") as file:
                    os.fsync(file.fileno())
        _note(name, draft.stat().st_ino, step)  # before the rename: whoever sees the entry finds its step
        if target.is_dir():
            _remove(target)
        draft.replace(target)
    finally:
        _remove(draft)
    global _saved_at
    _saved_at = time.monotonic()


def publish(source: str | os.PathLike[str], name: str | None = None, step: int | None = None) -> None:
    """Save a finished file or folder that the program, or a library, wrote elsewhere.

    It is linked, or copied from another disk; afterwards the source may be deleted, but not modified. ``name``: by
    default that of the source.
    """
    path = Path(source)

    def take(original: str, copy: str) -> str:
        try:
            os.link(original, copy)
        except OSError:
            shutil.copy2(original, copy)
        return copy

    with save(name or path.name, step) as draft:
        if path.is_dir():
            shutil.copytree(path, draft, copy_function=take)
        else:
            take(str(path), str(draft))


def resume() -> Path | None:
    """The newest checkpoint to resume from: the largest finished entry of the step that was begun last (`in_order`); if
    no name has a step, the entry that was written last. None at the first start."""
    place = folder()
    names = {path.name for path in place.iterdir()}
    found = {name: _largest_file(place / name) for name in names - drafts(names)}
    entries = {name: (size, written) for name, (size, written) in found.items() if size}
    steps = in_order({name: written for name, (_, written) in entries.items() if not (place / name).is_symlink()})
    if not steps:
        return max((place / name for name in entries), key=lambda path: entries[path.name][1], default=None)
    newest = (name for name in entries if position_of(name) == steps[-1])
    return place / max(newest, key=lambda name: (entries[name][0], -entries[name][1]))


def _largest_file(entry: Path) -> tuple[int, int]:
    """The bytes and the time of change (ns) of the entry's largest file; 0 bytes without a file."""
    sizes = [(0, 0)]
    for path in [entry, *entry.rglob("*")]:
        with contextlib.suppress(OSError):
            if path.is_file():
                sizes.append((path.stat().st_size, path.stat().st_mtime_ns))
    return max(sizes)


def in_order(written: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The steps of these entries, as `position_of` tells them, in the order in which they were begun. ``written``: when
    the largest file of each entry was changed. At the same time, the numbers decide."""
    begun: dict[tuple[int, ...], int] = {}
    for name, at in written.items():
        if place := position_of(name):
            begun[place] = min(at, begun.get(place, at))
    return sorted(begun, key=lambda place: (begun[place], place))


_MARK = "-unfinished"
_DRAFT = re.compile(
    r"^\.|~$|^~|\.part$|^tmp[a-z0-9_]{8}$|^tmp(?:step|ckpt|checkpoint)|\dtmp$"
    r"|(?<![a-z0-9])(tmp\d*|temp(?![^a-z0-9]*\d)|partial|incomplete|unfinished|~)(?![a-z0-9])"
)
_NUMBER = re.compile(r"([a-z]*)([^a-z0-9]*)(\d+)(?![a-z0-9]|\.\d)")
_UNITS = {"step": 4, "iter": 3, "iteration": 3, "ba": 3, "batch": 3, "checkpoint": 2, "ckpt": 2, "epoch": 1, "ep": 1}
_LONGEST_BARE = 9  # digits of a step without such a word; a longer number is a time or a hash
_NO_STEP = {"rank", "shard", "part", "worker", "node", "device", "gpu", "state", "seed", "fold", "v", "version", "of"}


def is_unfinished(name: str) -> bool:
    """Whether the name of an entry says that it is still being written, in the way of any framework."""
    return _DRAFT.search(name.lower()) is not None


def drafts(names: Collection[str]) -> set[str]:
    """The entries that are still being written: by their own names, or because ``X-unfinished`` lies beside X or
    ``X.ckpt``, as NeMo marks them."""
    marked = [name.removesuffix(_MARK) for name in names if name.endswith(_MARK)]
    return {name for name in names if is_unfinished(name) or any(f"{name}.".startswith(f"{x}.") for x in marked)}


def step_of(name: str) -> int | None:
    """The step in the name of an entry: the number after "step" or a similar word, else the last number that stands for
    itself. Not those of ``resnet50``, ``7b``, ``fp32``, ``loss=0.25``, of ranks, shards, and times."""
    return max(_counts(name), default=(0, 0, None))[2]


def position_of(name: str) -> tuple[int, ...]:
    """All numbers that order the entries of a name: (1, 500) of ``epoch_1_step_500``; those after "step" or a similar
    word, else those that stand for themselves."""
    counts = _counts(name)
    return tuple(number for unit, _, number in counts if unit or not any(other for other, _, _ in counts))


def _counts(name: str) -> list[tuple[int, int, int]]:
    """The rank of its word, the place, and the value of each number of a name that may be a step."""
    if "tfevents" in name:
        return []
    stem = re.sub(r"\.[a-z][a-z0-9]*$|\d{5}-of-\d{5}", "", name.lower())
    counts = []
    for match in _NUMBER.finditer(stem):
        word, gap, number = match.groups()
        unit = _UNITS.get(word.rstrip("s"), 0)
        decimals = gap == "." and not word and stem[: match.start()][-1:].isdigit()
        if unit or not (word in _NO_STEP or (word and not gap) or decimals or len(number) > _LONGEST_BARE):
            counts.append((unit, match.start(), int(number)))
    return counts


def progress(step: int, total: int | None = None) -> None:
    """Report the program's progress. Takes little time; call it after each step."""
    _write_progress({"step": step, "total": total})


def report(step: int | None = None, **metrics: float) -> None:
    """Report metrics: ``tokens``, the total since the job began, from which reports compute the cost per token, and any
    others (``loss=0.41``), at most 32. The newest value of each name counts. Takes little time; call it after each
    step.
    """
    _metrics.update({name: float(value) for name, value in metrics.items()})
    _write_progress({"metrics": dict(_metrics)} if step is None else {"step": step, "metrics": dict(_metrics)})


def _write_progress(values: Mapping[str, object]) -> None:
    _document.update(values)
    place = os.environ.get("GPUBROKER_PROGRESS_FILE")
    if place:
        _replace(Path(place), _document)


def _note(name: str, inode: int, step: int | None) -> None:
    notes = folder() / ".gpubroker-saved.json"
    try:
        recorded = json.loads(notes.read_text())
    except (OSError, ValueError):
        recorded = {}
    existing = {key: value for key, value in recorded.items() if (folder() / key).exists()}
    _replace(notes, {**existing, name: {"inode": inode, "step": step}})


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
