"""What is an orphan and what is not: every kind of leftover, and everything that must be left alone."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.events import events as ev
from broker.core.events.agent_events import Claimed
from broker.core.events.events import Event, EventBody
from broker.core.events.lifecycle import advance
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.ports import EngineState, Observation
from broker.core.values.money import Money
from broker.reconciler.admission.records import job_of
from broker.reconciler.sweep import FoundMachine, HeldMoney, Leftover, LeftoverKind, LeftoverState, leftovers
from tests.strategies import Stream, event_streams

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR, GRACE = timedelta(hours=1), timedelta(minutes=15)
OURS, THEIRS = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
OFFER = Offer(
    "aws", "east", "east-a", "p5", "H100", 8, CapacityType.SPOT, Money.usd("20"), NOW, "aws", engine="skypilot",
)  # fmt: skip
PLACEMENT = Placement(OFFER, 1, Money.usd("20"), Money.usd("20"), (), HOUR, None, 0.9, 1.0, 0.1)
REQUESTED = (ev.LaunchRequested(key="train-1", engine="skypilot", placement=PLACEMENT),)
UP = (*REQUESTED, ev.Launched(handle="h"), ev.MachineUp(since=NOW - 9 * HOUR))
OVER = (*UP, ev.AttemptEnded(cause=Cause.PREEMPTED), ev.MachineGone(gone_at=NOW - 2 * HOUR))
CLOSED = (*OVER, ev.JobEnded(state=JobState.CANCELLED), ev.JobClosed())


def job(*bodies: EventBody) -> Mapping[str, JobView]:
    """A job after these, ten hours ago."""
    submitted = ev.Submitted(job=Job(name="train", run="x"), user="ann", max_duration_seconds=86400)
    view: JobView | None = None
    for seq, body in enumerate((submitted, *bodies), 1):
        number = None if isinstance(body, ev.Submitted | ev.JobEnded | ev.JobClosed) else 1
        view = advance(view, Event("train", seq, NOW - 10 * HOUR, number, body))
    assert view is not None
    return {"train": view}


def machine(**more: Any) -> FoundMachine:
    values: dict[str, Any] = {
        "place": "aws", "by_engine": False, "id": "east/i-1",
        "key": "train-1", "store": OURS, "since": NOW - 9 * HOUR, "about": "p5",
    }  # fmt: skip
    return FoundMachine(**(values | more))


def found(
    *machines: FoundMachine,
    jobs: Mapping[str, JobView] | None = None,
    holds: tuple[HeldMoney, ...] = (),
    listed: tuple[str, ...] = ("skypilot",),
    seen: Mapping[str, Observation] | None = None,
    now: datetime = NOW,
) -> list[Leftover]:
    return leftovers(machines, listed, jobs or {}, seen or {}, holds, store=OURS, now=now, grace=GRACE)


def standings(of: list[Leftover]) -> list[LeftoverState]:
    return [one.standing for one in of]


# Machines.


@pytest.mark.parametrize("bodies", [REQUESTED, UP, (*UP, ev.AttemptEnded(cause=Cause.PREEMPTED))])
def test_a_machine_whose_attempt_is_not_over_is_left_alone_whatever_its_tag_says(bodies: tuple[EventBody, ...]) -> None:
    for store in (OURS, THEIRS, ""):
        assert found(machine(store=store, since=None), jobs=job(*bodies)) == []


@pytest.mark.parametrize("bodies", [OVER, CLOSED])
def test_a_machine_of_an_attempt_that_was_taken_for_gone_is_an_orphan(bodies: tuple[EventBody, ...]) -> None:
    (one,) = found(machine(), jobs=job(*bodies))
    assert (one.kind, one.standing, one.job_id) == (LeftoverKind.MACHINE, LeftoverState.ORPHAN, "train")
    assert one.since == NOW - 2 * HOUR, "not since it started, but since nobody looks after it"


def test_one_that_was_taken_for_gone_a_moment_ago_may_still_be_on_its_way_out() -> None:
    at = NOW - 2 * HOUR + GRACE
    assert standings(found(machine(), jobs=job(*OVER), now=at - timedelta(seconds=1))) == [LeftoverState.TOO_YOUNG]
    assert standings(found(machine(), jobs=job(*OVER), now=at)) == [LeftoverState.ORPHAN]


def test_an_old_machine_without_a_store_tag_is_ours_where_we_know_its_attempt() -> None:
    assert standings(found(machine(store=""), jobs=job(*CLOSED))) == [LeftoverState.ORPHAN]


def test_a_machine_that_this_store_asked_for_and_does_not_know_is_an_orphan_once_it_is_old() -> None:
    assert standings(found(machine())) == [LeftoverState.ORPHAN]
    assert standings(found(machine(since=NOW - GRACE + timedelta(seconds=1)))) == [LeftoverState.TOO_YOUNG]
    assert standings(found(machine(since=None))) == [LeftoverState.TOO_YOUNG], "nobody knows how old it is"


def test_another_stores_machine_is_told_and_never_an_orphan() -> None:
    for jobs in ({}, job(*OVER), job(*CLOSED)):
        assert standings(found(machine(store=THEIRS), jobs=jobs)) == [LeftoverState.ANOTHER_STORE]


def test_a_tagged_machine_of_nobody_knows_whom_is_told_and_left_alone() -> None:
    assert standings(found(machine(store=""))) == [LeftoverState.UNKNOWN_OWNER]


def test_a_mere_name_that_looks_like_a_key_is_somebodys() -> None:
    assert found(machine(store="", tagged=False, by_engine=True, place="skypilot")) == []
    assert standings(found(machine(store="", tagged=False), jobs=job(*CLOSED))) == [LeftoverState.ORPHAN], (
        "but a known one is ours"
    )


# Attempts.


LOST = Observation(EngineState.LOST, evidence="knows nothing of it")


GONE = Observation(EngineState.GONE, evidence="was ended")
ENDED = (*UP, ev.AttemptEnded(cause=Cause.COMPLETED))


@pytest.mark.parametrize("look", [LOST, GONE])
def test_an_attempt_that_ended_and_whose_machine_nobody_has(look: Observation) -> None:
    (one,) = found(jobs=job(*ENDED), seen={"train-1": look})
    assert (one.kind, one.standing, one.attempt, one.id) == (LeftoverKind.ATTEMPT, LeftoverState.ORPHAN, 1, "train-1")


def test_when_its_machine_went_is_told_where_the_engine_knows() -> None:
    went = NOW - 3 * HOUR
    for look, gone_at in ((GONE, None), (LOST, None), (replace(GONE, gone_at=went), went)):
        (one,) = found(jobs=job(*ENDED), seen={"train-1": look})
        assert one.gone_at == gone_at


@pytest.mark.parametrize("look", [LOST, GONE])
@pytest.mark.parametrize("claimed", [(), (Claimed(host="n"),)])
def test_one_that_has_not_ended_is_the_reconcilers_however_old(
    look: Observation, claimed: tuple[EventBody, ...]
) -> None:
    """Its exit record may say that it was completed."""
    (one,) = found(jobs=job(*UP, *claimed), seen={"train-1": look})
    assert (one.standing, one.since) == (LeftoverState.RECONCILER, None)
    assert "the reconciler" in one.why


def test_one_that_ran_and_that_the_engine_forgot_may_still_speak() -> None:
    bodies = (*UP, Claimed(host="n"), ev.AttemptEnded(cause=Cause.MACHINE_LOST))
    assert standings(found(jobs=job(*bodies), seen={"train-1": LOST})) == [LeftoverState.RECONCILER]
    assert standings(found(jobs=job(*bodies), seen={"train-1": GONE})) == [LeftoverState.ORPHAN]


def test_an_attempts_age_counts_from_its_end() -> None:
    ended = NOW - 10 * HOUR
    seen = {"train-1": GONE}
    assert standings(found(jobs=job(*ENDED), seen=seen, now=ended + GRACE - timedelta(seconds=1))) == [
        LeftoverState.TOO_YOUNG
    ]
    assert standings(found(jobs=job(*ENDED), seen=seen, now=ended + GRACE)) == [LeftoverState.ORPHAN]


@pytest.mark.parametrize("state", [EngineState.UP, EngineState.PENDING, EngineState.ELSEWHERE])
def test_an_attempt_of_which_the_engine_says_that_it_is_there_is_left_alone(state: EngineState) -> None:
    assert found(jobs=job(*UP), seen={"train-1": Observation(state)}) == []


def test_nothing_follows_from_what_could_not_be_asked() -> None:
    assert found(jobs=job(*UP)) == []
    assert found(jobs=job(*ENDED), seen={"train-1": GONE}, listed=()) == []


def test_a_machine_at_the_cloud_is_a_machine() -> None:
    assert found(machine(), jobs=job(*UP), seen={"train-1": LOST}) == []


def test_a_launch_that_is_only_on_record_is_no_leftover() -> None:
    assert found(jobs=job(*REQUESTED), seen={"train-1": LOST}) == []


# Money.


def held(since: datetime | None = NOW - HOUR) -> HeldMoney:
    return HeldMoney("train", MoneyKind.CASH, Money.usd("7"), since)


def test_money_of_a_job_that_is_over_or_was_never_there() -> None:
    ended = (*OVER, ev.JobEnded(state=JobState.FAILED))
    for jobs in (job(*CLOSED), job(*ended), {}):
        (one,) = found(jobs=jobs, holds=(held(),))
        assert (one.kind, one.standing, one.id) == (LeftoverKind.HOLD, LeftoverState.ORPHAN, "train/cash")


@pytest.mark.parametrize("bodies", [(), REQUESTED, UP, OVER])
def test_money_of_an_open_job_is_held_rightly(bodies: tuple[EventBody, ...]) -> None:
    assert found(jobs=job(*bodies), holds=(held(),)) == []


def test_money_that_moved_a_moment_ago() -> None:
    assert [one.standing for one in found(holds=(held(NOW),))] == [LeftoverState.TOO_YOUNG]
    assert [one.standing for one in found(holds=(held(None),))] == [LeftoverState.TOO_YOUNG]


# For every life of a job.


@given(
    stream=event_streams(),
    store=st.sampled_from([OURS, THEIRS, ""]),
    tagged=st.booleans(),
    age=st.integers(0, 10**6).map(lambda s: timedelta(seconds=s)),
    later=st.integers(0, 10**7).map(lambda s: timedelta(seconds=s)),
)
def test_what_runs_is_never_an_orphan_and_what_is_another_stores_neither(
    stream: Stream, store: str, tagged: bool, age: timedelta, later: timedelta
) -> None:
    view = stream.view
    now = stream.items[-1][2] + later
    machines = [machine(key=one.key, store=store, since=now - age, tagged=tagged) for one in view.attempts]
    unknown = machine(key="never-seen-1", store=store, since=now - age, tagged=tagged)
    for one in found(*machines, unknown, jobs={job_of(m.key): view for m in machines}, now=now):
        assert one.kind is LeftoverKind.MACHINE
        if one.standing is LeftoverState.ORPHAN:
            attempt = next((a for a in view.attempts if a.key == one.key), None)
            assert attempt is None or attempt.over
            assert store == OURS or (attempt is not None and not store)
            assert one.since is not None
            assert now - one.since >= GRACE
    assert replace(unknown, store=THEIRS) not in [one.machine for one in found(unknown) if one.standing == "orphan"]
