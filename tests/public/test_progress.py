"""`gpubroker.watch`: one line that says how far jobs are, in a notebook and on a terminal."""

import io
import sys
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from gpubroker import JobState, Money, SubmittedJob, TimedOut, watch


class Waiting:
    """A job that is over at its third look."""

    def __init__(self, name: str, looks: int = 3) -> None:
        self.id, self.looks = name, looks

    def look(self) -> Any:
        state = JobState.SUCCEEDED if self.looks <= 0 else JobState.RUNNING
        cost = Money.usd("0.25")
        return SimpleNamespace(id=self.id, state=state, step=3 - self.looks, total_steps=3, cost_so_far=cost)

    def wait(self, timeout: timedelta | None = None) -> Any:
        self.looks -= 1
        if self.looks > 0:
            raise TimedOut("not yet")
        return SimpleNamespace(id=self.id, succeeded=True)


def waiting(*jobs: Waiting) -> list[SubmittedJob[Any]]:
    return [cast("SubmittedJob[Any]", job) for job in jobs]


class NotebookCell:
    """The display of a notebook's cell, as IPython's `DisplayHandle`."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(data["text/plain"])


def test_in_a_notebook_the_line_is_shown_in_the_cell_in_place_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell, ipython = NotebookCell(), cast("Any", ModuleType("IPython"))
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    ipython.display = SimpleNamespace(display=lambda data, *, raw, display_id: cell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    (result,) = watch(*waiting(Waiting("bert-x1")))
    assert result.succeeded
    assert cell.shown[0] == "bert-x1: running, step 1 of 3, $0.2500 so far"
    assert cell.shown[-1] == "bert-x1: succeeded, step 3 of 3, $0.2500 so far"


def test_of_several_jobs_their_states_are_counted_and_results_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    results = watch(*waiting(Waiting("a", 2), Waiting("b", 1)))
    assert [one.id for one in results] == ["a", "b"]
    assert "2 jobs: 1 running, 1 succeeded, $0.5000 so far" in terminal.getvalue()
    assert terminal.getvalue().endswith("2 jobs: 2 succeeded, $0.5000 so far\n")


def test_elsewhere_nothing_is_shown_and_time_may_be_over(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TimeoutError, match="1 of 1 jobs have not ended after 0 s"):
        watch(*waiting(Waiting("a", 99)), timeout=timedelta(0))
    assert capsys.readouterr() == ("", "")


def test_a_job_whose_bill_is_never_settled_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [0.0]  # seconds of the injected clock: only a wait moves it
    monkeypatch.setattr("gpubroker.submitted.time", SimpleNamespace(monotonic=lambda: passed[0]))
    monkeypatch.setattr("gpubroker.progress.monotonic", lambda: passed[0])

    def wait() -> None:
        passed[0] += 0.5

    ended = SimpleNamespace(
        id="bert-x1", state=JobState.SUCCEEDED, closed=False, waits_for_people=False, step=None, total_steps=None,
        cost_so_far=Money.ZERO,
    )  # fmt: skip
    job = SubmittedJob[Any](cast("Any", SimpleNamespace(rest=wait, details=lambda id: ended)), "bert-x1")
    assert [result.id for result in watch(job, timeout=timedelta(minutes=5))] == ["bert-x1"]
    assert passed[0] >= 20, "the bill was waited for first"
