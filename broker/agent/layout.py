"""Which entries of the program's folder make one checkpoint. Pure.

A checkpoint is what the program needs to resume: the entries of one step (``model_200.pt`` and ``optim_200.pt``),
all entries without a step (``last.ckpt``, ``config.json``), and what trackers and links among these name. A tracker is
a small file that contains the name or the step of another entry: DeepSpeed's ``latest``, Megatron's
``latest_checkpointed_iteration.txt``, TensorFlow's ``checkpoint``. One that is called latest or last names the entry
from which the program resumes, so later ones are being written until it names them. Without steps, all entries together
are the checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from broker.agent.entries import FILE, LINK, DiskEntry
from broker.agent.gpubroker_checkpoint import step_of

SMALL = 1 << 20
"""Bytes below which a changed entry without a step, next to entries with one, is not a checkpoint by itself: it is
saved with the next one, and at the end."""
TRACKER = 1 << 10
"""The largest size of a tracker in bytes."""
_LATEST = re.compile(r"latest|last|newest|^checkpoint$")


@dataclass(frozen=True)
class TopEntry:
    """An entry of the program's folder with everything below it. ``step``: as its name or the program says.
    ``settled``: it is finished. ``saved``: and was saved, or restored, with this content. ``doubtful``: only its rest
    speaks for it, and none of its kind was saved before. ``earlier``: of one that is not settled, its last saved
    content. ``restless``: it has not been settled for long, as a log never is."""

    name: str
    entries: tuple[DiskEntry, ...]
    step: int | None
    settled: bool
    saved: bool = False
    doubtful: bool = False
    earlier: tuple[DiskEntry, ...] = ()
    restless: bool = False

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)

    @property
    def modified(self) -> int:
        return max((entry.modified for entry in self.entries), default=0)

    @property
    def is_file(self) -> bool:
        return len(self.entries) == 1 and (self.entries[0].path, self.entries[0].kind) == (self.name, FILE)

    @property
    def link(self) -> DiskEntry | None:
        first = self.entries[0]
        return first if first.kind == LINK and first.path == self.name else None


@dataclass(frozen=True)
class FinishedCheckpoint:
    """A checkpoint that is not saved yet. ``name``: of its largest entry. ``earlier``: see `TopEntry`."""

    name: str
    step: int | None
    members: tuple[TopEntry, ...]
    earlier: tuple[DiskEntry, ...] = ()

    @property
    def entries(self) -> tuple[DiskEntry, ...]:
        return tuple(entry for member in self.members for entry in member.entries)


def checkpoints(
    top_entries: Sequence[TopEntry],
    read: Callable[[str], str],
    trusted: Callable[[str], bool],
    *,
    ended: bool,
    clean: bool,
) -> list[FinishedCheckpoint]:
    """The checkpoints to save, oldest first. ``read``: returns the text of a small file; ``trusted``: whether an
    entry that a tracker calls the latest can be trusted. ``ended``: the command has ended; ``clean``: by itself,
    with success, so that nothing is half written."""
    without_step = [entry for entry in top_entries if _step(entry) is None]
    references = {entry.name: _referenced_names(entry, top_entries, read) for entry in without_step}
    latest = set().union(*(references[name] for name in references if _LATEST.search(name.lower())))
    top_entries = [
        replace(member, settled=True, doubtful=False) if member.name in latest and trusted(member.name) else member
        for member in top_entries
    ]
    unfinished = [entry for entry in top_entries if entry.name in latest and not (entry.settled or entry.restless)]
    if not clean and (unfinished or any(map(_is_torn_tracker, without_step))):
        return []  # the program is writing, or was killed while it did: what was saved before fits together
    numbered: dict[int, list[TopEntry]] = {}
    for entry in top_entries:
        if (step := _step(entry)) is not None:
            numbered.setdefault(step, []).append(entry)
    # File systems store times in steps of milliseconds or seconds; groups of the same time are ordered by step.
    groups = [numbered[step] for step in sorted(numbered)]
    groups.sort(key=lambda group: max(entry.modified for entry in group))
    if latest and not clean:
        last = max((at for at, group in enumerate(groups) if latest & {member.name for member in group}), default=-1)
        groups = groups[: last + 1] or groups
    ready = [group for group in groups if all(entry.settled for entry in group)]
    ready = [group for group in ready if (clean and group is ready[-1]) or not all(entry.doubtful for entry in group)]
    to_save = [group for group in ready if not all(entry.saved for entry in group)]
    if (
        not to_save
        and (ready or not numbered)
        and _has_changed(without_step, references, has_steps=bool(numbered), ended=ended)
    ):
        to_save = ready[-1:] or [[]]
    finished = [_make_checkpoint(group) for group in to_save[:-1]]
    if to_save:
        finished.append(_make_checkpoint(to_save[-1], without_step, references, top_entries))
    return finished


def _step(entry: TopEntry) -> int | None:
    """The step of an entry that is more than a companion of others."""
    return None if entry.link or not entry.size else step_of(entry.name)


def _is_torn_tracker(entry: TopEntry) -> bool:
    torn = not entry.size or not (entry.settled or entry.restless)
    return torn and entry.is_file and entry.size <= TRACKER and _LATEST.search(entry.name.lower()) is not None


def _has_changed(
    entries: Iterable[TopEntry], references: Mapping[str, set[str]], *, has_steps: bool, ended: bool
) -> bool:
    """Whether entries without a step make a new checkpoint. ``has_steps``: there are entries with one."""
    nonempty = [entry for entry in entries if entry.size or entry.link]
    unsaved = [entry for entry in nonempty if entry.settled and not entry.saved]
    if ended or not has_steps:
        is_writing = any(not entry.settled and not entry.restless for entry in nonempty)
        return any(entry.size for entry in unsaved) and (ended or not is_writing)
    return any(entry.size >= SMALL or references[entry.name] for entry in unsaved)


def _make_checkpoint(
    group: Sequence[TopEntry],
    other_entries: Sequence[TopEntry] = (),
    references: Mapping[str, set[str]] | None = None,
    top_entries: Sequence[TopEntry] = (),
) -> FinishedCheckpoint:
    references, settled = references or {}, {entry.name: entry for entry in top_entries if entry.settled}
    companions = [
        entry for entry in other_entries if entry.name in settled and references[entry.name] <= settled.keys()
    ]
    referenced = [settled[name] for entry in companions for name in references[entry.name]]
    members = tuple({entry.name: entry for entry in (*group, *companions, *referenced)}.values())
    main = max(group or companions, key=lambda entry: (entry.size, entry.modified, entry.name))
    steps = [entry.step for entry in group or companions if entry.step is not None]
    earlier = tuple(earlier_entry for entry in other_entries if not entry.settled for earlier_entry in entry.earlier)
    return FinishedCheckpoint(main.name, max(steps, default=None), members, earlier)


def _referenced_names(entry: TopEntry, top_entries: Sequence[TopEntry], read: Callable[[str], str]) -> set[str]:
    """The other entries that a link or a tracker names; empty for anything else."""
    if entry.link:
        return {other.name for other in top_entries} & {entry.link.target.removeprefix("./").partition("/")[0]}
    if not 0 < entry.size <= TRACKER or not entry.is_file:
        return set()
    words = set(re.findall(r"[^\s\"':,;/\\]+", read(entry.name)))
    numbers = {int(word) for word in words if word.isdecimal() and len(word) <= 12}
    is_step = _LATEST.search(entry.name.lower()) is not None
    return {
        other.name
        for other in top_entries
        if other.name != entry.name
        and (
            other.name in words or other.name.partition(".")[0] in words or (is_step and step_of(other.name) in numbers)
        )
    }
