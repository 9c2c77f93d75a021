"""Results, checkpoints and submitted files of a job as text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.kept_files import GitResult, JobCheckpoints, JobDifference, JobOutputs, JobSources
from broker.app.results.program_name import program
from broker.cli.render import formats
from broker.cli.render.tables import Column, fitting
from broker.core.events.views import JobView
from broker.placement.formats import gigabytes

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_OUTPUTS = (
    Column("file", folds=True),
    Column("size", align="right"),
    Column("attempt", 2, align="right"),
    Column("saved", 1, align="right"),
)
_CHECKPOINTS = (
    Column("step", align="right"),
    Column("name", folds=True),
    Column("size", align="right"),
    Column("files", 3, align="right"),
    Column("attempt", 2, align="right"),
    Column("saved", 1, align="right"),
)
_SOURCES = (Column("file", folds=True), Column("size", align="right"), Column("mode", 2), Column("SHA-256", 1))
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def outputs(console: Console, view: JobView, found: JobOutputs, now: datetime) -> Iterator[RenderableType]:
    """One row per file, and their folder."""
    if not found.files:
        named = f"; its `outputs:` are {', '.join(view.job.outputs)}" if view.job.outputs else ""
        yield Text(f"{view.id} has no results so far{named}")
        yield Text("Results are the files under `outputs:` of the job file and in $GPUBROKER_OUTPUT_DIR.", "dim")
        return
    rows: list[list[str | Text]] = [
        [file.path, gigabytes(file.bytes), str(file.attempt), f"{formats.age(now - file.at)} ago"]
        for file in found.files
    ]
    yield fitting(console, _OUTPUTS, rows)
    yield Text(f"{formats.plural(len(rows), 'file')}, {gigabytes(found.bytes)}, in {found.folder}", "dim")
    yield Text(f"To fetch them: {program()} jobs get {view.id}", "dim")


def checkpoints(console: Console, found: JobCheckpoints, now: datetime) -> Iterator[RenderableType]:
    """One row per checkpoint, and how many are kept."""
    keeps = (
        f"the newest {found.keep} are kept while the job lasts (`checkpoint.keep`), and afterwards until"
        f" `{program()} jobs prune`"
    )
    if not found.checkpoints:
        yield Text(f"{found.id} has no complete checkpoint")
        return
    rows: list[list[str | Text]] = [
        [
            "" if one.step is None else f"{one.step:,}",
            one.name,
            gigabytes(one.bytes),
            str(one.files),
            str(one.attempt),
            f"{formats.age(now - one.at)} ago",
        ]
        for one in found.checkpoints
    ]
    yield fitting(console, _CHECKPOINTS, rows)
    yield Text(f"{formats.plural(len(rows), 'checkpoint')} in {found.folder}; {keeps}", "dim")


def sources(console: Console, found: JobSources) -> Iterator[RenderableType]:
    """The files that the job was submitted with."""
    if not found.trees:
        yield Text(f"{found.id} was submitted without files")
        return
    if found.git is not None:
        yield Text(f"Git {git_words(found.git)}")
    for tree in found.trees:
        yield Text(f"{tree.source} → {tree.to or 'the working folder'}", style="bold")
        rows: list[list[str | Text]] = [
            [
                f"{one.path} → {one.target}" if one.kind == "link" else one.path,
                gigabytes(one.bytes) if one.kind == "file" else one.kind,
                one.mode,
                one.sha256[:12],
            ]
            for one in tree.entries
        ]
        yield fitting(console, _SOURCES, rows)


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
