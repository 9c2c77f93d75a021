"""Which entries of the program's folder make one checkpoint. Pure.

A checkpoint is what the program needs to resume: the entries of one step (``model_200.pt`` and ``optim_200.pt``),
all entries without a step (``last.ckpt``, ``config.json``), what trackers and links among these name, and the newest
entries of each other name (``best_1.pt``). A step that lacks an entry that the steps before had is not finished. A
tracker is a small file that contains the name or the step of another entry: DeepSpeed's ``latest``, Megatron's
``latest_checkpointed_iteration.txt``, TensorFlow's ``checkpoint``. It names the entry from which the program resumes,
so later ones are being written until it names them, unless there are `LAG` of them. Without steps, all entries together
are the checkpoint.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from broker.agent.entries import FILE, LINK, DiskEntry
from broker.agent.gpubroker_checkpoint import position_of, step_of

SMALL = 1 << 20
"""Bytes below which a changed entry without a step, next to entries with one, is not a checkpoint by itself: it is
saved with the next one, and at the end."""
TRACKER = 1 << 10
"""The largest size of a tracker in bytes."""
LAG = 2
"""The number of later, finished steps after which a file called latest is none that the program keeps up to date, and
of later entries after which a smaller size is usual."""
_LATEST = re.compile(
    r"((latest|last|newest)([-_]?(checkpoint|checkpointed|iteration|step|rank\d+))*|checkpoint)(\.\w+)?"
)
_NUMBERS = re.compile(r"([-+.]?([0-9a-f]*\d[0-9a-f]*|(?<![a-z])(nan|inf)(?![a-z])))+")  # also hashes and losses

Position = tuple[int, ...]
Steps = Mapping[Position, Mapping[str, DiskEntry]]


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
    steps: Steps,
    read: Callable[[str], str],
    trusted: Callable[[str], bool],
    *,
    ended: bool,
    clean: bool,
) -> list[FinishedCheckpoint]:
    """The checkpoints to save, oldest first. ``steps``: the largest file of each entry seen, by step, oldest first.
    ``read``: returns the text of a small file; ``trusted``: whether an entry that a tracker calls the latest can be
    trusted. ``ended``: the command has ended; ``clean``: by itself, with success, so that nothing is half written."""
    without_step = [entry for entry in top_entries if not position(entry)]
    references = {entry.name: _referenced_names(entry, top_entries, read) for entry in without_step}
    latest = set().union(*(references[name] for name in references if _is_latest(name)))
    top_entries = [
        replace(member, settled=True, doubtful=False) if member.name in latest and trusted(member.name) else member
        for member in top_entries
    ]
    numbered = {place for entry in top_entries if (place := position(entry))}
    order = [*(place for place in steps if place in numbered), *sorted(numbered - steps.keys())]
    groups = {place: [entry for entry in top_entries if position(entry) == place] for place in order}
    settled = [place for place in order if all(entry.settled for entry in groups[place])]
    ready = [
        place
        for at, place in enumerate(settled)
        if (clean and at == len(settled) - 1)
        or not (all(entry.doubtful for entry in groups[place]) or _lacks_kinds(place, steps))
    ]
    named = max((at for at, place in enumerate(order) if latest & {entry.name for entry in groups[place]}), default=-1)
    if named >= 0 and len(set(order[named + 1 :]) & set(ready)) >= LAG:
        latest = set()
    unfinished = [entry for entry in top_entries if entry.name in latest and not (entry.settled or entry.restless)]
    if not clean and (unfinished or any(map(_is_torn_tracker, without_step))):
        return []  # the program is writing, or was killed while it did: what was saved before fits together
    if latest and named >= 0 and not clean:
        ready = [place for place in ready if place in order[: named + 1]]
    saved = max((at for at, place in enumerate(ready) if all(entry.saved for entry in groups[place])), default=-1)
    to_save = [groups[place] for place in ready[saved + 1 :]]
    newest: dict[str, list[TopEntry]] = {}
    for place in ready:
        kinds = {kind_of(entry.name) for entry in groups[place]}
        newest |= {kind: [entry for entry in groups[place] if kind_of(entry.name) == kind] for kind in kinds}
    others = [entry for entries in newest.values() for entry in entries if position(entry) != ready[-1]]
    if (
        not to_save
        and (ready or not numbered)
        and (
            not all(entry.saved for entry in others)
            or _has_changed(without_step, references, has_steps=bool(numbered), ended=ended)
        )
    ):
        to_save = [groups[ready[-1]]] if ready else [[]]
    finished = [_make_checkpoint(group) for group in to_save[:-1]]
    if to_save:
        finished.append(_make_checkpoint(to_save[-1], without_step, references, top_entries, others))
    return finished


def position(entry: TopEntry) -> Position:
    """The numbers of its step; empty for a companion of others."""
    return () if entry.link or not entry.size else position_of(entry.name)


def kind_of(name: str) -> str:
    """The name but for its numbers."""
    return _NUMBERS.sub("#", name.lower())


def _lacks_kinds(place: Position, steps: Steps) -> bool:
    """Whether a kind of entries is missing that all steps before had, or all until few steps ago. A kind of the same
    size as another of its step is expected less, as it may be a copy, of the best for example."""
    before = list(itertools.takewhile(lambda step: step != place, steps))
    kinds = {kind_of(name) for name in steps.get(place, ())}
    related = [step for step in before if kinds & {kind_of(name) for name in steps[step]}]
    for kind in {kind_of(name) for step in related for name in steps[step]} - kinds:
        had = [step for step in related if kind in map(kind_of, steps[step])]
        sizes = Counter(entry.size for entry in steps[had[-1]].values())
        is_copy = any(sizes[entry.size] > 1 for name, entry in steps[had[-1]].items() if kind_of(name) == kind)
        patience = (len(had) > 1) + (0 if is_copy else 1 + (len(had) > 1))
        if had == related[: len(had)] and len(related) - len(had) < patience:
            return True
    return False


def _is_latest(name: str) -> bool:
    return _LATEST.fullmatch(name.lower()) is not None


def _is_torn_tracker(entry: TopEntry) -> bool:
    torn = not entry.size or not (entry.settled or entry.restless)
    return torn and entry.is_file and entry.size <= TRACKER and _is_latest(entry.name)


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
    others: Sequence[TopEntry] = (),
) -> FinishedCheckpoint:
    references, settled = references or {}, {entry.name: entry for entry in top_entries if entry.settled}
    companions = [
        entry for entry in other_entries if entry.name in settled and references[entry.name] <= settled.keys()
    ]
    referenced = [settled[name] for entry in companions for name in references[entry.name]]
    members = tuple({entry.name: entry for entry in (*group, *others, *companions, *referenced)}.values())
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
    is_step = _is_latest(entry.name)
    return {
        other.name
        for other in top_entries
        if other.name != entry.name
        and (
            other.name in words or other.name.partition(".")[0] in words or (is_step and step_of(other.name) in numbers)
        )
    }
