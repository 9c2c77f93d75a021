"""The fold: deterministic, total over what can happen, loud over what cannot."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings

from broker.core.events import events as ev
from broker.core.events.attempts import ImpossibleSequence
from broker.core.events.events import Event
from broker.core.events.lifecycle import advance, fold, request_after
from broker.core.events.outcomes import OUTCOMES, AttemptState, Cause, JobState, Next
from broker.core.events.views import JobView
from broker.core.records import RecordOfKind
from tests.strategies import EPOCH, Stream, event_streams

STORED = {branch.model_fields["kind"].default for branch in get_args(get_args(ev.EventBody)[0])}


def as_events(stream: Stream) -> list[Event]:
    return [Event(stream.job_id, n, at, attempt, body) for n, (attempt, body, at) in enumerate(stream.items, 1)]


@given(event_streams())
@settings(deadline=None)
def test_folding_again_gives_the_same(stream: Stream) -> None:
    events = as_events(stream)
    assert fold(events) == fold(events) == stream.view


@given(event_streams())
@settings(deadline=None)
def test_events_survive_being_stored(stream: Stream) -> None:
    stored = [replace(e, body=ev.body_from_json(ev.body_to_json(e.body))) for e in as_events(stream)]
    assert fold(stored) == stream.view


@given(event_streams())
@settings(deadline=None)
def test_what_must_hold_of_every_life(stream: Stream) -> None:
    view: JobView | None = None
    for event in as_events(stream):
        before, view = view, advance(view, event)
        live = [a for a in view.attempts if not a.state.final]
        standbys = [a for a in live if a.standby_until is not None]
        assert len(live) - len(standbys) <= 1, "never two attempts that carry the job"
        assert len(standbys) <= 1, "never two that stand by"
        assert all(a in (view.latest, view.standby) for a in live), "no other attempt may live"
        assert not view.state.final or live == standbys, "a job does not end under a running attempt"
        assert view.interruptions + view.failures <= len(view.attempts)
        if view.closed:
            assert all(a.over for a in view.attempts)
        if before is not None:
            assert not before.state.final or before.state is view.state, "an end is an end"
            for old, new in zip(before.attempts, view.attempts, strict=False):
                assert not old.state.final or old.state is new.state
                assert old.agent_events <= new.agent_events


@given(event_streams())
@settings(deadline=None)
def test_events_out_of_order_are_refused(stream: Stream) -> None:
    events = as_events(stream)
    with pytest.raises(ImpossibleSequence):
        fold([*events, replace(events[-1])])
    with pytest.raises(ImpossibleSequence):
        advance(stream.view, Event(stream.job_id, stream.view.seq + 2, EPOCH, None, ev.DeadlineMissed()))
    with pytest.raises(ImpossibleSequence):
        advance(stream.view, Event("another", stream.view.seq + 1, EPOCH, None, ev.DeadlineMissed()))


@given(event_streams())
@settings(deadline=None)
def test_the_open_request_follows_from_the_events_about_it_alone(stream: Stream) -> None:
    view, asked = None, None
    for event in as_events(stream):
        view, asked = advance(view, event), request_after(asked, event)
        assert asked == view.asked


def test_every_cause_has_its_outcome_and_every_outcome_is_an_end() -> None:
    assert set(OUTCOMES) == set(Cause)
    assert all(outcome.state.final for outcome in OUTCOMES.values())
    assert {outcome.next for outcome in OUTCOMES.values()} == set(Next)


def test_every_kind_of_event_is_in_the_stored_union() -> None:
    bodies = {cls for cls in vars(ev).values() if isinstance(cls, type) and issubclass(cls, RecordOfKind)} - {
        RecordOfKind
    }
    for body in bodies:
        kind = body.model_fields["kind"].default
        assert kind in STORED, body


def test_states_know_whether_they_are_final() -> None:
    assert {s for s in AttemptState if s.final} == {outcome.state for outcome in OUTCOMES.values()}
    ends = {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}
    assert {s for s in JobState if s.final} == ends
