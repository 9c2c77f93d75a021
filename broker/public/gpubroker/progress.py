"""Waiting for jobs, with a line that says how far they are: in a notebook below the cell, on a terminal at its end."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpubroker.client import JobResult, SubmittedJob

_LOOK_EVERY = timedelta(seconds=1)


def watch(*jobs: SubmittedJob, timeout: timedelta | None = None) -> list[JobResult]:
    """Wait for all jobs as `SubmittedJob.result` does, and show their progress meanwhile: state, step and cost of one
    job; of several, how many are in which state and what they cost together. Shows nothing where neither a notebook nor
    a terminal is. A keyboard interrupt leaves the jobs running.

    Raises `TimeoutError` when ``timeout`` (of the wall clock) is over first; the jobs go on.
    """
    show = _display()
    began = monotonic()
    found: dict[int, JobResult] = {}
    while len(found) < len(jobs):
        pause = _LOOK_EVERY  # while the first that is not over is waited for; the others are only looked at
        for number, job in enumerate(jobs):
            if number not in found:
                if (result := _ended(job, pause)) is not None:
                    found[number] = result
                pause = timedelta(0)
        if show is not None:
            show(line(jobs))
        if timeout is not None and monotonic() - began > timeout.total_seconds():
            left = f"{len(jobs) - len(found)} of {len(jobs)} jobs"
            raise TimeoutError(f"{left} are not over after {timeout.total_seconds():g} s; they go on")
    if show is not None:
        show(line(jobs), last=True)
    return [found[number] for number in range(len(jobs))]


def line(jobs: Sequence[SubmittedJob]) -> str:
    """``bert-x1y2z3: running, step 120 of 400, $0.12 so far``, or ``8 jobs: 3 succeeded, 5 running, $0.50 so far``."""
    cost = sum((job.cost.micros for job in jobs), 0)
    so_far = f"${cost / 1e6:,.2f} so far"
    if len(jobs) == 1:
        (job,) = jobs
        words = [f"{job.id}: {_words(job.state.value)}", job.progress, so_far]
        return ", ".join(filter(None, words))
    states = Counter(job.state.value for job in jobs)
    return f"{len(jobs)} jobs: {', '.join(f'{n} {_words(state)}' for state, n in states.most_common())}, {so_far}"


def _ended(job: SubmittedJob, within: timedelta) -> JobResult | None:
    try:
        return job.result(timeout=within)
    except TimeoutError:
        return None


def _words(state: str) -> str:
    return state.replace("_", " ")


def _display() -> Callable[..., None] | None:
    """What shows one line in place of the one before; None where nothing is shown."""
    if (handle := _cell()) is not None:
        return lambda text, last=False: handle.update({"text/plain": text}, raw=True)
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    # To the terminal on purpose: this is the progress that was asked for.
    return lambda text, last=False: print(f"\r\x1b[K{text}", end="\n" if last else "", file=sys.stderr, flush=True)  # noqa: T201


def _cell() -> Any:
    """A display of the notebook's cell that runs; None outside of a notebook. IPython is there if, and only if, it has
    been imported."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    display = sys.modules["IPython"].display.display
    return display({"text/plain": ""}, raw=True, display_id=True)
