"""`jobs list` and the output of arrays: why and how far at one look, in a narrow terminal too."""

import io
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from broker.app.jobs.bills import Bill
from broker.app.jobs.documents import JobDetails, JobList
from broker.app.jobs.jobs import Progress
from broker.cli.jobs import follow as following
from broker.cli.jobs import job_view
from broker.core.events.events import Baseline
from broker.core.events.outcomes import AttemptState, JobState
from broker.core.events.views import AttemptView, JobView
from broker.core.events.wait_reasons import NothingFits, SecretsMissing
from broker.core.job.arrays import JobArray
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.ledger.journal import TaskCounts
from broker.store import open_store
from tests.past import finished, offer

NOW = datetime(2026, 11, 29, 2, 0, tzinfo=UTC)
EARLIER = NOW - timedelta(hours=3)


def job(id: str, state: JobState, progress: Progress | None = None, counts: Any = None, **more: Any) -> JobDetails:
    array = JobArray(range=8) if counts else None
    view = JobView(
        id, Job(name=id, run="x", array=array), "ann", state, 1, EARLIER, None, timedelta(hours=9), None, None
    )
    bill = Bill({}, {}, Money.usd("1.50"), None, None, {}, (), TaskCounts(counts, 0) if counts else None)
    for name, value in more.items():
        object.__setattr__(view, name, value)
    return JobDetails.of(view, bill, progress, NOW)


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize(
    ("row", "words"),
    [
        (job("bert-abcdef", JobState.RUNNING, Progress(120, 400, "", NOW, NOW + timedelta(hours=2))),
         ("step 120 of 400", "2h 00m left")),
        (job("sweep-abcdef", JobState.RUNNING,
             counts={JobState.RUNNING: 2, JobState.SUCCEEDED: 5, JobState.FAILED: 1}),
         ("running 2, done 5, failed 1 of 8", "3h 00m")),
        (job("queued-abcdef", JobState.QUEUED, waiting=NothingFits(counts={"unavailable": 12})),
         ("12 × sold out, as reported by the provider",)),
        (job("hub-abcdef", JobState.QUEUED, waiting=SecretsMissing(names=("HF_TOKEN",))),
         ("! hub-abcdef", "waits for secrets HF_TOKEN", "! a person must act")),
    ],
)  # fmt: skip
def test_a_list_says_why_and_how_far_at_every_width(width: int, row: JobDetails, words: tuple[str, ...]) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    for part in job_view.job_table(
        console, JobList(as_of=NOW, time_scale=1, jobs=[row], unreadable=[]), has_more=False
    ):
        console.print(part)
    text = out.getvalue()
    assert all(len(line) <= width for line in text.splitlines())
    for word in words:  # folded cells have words of other columns between theirs
        assert set(word.split()) <= set(re.split(r"[\s,;:]+", text)) | set(text.split()), (word, text)


@pytest.mark.system
@pytest.mark.parametrize(
    ("ended", "gone", "words"),
    [
        (AttemptState.SUCCEEDED, False, "done, machine stopping"),
        (AttemptState.FAILED, False, "failed, machine stopping"),
        (AttemptState.INTERRUPTED, False, "interrupted"),
        (AttemptState.FAILED, True, "interrupted"),
    ],
)
def test_how_the_command_ended_is_said_before_its_machine_is_gone(ended: AttemptState, gone: bool, words: str) -> None:
    box = offer(NOW)
    placement = Placement(box, 1, Money.ZERO, Money.ZERO, (), None, None, 1.0, 1.0, 0.0)
    attempt = AttemptView(1, "k", "local", placement, ended, EARLIER, up_since=EARLIER, ended_at=NOW, gone=gone)
    assert job("x", JobState.INTERRUPTED, attempts=(attempt,)).state_in_words == words
    assert job("x", JobState.RUNNING, attempts=(attempt,), cancel_requested=True).state_in_words == "stopping"
    unused = replace(attempt, up_since=None)
    assert job("x", JobState.INTERRUPTED, attempts=(unused,)).state_in_words == "interrupted", "no command ran"


def test_a_list_says_that_it_leaves_jobs_out_and_on_what_an_array_runs(
    gpubroker: Any, write: Any, started: list[object]
) -> None:
    text = "run: x\nresources: {cpus: 1}\nmax_duration: 5m\n"
    for name, more in (("one", ""), ("two", ""), ("sweep", "array: {range: 3}\n")):
        assert gpubroker("submit", write(f"{name}.yaml", text + more), "--yes", "--detach").code == 0
    assert " jobs list --limit 20`" in gpubroker("jobs", "list", "-n", "2").out
    assert len(gpubroker("jobs", "list", "-n", "2", "--json").json["jobs"]) == 2
    everything = gpubroker("jobs", "list", "-n", "3").out
    assert "3 jobs\n" in everything
    assert re.search(r"sweep-\w+ .* cpu ", everything)
    assert gpubroker("cancel", "--all", "--yes").code == 0


def test_an_array_prints_the_output_of_its_tasks_and_names_those_that_failed(
    gpubroker: Any, write: Any, reconciled_by: Callable[[ModuleType], None]
) -> None:
    reconciled_by(following)
    file = write(
        "sweep.yaml",
        "name: sweep\nresources: {cpus: 1}\nmax_duration: 5m\narray: {grid: {LR: [1, 2]}}\n"
        "run: echo lr $LR; [ $LR = 1 ] || { echo diverged; exit 3; }\n",
    )
    done = gpubroker("submit", file, "--yes")
    assert done.code == 7
    assert "failed: done 1, failed 1 of 2" in done.out
    assert "LR=2  " in done.out.partition("Tasks that failed")[2], "the parameters of the task"
    assert "diverged" in done.out.partition("Tasks that failed")[2], "the last line that it printed"
    logs = ("logs", "sweep")
    assert gpubroker(*logs).out == "[0] lr 1\n[1] lr 2\n[1] diverged\n"
    assert gpubroker(*logs, "--follow").out == "[0] lr 1\n[1] lr 2\n[1] diverged\n"
    assert gpubroker(*logs, "--task", "0").out == "[0] lr 1\n"
    assert gpubroker(*logs, "--failed", "--tail", "1").out == "[1] diverged\n"
    assert gpubroker(*logs, "--failed", "--json").json["lines"][0] == {"attempt": 1, "line": "lr 2", "task": 1}
    assert "no task 7 that has started" in gpubroker(*logs, "--task", "7").err
    assert "is not an array" in gpubroker("logs", "sweep-1", "--failed").err
    listed = gpubroker("jobs", "list", "--where", "array=sweep", "--json").json["jobs"]
    assert [task["parameters"] for task in listed] == [{"LR": "1"}, {"LR": "2"}]
    assert "LR=2" in gpubroker("jobs", "list", "--where", "array=sweep").out
    assert "the command failed" in gpubroker("status", "--attempts", f"{listed[1]['id']}").out


@pytest.mark.parametrize(
    ("on", "rate", "words"),
    [
        (CapacityType.ON_DEMAND, "12", None),
        (CapacityType.SPOT, "9.17", "on-demand $18.34 for the same work; this job cost the same"),
        (CapacityType.SPOT, "20", "on-demand $40.00 for the same work; saved $21.67 (54%)"),
    ],
)
def test_only_a_job_that_ran_otherwise_is_compared_with_on_demand(
    gpubroker: Any, home: Path, on: CapacityType, rate: str, words: str | None
) -> None:
    store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock())
    reference = Baseline(pool="cloud/here/box", rate=Money.usd(rate), throughput=1.0)
    job_id = finished(store, 1, SystemClock().now() - timedelta(hours=3), on=on, reference=reference)
    store.close()
    shown = gpubroker("status", job_id).out
    assert words in shown if words else "for the same work" not in shown, shown


def test_a_line_that_is_updated_has_one_precision() -> None:
    texts = [job_view.running_cost_text(Money.usd(amount)) for amount in ("0", "0.0049", "0.0051", "1234.5")]
    assert texts == ["$0.0000 so far", "$0.0049 so far", "$0.0051 so far", "$1,234.5000 so far"]
