"""Event streams and their projection."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings

from broker.core.events import events as ev
from broker.core.events.attempts import ImpossibleSequence
from broker.core.events.outcomes import Cause, JobState
from broker.core.job.jobs import Job, MachineRequest
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, Answer, Source, Verdict
from broker.core.values.money import Money
from broker.store import Store
from tests.counts import FULL
from tests.strategies import Stream, event_streams

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
OFFER = Offer("aws", "us-east-1", None, "p5", "H100", 8, CapacityType.SPOT, Money.usd("20"), NOW, "api")
SHARED = settings(
    max_examples=20 if FULL else 8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def submitted(name: str = "llama", **more: object) -> ev.Submitted:
    job = Job(name=name, run="true", resources=(MachineRequest(accelerator="H100", count=8),), team="nlp", **more)
    return ev.Submitted(job=job, user="ada", max_duration_seconds=3600)


def launch(nodes: int = 2) -> ev.LaunchRequested:
    placement = Placement(OFFER, nodes, Money(1), Money(1), (), None, None, 1.0, 1.0, 0.0)
    return ev.LaunchRequested(key="k", engine="local", placement=placement)


def test_a_job_that_was_never_submitted_is_none(store: Store) -> None:
    with store.reading() as journal:
        assert journal.job("nope") is None
        assert not journal.events("nope")


def test_events_come_back_as_they_were_appended(store: Store) -> None:
    later = NOW + timedelta(microseconds=1)
    with store.writing() as journal:
        journal.append("j1", [(None, submitted())], NOW)
        view = journal.append("j1", [(1, launch()), (1, ev.Launched(handle="h"))], later)
    with store.reading() as journal:
        events = journal.events("j1")
        assert journal.job("j1") == view
    assert [(e.seq, e.attempt, e.at, e.body.kind) for e in events] == [
        (1, None, NOW, "submitted"),
        (2, 1, later, "launch_requested"),
        (3, 1, later, "launched"),
    ]
    assert events[0].body == submitted()


def test_an_impossible_event_undoes_the_whole_transaction(store: Store) -> None:
    def write() -> None:
        with store.writing() as journal:
            journal.append("j1", [(None, submitted())], NOW)
            journal.append("j2", [(None, submitted())], NOW)
            journal.append("j1", [(1, ev.Launched(handle="h"))], NOW)

    with pytest.raises(ImpossibleSequence):
        write()
    with store.reading() as journal:
        assert not journal.unclosed()
        assert not journal.events("j2")


def test_a_job_is_submitted_once(store: Store) -> None:
    def write(*jobs: str) -> None:
        with store.writing() as journal:
            for job in jobs:
                journal.append(job, [(None, submitted())], NOW)

    write("j1")
    with pytest.raises(ImpossibleSequence, match="submitted before"):
        write("j2", "j1")
    with store.reading() as journal:
        assert [view.id for view in journal.unclosed()] == ["j1"]
        assert len(journal.events("j1")) == 1


def test_nothing_to_append_and_a_time_without_a_zone_are_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="nothing"), store.writing() as journal:
        journal.append("j1", [], NOW)
    with pytest.raises(ValueError, match="time zone"), store.writing() as journal:
        journal.append("j1", [(None, submitted())], NOW.replace(tzinfo=None))


def test_the_work_list_has_what_is_not_closed_oldest_first(store: Store) -> None:
    with store.writing() as journal:
        for number in (3, 1, 2):
            journal.append(f"j{number}", [(None, submitted())], NOW + timedelta(minutes=number))
        journal.append("j2", [(None, ev.JobEnded(state=JobState.CANCELLED)), (None, ev.JobClosed())], NOW)
    with store.reading() as journal:
        assert [view.id for view in journal.unclosed()] == ["j1", "j3"]


def test_jobs_are_found_by_what_people_know(store: Store) -> None:
    with store.writing() as journal:
        journal.append("ab1", [(None, submitted("llama"))], NOW)
        journal.append("ab2", [(None, submitted("qlora"))], NOW + timedelta(minutes=1))
        journal.append("a%2", [(None, submitted("llama"))], NOW + timedelta(minutes=2))
        journal.append("ab1", [(None, ev.JobEnded(state=JobState.FAILED))], NOW)
    with store.reading() as journal:
        assert [v.id for v in journal.jobs()] == ["a%2", "ab2", "ab1"]
        assert [v.id for v in journal.jobs(limit=1)] == ["a%2"]
        assert [v.id for v in journal.jobs(name="llama")] == ["a%2", "ab1"]
        assert [v.id for v in journal.jobs_begun("ab", limit=9)] == ["ab1", "ab2"]
        assert [v.id for v in journal.jobs_begun("ab", limit=1)] == ["ab1"]
        assert [v.id for v in journal.jobs_begun("a%", limit=9)] == ["a%2"]
        assert [v.id for v in journal.jobs(states=["failed"])] == ["ab1"]
        assert [v.id for v in journal.jobs(users=["ada"], teams=["vision"])] == []


def test_an_attempt_is_live_until_its_machine_is_gone(store: Store) -> None:
    with store.writing() as journal:
        journal.append("j1", [(None, submitted()), (1, launch(nodes=2)), (1, ev.Launched(handle="h"))], NOW)
        [live] = journal.live_attempts()
        assert (live.job_id, live.user, live.team, live.gpus) == ("j1", "ada", "nlp", 16)
        assert (live.accelerator, live.provider, live.money) == ("H100", "aws", MoneyKind.CASH)
        assert live.capacity_type is journal.jobs()[0].attempts[0].placement.offer.capacity_type
        journal.append("j1", [(1, ev.AttemptEnded(cause=Cause.COMPLETED))], NOW)
        assert len(journal.live_attempts()) == 1
        journal.append("j1", [(1, ev.MachineGone(gone_at=NOW))], NOW)
        assert not journal.live_attempts()


def test_decisions_come_back_whole(store: Store) -> None:
    verdict = Verdict(Answer.DENY, "budget", "over_budget", "no", Source("a.yaml", 3), figures={"left": "1.00"})
    decision = Decision(
        at=NOW,
        action=ActionKind.LAUNCH,
        user="ada",
        job_name="llama",
        answer=Answer.DENY,
        policy_version="7",
        facts_hash="abc",
        job_id="j1",
        attempt=2,
        pool=OFFER.pool,
        verdicts=(verdict,),
        seen={"hold": "12.00", "offers": 3},
    )
    with store.writing() as journal:
        journal.record(decision)
    with store.reading() as journal:
        assert journal.decisions(job_id="j1") == [decision]
        assert journal.decisions(job_id="j2") == []
        assert journal.decisions(since=NOW) == [decision]
        assert journal.decisions(since=NOW + timedelta(microseconds=1)) == []
        assert (journal.judged_by("j1"), journal.judged_by("j2")) == ("7", None)
    with store.writing() as journal:
        journal.record(replace(decision, policy_version="8"))
        journal.record(replace(decision, policy_version="9", action=ActionKind.CONTINUE))
        assert journal.judged_by("j1") == "8", "whether it may go on is something else"
        assert [one.policy_version for one in journal.decisions(job_id="j1", action=ActionKind.CONTINUE)] == ["9"]
        assert [one.policy_version for one in journal.decisions(job_id="j1", action=ActionKind.LAUNCH)] == ["8", "7"]


_counter = itertools.count()


@SHARED
@given(stream=event_streams())
def test_rebuilding_gives_the_projection(store: Store, stream: Stream) -> None:
    job_id = f"j{next(_counter)}"  # the store is kept from example to example, and grows
    with store.writing() as journal:
        for attempt, body, at in stream.items:
            appended = journal.append(job_id, [(attempt, body)], at)
    with store.reading() as journal:
        kept = journal.job(job_id)
        lists = list(journal.jobs())
        assert [e.body for e in journal.events(job_id)] == [body for _, body, _ in stream.items]
    assert kept == appended
    assert kept == replace(stream.view, id=job_id)
    with store.writing() as journal:
        journal.rebuild()
        assert journal.job(job_id) == kept
        assert list(journal.jobs()) == lists
