"""What versions wrote that kept a sentence for a reason is read: each kind of event, and views."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given

from broker.core.events import earlier_records
from broker.core.events import events as ev
from broker.core.events.events import EventBody, body_from_json
from broker.core.events.outcomes import JobState
from broker.core.events.record_format import FORMAT
from broker.core.events.wait_reasons import Cancelled, Completed, EarlierWords, HoldTrigger, NothingFits
from broker.core.job.placements import Moved
from tests.strategies import Stream, event_streams

RECORDED = Path(__file__).parents[1] / "recorded"
EVENTS = (RECORDED / "events-2.jsonl").read_text("utf-8").splitlines()


def unstamped(text: str) -> str:
    """The same as the version wrote it that had no numbers of formats."""
    return text.replace('{"format":2,', "{", 1)


@pytest.mark.parametrize("text", [*EVENTS, *map(unstamped, EVENTS)])
def test_every_event_of_earlier_formats_is_read_and_read_again_as_it_is_written_now(text: str) -> None:
    body = body_from_json(text)
    assert f'"kind":"{body.kind}"' in text
    assert body_from_json(ev.body_to_json(body)) == body


@pytest.mark.parametrize("text", (RECORDED / "arrays-9.jsonl").read_text("utf-8").splitlines(), ids=("array", "task"))
def test_arrays_of_the_version_before_stop_no_task_early(text: str) -> None:
    body = body_from_json(text)
    assert isinstance(body, ev.Submitted)
    assert body.job.stop_when is None
    assert (body.job.array is None) != (body.job.task is None)
    again = ev.body_to_json(body)
    assert again.startswith(f'{{"format":{FORMAT},')
    assert body_from_json(again) == body


@given(event_streams())
def test_what_is_written_today_needs_no_conversion(stream: Stream) -> None:
    for _, body, _ in stream.items:
        document = json.loads(ev.body_to_json(body))
        assert earlier_records.event(document) == document
        assert body_from_json(ev.body_to_json(body).replace('{"format":6,', '{"format":5,', 1)) == body


def test_the_name_of_a_cost_told_what_is_moved_for_it() -> None:
    names = [
        "compute",
        "data egress",
        "checkpoint egress",
        "restore egress",
        "egress of nothing",
        "keeping checkpoints",
    ]
    terms = [{"name": name, "amount": "1.00", "how": "", "per_start": None} for name in names]
    placement = {"offer": {}, "terms": terms}
    moved = [None, Moved.DATA, Moved.CHECKPOINT, Moved.RESTORE, None, None]
    requested = earlier_records.event({"kind": "launch_requested", "placement": placement})
    assert [term.get("moves") for term in requested["placement"]["terms"]] == moved
    view = earlier_records.view({"attempts": [{"number": 1, "placement": placement}]})
    assert [term.get("moves") for term in view["attempts"][0]["placement"]["terms"]] == moved


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


def test_the_reason_of_a_stop_and_of_a_judgement_were_sentences() -> None:
    stop = body_from_json('{"format":5,"kind":"stop_requested","cause":"moved","by":"the strategy","why":"moves"}')
    assert isinstance(stop, ev.StopRequested)
    assert stop.reason == EarlierWords(text="moves")
    money = '"amount":"3.00","rate":"9.00","until":"2026-11-22T21:00:00Z"'
    for words, trigger in (("its money nears its end", HoldTrigger.ENDS), ("", None), ("of another time", None)):
        body = body_from_json(f'{{"format":5,"kind":"hold_dated",{money},"because":"{words}"}}')
        assert isinstance(body, ev.HoldDated)
        assert body.trigger is trigger
    view = earlier_records.view({"attempts": [{"stop_why": "idle"}, {"stop_why": ""}]})
    assert [one["stop_reason"] for one in view["attempts"]] == [{"kind": "earlier_words", "text": "idle"}, None]
