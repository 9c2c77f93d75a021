"""From signals to events: what the broker makes of run folder and engine, lies and silences included."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved, Claimed, CommandStarted, NoticeReceived
from broker.core.events.outcomes import AttemptState, Cause
from broker.core.events.views import AttemptView
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType, Offer
from broker.core.ports import EngineState, Observation
from broker.core.values.money import Money
from broker.engines.runfolder.mailbox import Dated, ExitRecord, NodeState
from broker.reconciler.interpret import Patience, Silence, needs_removal, new_events

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PATIENCE = Patience(start=15 * MINUTE, heartbeat=2 * MINUTE)
OFFER = Offer("p", "r", None, "i", None, 0, CapacityType.SPOT, Money.usd("1"), NOW, "s")
PLACEMENT = Placement(OFFER, 1, Money.usd("1"), Money.usd("1"), (), None, None, 1.0, 1.0, 0.0)


def attempt(state: AttemptState = AttemptState.RUNNING, **fields: object) -> AttemptView:
    known: dict[str, Any] = {
        "handle": "h", "launched_at": NOW - 10 * MINUTE, "up_since": NOW - 10 * MINUTE, "claimed_at": NOW - 9 * MINUTE,
    }  # fmt: skip
    known |= fields
    return AttemptView(1, "k-1", "local", PLACEMENT, state, NOW - 11 * MINUTE, **known)


def seen(state: EngineState, **fields: Any) -> Observation:
    return Observation(state, **fields)


def kinds(found: list[Dated]) -> list[str]:
    return [dated.body.kind for dated in found]


def ended(found: list[Dated]) -> ev.AttemptEnded:
    return next(dated.body for dated in found if isinstance(dated.body, ev.AttemptEnded))


def told(
    of: AttemptView, node: NodeState, look: Observation, now: datetime, silent: timedelta = timedelta(0)
) -> list[Dated]:
    return new_events(of, node, look, silent, now, PATIENCE)


ALIVE = NodeState(heartbeat_at=NOW - timedelta(seconds=5))


def test_nothing_new_is_nothing() -> None:
    assert told(attempt(), ALIVE, seen(EngineState.UP), NOW) == []


def test_the_start_of_billing_is_what_the_engine_says_it_is() -> None:
    found = told(attempt(up_since=None), ALIVE, seen(EngineState.UP, since=NOW - 3 * MINUTE), NOW)
    assert found == [Dated(NOW - 3 * MINUTE, ev.MachineUp(since=NOW - 3 * MINUTE))]


def test_a_clock_of_ours_that_is_behind_moves_neither_end_of_the_bill() -> None:
    later = NOW + timedelta(hours=5)
    (up,) = told(attempt(up_since=None), ALIVE, seen(EngineState.UP, since=later), NOW)
    assert up.body == ev.MachineUp(since=later)
    found = told(attempt(), NodeState(), seen(EngineState.GONE, gone_at=later, evidence="e"), NOW)
    assert found[-1].body == ev.MachineGone(gone_at=later, evidence="e", interrupted=False)


def test_an_end_that_its_provider_does_not_confirm_is_recorded_as_one() -> None:
    found = told(attempt(), NodeState(), seen(EngineState.GONE, gone_at=NOW, own_end=True, evidence="e"), NOW)
    assert ended(found).cause is Cause.AGENT_DIED
    assert found[-1].body == ev.MachineGone(gone_at=NOW, evidence="e", interrupted=False, own_end=True)


def test_the_agents_last_word_counts_and_the_machine_may_still_be_up() -> None:
    node = NodeState(exit=ExitRecord(NOW - MINUTE, Cause.EXIT_STATUS, exit_status=3, step=40))
    found = told(attempt(), node, seen(EngineState.UP), NOW)
    assert kinds(found) == ["attempt_ended"]
    assert found[0].at == NOW - MINUTE
    assert (ended(found).cause, ended(found).exit_status, ended(found).step) == (Cause.EXIT_STATUS, 3, 40)


def test_a_machine_taken_by_its_provider_is_an_interruption_and_billing_ends_when_it_went() -> None:
    gone = seen(EngineState.GONE, gone_at=NOW - MINUTE, interrupted=True, evidence="taken back")
    found = told(attempt(), NodeState(step=7), gone, NOW)
    assert kinds(found) == ["attempt_ended", "machine_gone"]
    assert ended(found).cause is Cause.PREEMPTED
    assert ended(found).step == 7
    assert found[1].body == ev.MachineGone(gone_at=NOW - MINUTE, evidence="taken back", interrupted=True)


def test_a_machine_that_vanished_without_a_word_is_lost_not_failed() -> None:
    found = told(attempt(), ALIVE, seen(EngineState.GONE, gone_at=NOW), NOW)
    assert ended(found).cause is Cause.AGENT_DIED


def test_a_machine_that_went_because_we_stopped_it_ended_for_our_reason() -> None:
    stopping = attempt(AttemptState.STOPPING, stop_requested=Cause.CANCELLED_BY_USER)
    found = told(stopping, ALIVE, seen(EngineState.GONE, gone_at=NOW), NOW)
    assert ended(found).cause is Cause.CANCELLED_BY_USER


def test_running_says_the_engine_but_the_heartbeat_stopped() -> None:
    assert told(attempt(), NodeState(), seen(EngineState.UP), NOW, silent=2 * MINUTE) == []
    found = told(attempt(), NodeState(), seen(EngineState.UP), NOW, silent=3 * MINUTE)
    assert kinds(found) == ["attempt_ended"]
    assert ended(found).cause is Cause.MACHINE_LOST
    assert "180 s" in ended(found).evidence


def test_nothing_follows_from_silence_while_the_object_store_is_away() -> None:
    away = NodeState(unreachable=True)
    assert told(attempt(), away, seen(EngineState.UP), NOW, silent=600 * MINUTE) == []
    gone = seen(EngineState.GONE, gone_at=NOW)
    assert told(attempt(), away, gone, NOW, silent=MINUTE) == [], "the agent's last word may lie there"
    assert ended(told(attempt(), away, gone, NOW, silent=16 * MINUTE)).cause is Cause.AGENT_DIED


def test_nothing_is_concluded_from_an_engine_that_cannot_know() -> None:
    elsewhere = seen(EngineState.ELSEWHERE)
    assert told(attempt(), NodeState(), elsewhere, NOW, silent=600 * MINUTE) == []
    node = NodeState(exit=ExitRecord(NOW, Cause.COMPLETED))
    assert ended(told(attempt(), node, elsewhere, NOW)).cause is Cause.COMPLETED


def test_silence_is_counted_between_looks_and_a_suspended_broker_does_not_count_for_long() -> None:
    silence = Silence(longest_gap=MINUTE / 2)
    beat = NOW
    assert silence.of("k", beat, NOW) == timedelta(0)
    assert silence.of("k", beat, NOW + MINUTE / 3) == MINUTE / 3
    assert silence.of("k", beat, NOW + 600 * MINUTE) == MINUTE / 3 + MINUTE / 2
    assert silence.of("k", beat, NOW) == MINUTE / 3 + MINUTE / 2, "a clock that goes back counts nothing"
    assert silence.of("k", NOW - 400 * MINUTE, NOW + MINUTE) == timedelta(0), "any change is a sign of life"


def test_times_that_a_nodes_clock_made_up_are_kept_sane() -> None:
    days = timedelta(days=300)
    late = NodeState(exit=ExitRecord(NOW + days, Cause.EXIT_STATUS, exit_status=1))
    assert told(attempt(), late, seen(EngineState.UP), NOW)[0].at == NOW
    early = NodeState(journal=(Dated(NOW - days, CommandStarted()),))
    assert told(attempt(), early, seen(EngineState.UP), NOW)[0].at == NOW - 11 * MINUTE


def test_an_engine_that_forgets_a_young_launch_is_given_time_and_an_old_one_is_lost() -> None:
    young = attempt(AttemptState.LAUNCHED, claimed_at=None, up_since=None)
    assert told(young, NodeState(), seen(EngineState.LOST), NOW + 600 * MINUTE) == [], "clocks jump"
    found = told(young, NodeState(), seen(EngineState.LOST), NOW, silent=15 * MINUTE)
    assert kinds(found) == ["attempt_ended", "machine_gone"]
    assert found[1].body == ev.MachineGone(gone_at=None, evidence="the engine no longer knows it", interrupted=False)


def test_what_still_speaks_is_not_lost_whatever_the_engine_says() -> None:
    assert told(attempt(), ALIVE, seen(EngineState.LOST), NOW, silent=2 * MINUTE) == []
    over = attempt(AttemptState.LOST, cause=Cause.AGENT_DIED, ended_at=NOW)
    assert told(over, ALIVE, seen(EngineState.LOST), NOW) == [], "its job would run beside it"
    last_word = NodeState(exit=ExitRecord(NOW, Cause.COMPLETED))
    assert kinds(told(attempt(), last_word, seen(EngineState.LOST), NOW)) == ["attempt_ended", "machine_gone"]


def test_a_forgotten_running_machine_is_billed_until_now() -> None:
    found = told(attempt(), ALIVE, seen(EngineState.LOST), NOW, silent=3 * MINUTE)
    assert ended(found).cause is Cause.MACHINE_LOST
    assert found[-1].body == ev.MachineGone(gone_at=NOW, evidence="the engine no longer knows it", interrupted=False)


@pytest.mark.parametrize("state", [EngineState.PENDING, EngineState.UP])
def test_a_machine_whose_agent_never_speaks_is_a_failed_launch(state: EngineState) -> None:
    silent = attempt(AttemptState.LAUNCHED, claimed_at=None)
    assert told(silent, NodeState(), seen(state), NOW, silent=14 * MINUTE) == []
    found = told(silent, NodeState(), seen(state), NOW, silent=16 * MINUTE)
    assert ended(found).cause is Cause.LAUNCH_FAILED


def test_a_machine_that_is_billed_for_an_hour_without_an_agent_is_given_up_by_a_process_that_just_started() -> None:
    def after(minutes: int, node: NodeState = NodeState(), **fields: Any) -> list[Dated]:  # noqa: B008  # immutable
        billed = NOW - minutes * MINUTE
        return told(attempt(AttemptState.LAUNCHED, up_since=billed, **fields), node, seen(EngineState.UP), NOW)

    assert after(60, claimed_at=None) == []
    found = ended(after(61, claimed_at=None))
    assert (found.cause, found.evidence) == (Cause.LAUNCH_FAILED, "no agent after 3660 s")
    assert after(61) == [], "one with an agent is judged by its heartbeat"
    assert after(61, NodeState(unreachable=True), claimed_at=None) == [], "the agent's first report may lie there"
    first = NodeState(journal=(Dated(NOW, Claimed(host="node")),))
    assert kinds(after(61, first, claimed_at=None)) == ["claimed"]


def test_a_machine_whose_last_heartbeat_is_an_hour_old_is_given_up_by_a_process_that_just_started() -> None:
    """By the object store's clock; no process of a broker that restarts at every look sees a long silence."""

    def after(minutes: int, **fields: Any) -> list[Dated]:
        node = replace(ALIVE, silent=minutes * MINUTE)
        running = replace(attempt(up_since=NOW - 300 * MINUTE), **fields)
        return told(running, node, seen(EngineState.UP), NOW)

    assert after(60) == []
    assert (ended(after(61)).cause, ended(after(61)).evidence) == (
        Cause.MACHINE_LOST, "no heartbeat for 3660 s by the object store's clock",
    )  # fmt: skip
    stopped = ended(after(61, stop_requested=Cause.MAX_COST, stop_requested_at=NOW))
    assert stopped.cause is Cause.MAX_COST
    here = attempt().placement
    free = replace(here, offer=replace(here.offer, price=Money.ZERO))
    assert after(600, placement=free) == [], "it may have slept together with the broker"


def test_what_waits_in_a_queue_is_not_silent_and_is_told_once() -> None:
    waiting = attempt(AttemptState.LAUNCHED, claimed_at=None, up_since=None)
    look = seen(EngineState.QUEUED, evidence="in Slurm's queue: Priority")
    assert told(waiting, NodeState(), look, NOW) == [Dated(NOW, ev.Queued(because="in Slurm's queue: Priority"))]
    known = replace(waiting, queued_at=NOW - 60 * MINUTE)
    assert told(known, NodeState(), look, NOW, silent=600 * MINUTE) == []


def test_what_is_back_in_a_queue_after_it_spoke_has_lost_its_machine() -> None:
    found = told(attempt(queued_at=NOW), NodeState(), seen(EngineState.QUEUED), NOW, silent=3 * MINUTE)
    assert ended(found).cause is Cause.MACHINE_LOST


def test_a_machine_that_is_billed_while_it_starts_is_billed_from_then_on() -> None:
    starting = attempt(AttemptState.LAUNCHED, claimed_at=None, up_since=None)
    found = told(starting, NodeState(), seen(EngineState.PENDING, since=NOW - MINUTE), NOW)
    assert found == [Dated(NOW - MINUTE, ev.MachineUp(since=NOW - MINUTE))]


def test_where_the_provider_had_none_to_give_there_was_none() -> None:
    look = seen(EngineState.GONE, since=NOW - MINUTE, gone_at=NOW, no_capacity=True, evidence="sold out")
    for before, gone_at in ((None, None), (NOW - MINUTE, NOW - MINUTE)):
        starting = attempt(AttemptState.LAUNCHED, claimed_at=None, up_since=before)
        found = told(starting, NodeState(), look, NOW)
        assert kinds(found) == ["attempt_ended", "machine_gone"]
        assert ended(found).cause is Cause.NO_CAPACITY
        gone = ev.MachineGone(gone_at=gone_at, evidence="sold out", interrupted=False, never_existed=True)
        assert found[1].body == gone


def test_all_that_the_agent_wrote_is_read_also_when_the_attempt_was_given_up() -> None:
    over = attempt(AttemptState.LOST, cause=Cause.MACHINE_LOST, ended_at=NOW)
    notice = Dated(NOW, NoticeReceived(source="x"))
    saved = Dated(NOW, CheckpointSaved(checkpoint="0001-000000000002-a"))
    assert told(over, NodeState(journal=(notice, saved)), seen(EngineState.UP), NOW) == [notice, saved]


def test_machines_are_removed_after_the_end_and_after_the_grace_of_a_stop() -> None:
    assert needs_removal(attempt(AttemptState.LOST), NOW, MINUTE)
    told = attempt(AttemptState.STOPPING, stop_requested=Cause.MOVED, stop_requested_at=NOW - 2 * MINUTE)
    assert needs_removal(told, NOW, MINUTE)
    assert not needs_removal(told, NOW, 3 * MINUTE)
    assert not needs_removal(attempt(), NOW, MINUTE)
    booting = attempt(AttemptState.STOPPING, stop_requested=Cause.MOVED, stop_requested_at=NOW, claimed_at=None)
    assert needs_removal(booting, NOW, MINUTE), "nothing runs there yet that could be saved"
