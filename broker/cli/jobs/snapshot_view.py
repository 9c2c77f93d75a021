"""The lines of `gpubroker submit` about a job's files, and the progress bar of their upload."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from broker.app.jobs.snapshots import Survey
from broker.cli.render import formats
from broker.cli.terminal import Terminal
from broker.snapshots.collect import OWN, rounded
from broker.snapshots.upload import Progress, no_progress


def about(files: Survey) -> Iterator[str]:
    """``Files: 12 files, 3.4 MB, from /home/ann/project; Git 1a2b3c4d5e on main, with changes.``"""
    roots = ", ".join(str(tree.root) for _, tree in files.trees)
    git = f"; Git {files.git}" if files.git else ""
    yield f"Files: {formats.plural(files.files, 'file')}, {rounded(files.size)}, from {roots}{git}."
    if files.left_out:
        named = ", ".join(files.left_out)
        why = f"virtual environments work on this machine only; `!NAME` in {OWN} includes others"
        yield f"Not included: {named} ({why})."


@contextmanager
def bytes_bar(terminal: Terminal, doing: str) -> Iterator[Progress]:
    """A progress bar of bytes on stderr, if that is a terminal."""
    if not terminal.err.is_terminal:
        yield no_progress
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bars(*columns, console=terminal.err, transient=True) as shown:
        task = shown.add_task(doing, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
