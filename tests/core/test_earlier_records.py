"""What versions wrote that kept a sentence for a reason is read: each kind of event, and views."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from broker.core import events as ev
from broker.core.events import EventBody, body_from_json
from broker.core.outcomes import JobState
from broker.core.wait_reasons import Cancelled, Completed, EarlierWords, NothingFits

RECORDED = Path(__file__).parent / "recorded"
EVENTS = (RECORDED / "events-2.jsonl").read_text("utf-8").splitlines()


def unstamped(text: str) -> str:
    """The same as the version wrote it that had no numbers of formats."""
    return text.replace('{"format":2,', "{", 1)


@pytest.mark.parametrize("text", [*EVENTS, *map(unstamped, EVENTS)])
def test_every_event_of_earlier_formats_is_read_and_read_again_as_it_is_written_now(text: str) -> None:
    body = body_from_json(text)
    assert f'"kind":"{body.kind}"' in text
    assert body_from_json(ev.body_to_json(body)) == body


def test_every_kind_of_event_is_recorded() -> None:
    kinds = {body.model_fields["kind"].default for body in get_args(get_args(EventBody)[0])}
    assert kinds == {body_from_json(text).kind for text in EVENTS}


@pytest.mark.parametrize(
    ("text", "body"),
    [
        (
            '{"format":2,"kind":"nothing_feasible","reasons":{"no_price":3},"denied":""}',
            ev.NothingFeasible(reason=NothingFits(counts={"no_price": 3})),
        ),
        (
            '{"kind":"nothing_feasible","reasons":{"too_few_machines":1},"denied":"waits for secrets A"}',
            ev.NothingFeasible(reason=EarlierWords(text="waits for secrets A")),
        ),
        ('{"format":2,"kind":"paused","because":"no money"}', ev.Paused(reason=EarlierWords(text="no money"))),
        (
            '{"format":2,"kind":"launch_delayed","because":"time-out"}',
            ev.LaunchDelayed(reason=EarlierWords(text="time-out")),
        ),
        (
            '{"kind":"job_ended","state":"succeeded","because":"completed"}',
            ev.JobEnded(state=JobState.SUCCEEDED, reason=Completed()),
        ),
        (
            '{"format":2,"kind":"job_ended","state":"cancelled","because":"cancelled"}',
            ev.JobEnded(state=JobState.CANCELLED, reason=Cancelled()),
        ),
        (
            '{"format":2,"kind":"job_ended","state":"cancelled","because":"refused by bob"}',
            ev.JobEnded(state=JobState.CANCELLED, reason=EarlierWords(text="refused by bob")),
        ),
        ('{"format":2,"kind":"job_ended","state":"failed","because":""}', ev.JobEnded(state=JobState.FAILED)),
    ],
)
def test_a_sentence_is_kept_as_words_that_decide_nothing(text: str, body: EventBody) -> None:
    assert body_from_json(text) == body
