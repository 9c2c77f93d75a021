"""The lines of `gpubroker submit` about a job's files, and the progress bar of their upload."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from broker.cli.render import formats
from broker.cli.terminal import Terminal
from broker.engines.snapshots.collect import IGNORE_FILE, size_text
from broker.engines.snapshots.upload import Progress, no_progress

if TYPE_CHECKING:
    from broker.app.jobs.snapshots import Survey


def survey_lines(files: Survey) -> Iterator[str]:
    """``Files: 12 files, 3.4 MB, from /home/ann/project; Git 1a2b3c4d5e on main, with changes.``"""
    roots = ", ".join(str(tree.root) for _, tree in files.trees)
    git = f"; Git {files.git}" if files.git else ""
    yield f"Files: {formats.plural(files.files, 'file')}, {size_text(files.size)}, from {roots}{git}."
    if files.left_out:
        left_out_names = ", ".join(files.left_out)
        reason = f"secrets, or what programs installed or recorded here; `!NAME` in {IGNORE_FILE} includes them"
        yield f"Not included: {left_out_names} ({reason}, except virtual environments)."


@contextmanager
def bytes_bar(terminal: Terminal, description: str) -> Iterator[Progress]:
    """A progress bar of bytes on stderr, if that is a terminal."""
    if not terminal.err.is_terminal:
        yield no_progress
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bars(*columns, console=terminal.err, transient=True) as bars:
        task = bars.add_task(description, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
