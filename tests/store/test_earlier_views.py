"""The views of jobs that a version kept with sentences for reasons are read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.core.events.outcomes import JobState
from broker.core.events.wait_reasons import Cancelled, Completed, EarlierWords
from broker.store.jobs.quarantine import Quarantine, to_text

VIEWS = (Path(__file__).parents[1] / "core" / "recorded" / "views-2.jsonl").read_text("utf-8").splitlines()


@pytest.mark.parametrize("text", [*VIEWS, *(text.replace('{"format":2,', "{", 1) for text in VIEWS)])
def test_every_view_of_an_earlier_format_is_read(text: str) -> None:
    view = Quarantine().view(SimpleNamespace(view=text))
    assert Quarantine().view(SimpleNamespace(view=to_text(view))) == view
    assert isinstance(view.waiting, EarlierWords | None)
    match view.state:
        case JobState.SUCCEEDED:
            assert view.ending == Completed()
        case JobState.CANCELLED:
            assert view.ending == Cancelled()
        case JobState.FAILED:
            assert view.ending == EarlierWords(text="exit_status: exit status 3")
        case JobState.QUEUED:
            assert view.ending is None
        case _:
            assert view.waiting is not None
