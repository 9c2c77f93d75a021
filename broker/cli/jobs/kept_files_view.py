"""Results, checkpoints and submitted files of a job as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.kept_files import (
    FetchedFilesResult,
    FinishedCheckpointResult,
    GitResult,
    JobCheckpoints,
    JobDifference,
    JobOutputs,
    JobSources,
    OutputResult,
    SourceEntry,
)
from broker.app.results.program_name import program
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed
from broker.placement.formats import gigabytes

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_SOURCES: tuple[ValueColumn[SourceEntry], ...] = (
    ValueColumn("file", lambda one: _name(one), folds=True),
    ValueColumn("size", lambda one: _size(one), align="right"),
    ValueColumn("mode", lambda one: one.mode, 2),
    ValueColumn("SHA-256", lambda one: one.sha256[:12], 1),
)
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def _name(one: SourceEntry | OutputResult) -> str:
    return f"{one.path} → {one.target}" if one.kind == "link" else one.path


def _size(one: SourceEntry | OutputResult) -> str:
    return gigabytes(one.bytes) if one.kind == "file" else one.kind


def outputs(console: Console, found: JobOutputs) -> Iterator[RenderableType]:
    """One row per file, and their folder."""
    if not found.files:
        named = f"; its `outputs:` are {', '.join(found.outputs)}" if found.outputs else ""
        yield Text(f"{found.id} has no results so far{named}")
        yield Text("Results are the files under `outputs:` of the job file and in $GPUBROKER_OUTPUT_DIR.", "dim")
        return
    columns: tuple[ValueColumn[OutputResult], ...] = (
        ValueColumn("file", _name, folds=True),
        ValueColumn("size", _size, align="right"),
        ValueColumn("attempt", lambda one: str(one.attempt), 2, "right"),
        ValueColumn("saved", lambda one: f"{formats.age(found.as_of - one.at)} ago", 1, "right"),
    )
    yield from listed(console, columns, found.files)
    yield Text(f"{formats.plural(len(found.files), 'file')}, {gigabytes(found.bytes)}, in {found.folder}", "dim")
    yield Text(f"To fetch them: {program()} jobs get {found.id}", "dim")


def fetched(found: FetchedFilesResult) -> str:
    """``4 files, 0.3 MB, in mine-4k2m9x; 1 of them had not changed``"""
    if not found.files:
        return f"{found.id} has no results yet; `outputs:` in its job file sets which files are kept"
    present = f"; {found.present} of them had not changed" if found.present else ""
    return f"{formats.plural(len(found.files), 'file')}, {gigabytes(found.bytes)}, in {found.to}{present}"


def checkpoints(console: Console, found: JobCheckpoints) -> Iterator[RenderableType]:
    """One row per checkpoint, and how many are kept."""
    if not found.checkpoints:
        yield Text(f"{found.id} has no complete checkpoint")
        return
    columns: tuple[ValueColumn[FinishedCheckpointResult], ...] = (
        ValueColumn("step", lambda one: "" if one.step is None else f"{one.step:,}", align="right"),
        ValueColumn("name", lambda one: one.name, folds=True),
        ValueColumn("size", lambda one: gigabytes(one.bytes), align="right"),
        ValueColumn("files", lambda one: str(one.files), 3, "right"),
        ValueColumn("attempt", lambda one: str(one.attempt), 2, "right"),
        ValueColumn("saved", lambda one: f"{formats.age(found.as_of - one.at)} ago", 1, "right"),
    )
    yield from listed(console, columns, found.checkpoints)
    keeps = (
        f"the newest {found.keep} are kept while the job lasts (`checkpoint.keep`), and afterwards until"
        f" `{program()} jobs prune`"
    )
    yield Text(f"{formats.plural(len(found.checkpoints), 'checkpoint')} in {found.folder}; {keeps}", "dim")


def sources(console: Console, found: JobSources) -> Iterator[RenderableType]:
    """The files that the job was submitted with."""
    if not found.trees:
        yield Text(f"{found.id} was submitted without files")
        return
    if found.git is not None:
        yield Text(f"Git {git_words(found.git)}")
    for tree in found.trees:
        yield Text(f"{tree.source} → {tree.to or 'the working folder'}", style="bold")
        yield from listed(console, _SOURCES, tree.entries)


def difference(found: JobDifference) -> Iterator[RenderableType]:
    """Unified differences, coloured."""
    if found.git_before != found.git_after:
        yield Text(f"Git: {git_words(found.git_before)} → {git_words(found.git_after)}")
    yield from (_line(line) for line in found.job)
    for file in found.files:
        sizes = " → ".join(gigabytes(size) for size in (file.bytes_before, file.bytes_after) if size is not None)
        yield Text(f"{file.change} {file.path} ({sizes})", style="bold")
        yield from (_line(line) for line in file.diff)
    if not found.job and not found.files:
        yield Text(f"{found.before} and {found.after} run the same job with the same files")


def git_words(git: GitResult | None) -> str:
    """``1a2b3c4d5e on main, with changes``"""
    if git is None:
        return "none"
    branch = f" on {git.branch}" if git.branch else ""
    return f"{(git.commit or 'no commit yet')[:12]}{branch}{', with changes' if git.dirty else ''}"


def _line(line: str) -> Text:
    return Text(line, style=_COLOURS.get(line[:1], ""))
