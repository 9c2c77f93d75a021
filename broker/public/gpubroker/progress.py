"""Waiting for jobs with a progress line: in a notebook below the cell, on a terminal in its last line (stderr)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from time import monotonic
from typing import Any

from broker.app.jobs.documents import JobDetails
from broker.cli.jobs.job_view import running_cost_text, step_text
from broker.core.values.money import Money
from gpubroker.job_input import time_span
from gpubroker.submitted import SubmittedJob, TimedOut, Timeout

_POLL_INTERVAL = timedelta(seconds=1)


def watch(*jobs: SubmittedJob[Any], timeout: Timeout = None) -> list[JobDetails]:
    """Wait for all jobs as `SubmittedJob.wait` does, and show their progress: of one job its state, step and cost
    (USD); of several jobs the number in each state and their total cost. Without a notebook or a terminal nothing is
    shown. After a keyboard interrupt the jobs continue. Returns the results in the order of ``jobs``.

    Raises `TimedOut` if ``timeout`` (wall clock) ends first; the jobs continue.
    """
    limit, show = None if timeout is None else time_span(timeout, "timeout").total_seconds(), _display()
    started = monotonic()
    finished: dict[int, JobDetails] = {}
    while len(finished) < len(jobs):
        pause = _POLL_INTERVAL  # wait only for the first unfinished job; check the others without waiting
        for number, job in enumerate(jobs):
            if number not in finished:
                if (result := _result_within(job, pause)) is not None:
                    finished[number] = result
                pause = timedelta(0)
        if show is not None:
            show(line(jobs))
        if limit is not None and monotonic() - started > limit:
            unfinished = f"{len(jobs) - len(finished)} of {len(jobs)} jobs"
            raise TimedOut(f"{unfinished} have not ended after {limit:g} s; they continue", hint="watch them again")
    if show is not None:
        show(line(jobs), last=True)
    return [finished[number] for number in range(len(jobs))]


def line(jobs: Sequence[SubmittedJob[Any]]) -> str:
    """``bert-x1y2z3: running, step 120 of 400, $0.1200 so far``, or ``2 jobs: 2 running, $0.5000 so far``."""
    looks = [job.look() for job in jobs]
    so_far = running_cost_text(sum((look.cost_so_far for look in looks if look), Money.ZERO))
    if len(looks) == 1 and (look := looks[0]) is not None:
        words = [f"{look.id}: {_words(look.state.value)}", step_text(look.step, look.total_steps), so_far]
        return ", ".join(filter(None, words))
    states = Counter(look.state.value if look else "queued" for look in looks)
    return f"{len(jobs)} jobs: {', '.join(f'{n} {_words(state)}' for state, n in states.most_common())}, {so_far}"


def _result_within(job: SubmittedJob[Any], within: timedelta) -> JobDetails | None:
    try:
        return job.wait(timeout=within)
    except TimedOut:
        return None


def _words(state: str) -> str:
    return state.replace("_", " ")


def _display() -> Callable[..., None] | None:
    """A function that replaces the progress line; None if nothing is shown."""
    if (handle := _cell()) is not None:
        return lambda text, last=False: handle.update({"text/plain": text}, raw=True)
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    # Printed on purpose: the caller asked for this progress line.
    return lambda text, last=False: print(f"\r\x1b[K{text}", end="\n" if last else "", file=sys.stderr, flush=True)  # noqa: T201


def _cell() -> Any:
    """A display in the notebook's running cell; None outside of a notebook. In a notebook, IPython is already
    imported."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    show = sys.modules["IPython"].display.display
    return show({"text/plain": ""}, raw=True, display_id=True)
