"""From signals to events: what the broker makes of run folder and engine, lies and silences included."""

from datetime import UTC, datetime, timedelta

import pytest

from broker.core import events as ev
from broker.core.events import AttemptState, Cause
from broker.core.lifecycle import AttemptView
from broker.core.money import Money
from broker.core.offers import CapacityType, Offer
from broker.core.placements import Placement
from broker.core.ports import EngineState, Observation
from broker.launch.interpret import Dated, ExitRecord, NodeState, Patience, must_be_removed, news

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PATIENCE = Patience(start=15 * MINUTE, heartbeat=2 * MINUTE)
OFFER = Offer("p", "r", None, "i", None, 0, CapacityType.SPOT, Money.usd("1"), NOW, "s")
PLACEMENT = Placement(OFFER, 1, Money.usd("1"), Money.usd("1"), (), None, None, 1.0, 1.0, 0.0)


def attempt(state: AttemptState = AttemptState.RUNNING, **fields: object) -> AttemptView:
    known: dict[str, object] = {
        "handle": "h", "launched_at": NOW - 10 * MINUTE, "up_since": NOW - 10 * MINUTE, "claimed_at": NOW - 9 * MINUTE,
    }  # fmt: skip
    known |= fields
    return AttemptView(1, "k-1", "local", PLACEMENT, state, NOW - 11 * MINUTE, **known)  # type: ignore[arg-type]


def seen(state: EngineState, **fields: object) -> Observation:
    return Observation(state, **fields)  # type: ignore[arg-type]


def kinds(found: list[Dated]) -> list[str]:
    return [dated.body.kind for dated in found]


def ended(found: list[Dated]) -> ev.AttemptEnded:
    return next(dated.body for dated in found if isinstance(dated.body, ev.AttemptEnded))


ALIVE = NodeState(heartbeat_at=NOW - timedelta(seconds=5))


def test_nothing_new_is_nothing() -> None:
    assert news(attempt(), ALIVE, seen(EngineState.UP), NOW, PATIENCE) == []


def test_the_start_of_billing_is_what_the_engine_says_it_is() -> None:
    found = news(attempt(up_since=None), ALIVE, seen(EngineState.UP, since=NOW - 3 * MINUTE), NOW, PATIENCE)
    assert found == [Dated(NOW - 3 * MINUTE, ev.MachineUp(since=NOW - 3 * MINUTE))]


def test_the_agents_last_word_counts_and_the_machine_may_still_be_up() -> None:
    node = NodeState(exit=ExitRecord(NOW - MINUTE, Cause.EXIT_STATUS, exit_status=3, step=40))
    found = news(attempt(), node, seen(EngineState.UP), NOW, PATIENCE)
    assert kinds(found) == ["attempt_ended"]
    assert found[0].at == NOW - MINUTE
    assert (ended(found).cause, ended(found).exit_status, ended(found).step) == (Cause.EXIT_STATUS, 3, 40)


def test_a_machine_taken_by_its_provider_is_an_interruption_and_billing_ends_when_it_went() -> None:
    gone = seen(EngineState.GONE, gone_at=NOW - MINUTE, interrupted=True, evidence="taken back")
    found = news(attempt(), NodeState(step=7), gone, NOW, PATIENCE)
    assert kinds(found) == ["attempt_ended", "machine_gone"]
    assert ended(found).cause is Cause.PREEMPTED
    assert ended(found).step == 7
    assert found[1].body == ev.MachineGone(gone_at=NOW - MINUTE, evidence="taken back")


def test_a_machine_that_vanished_without_a_word_is_lost_not_failed() -> None:
    found = news(attempt(), ALIVE, seen(EngineState.GONE, gone_at=NOW), NOW, PATIENCE)
    assert ended(found).cause is Cause.AGENT_DIED


def test_a_machine_that_went_because_we_stopped_it_ended_for_our_reason() -> None:
    stopping = attempt(AttemptState.STOPPING, stop_requested=Cause.CANCELLED_BY_USER)
    found = news(stopping, ALIVE, seen(EngineState.GONE, gone_at=NOW), NOW, PATIENCE)
    assert ended(found).cause is Cause.CANCELLED_BY_USER


def test_running_says_the_engine_but_the_heartbeat_stopped() -> None:
    node = NodeState(heartbeat_at=NOW - 3 * MINUTE)
    found = news(attempt(), node, seen(EngineState.UP), NOW, PATIENCE)
    assert kinds(found) == ["attempt_ended"]
    assert ended(found).cause is Cause.MACHINE_LOST
    assert "180 s" in ended(found).evidence


def test_an_engine_that_forgets_a_young_launch_is_given_time_and_an_old_one_is_lost() -> None:
    young = attempt(AttemptState.LAUNCHED, claimed_at=None, up_since=None)
    assert news(young, NodeState(), seen(EngineState.LOST), NOW, PATIENCE) == []
    found = news(young, NodeState(), seen(EngineState.LOST), NOW + 6 * MINUTE, PATIENCE)
    assert kinds(found) == ["attempt_ended", "machine_gone"]
    assert found[1].body == ev.MachineGone(gone_at=None, evidence="the engine knows it no more")


def test_a_forgotten_running_machine_is_billed_until_now() -> None:
    found = news(attempt(), ALIVE, seen(EngineState.LOST), NOW, PATIENCE)
    assert ended(found).cause is Cause.MACHINE_LOST
    assert found[-1].body == ev.MachineGone(gone_at=NOW, evidence="the engine knows it no more")


@pytest.mark.parametrize("state", [EngineState.PENDING, EngineState.UP])
def test_a_machine_whose_agent_never_speaks_is_a_failed_launch(state: EngineState) -> None:
    silent = attempt(AttemptState.LAUNCHED, claimed_at=None)
    assert news(silent, NodeState(), seen(state), NOW, PATIENCE) == []
    found = news(silent, NodeState(), seen(state), NOW + 10 * MINUTE, PATIENCE)
    assert ended(found).cause is Cause.LAUNCH_FAILED


def test_a_checkpoint_saved_after_all_is_news_even_when_the_attempt_was_given_up() -> None:
    over = attempt(AttemptState.LOST, cause=Cause.MACHINE_LOST, ended_at=NOW)
    saved = Dated(NOW, ev.CheckpointSaved(checkpoint="0001-000000000002-a"))
    late = NodeState(journal=(saved, Dated(NOW, ev.NoticeReceived(source="x"))))
    assert news(over, late, seen(EngineState.UP), NOW, PATIENCE) == [saved]


def test_machines_are_removed_after_the_end_and_after_the_grace_of_a_stop() -> None:
    assert must_be_removed(attempt(AttemptState.LOST), NOW, MINUTE)
    told = attempt(AttemptState.STOPPING, stop_requested=Cause.MOVED, stop_requested_at=NOW - 2 * MINUTE)
    assert must_be_removed(told, NOW, MINUTE)
    assert not must_be_removed(told, NOW, 3 * MINUTE)
    assert not must_be_removed(attempt(), NOW, MINUTE)
    booting = attempt(AttemptState.STOPPING, stop_requested=Cause.MOVED, stop_requested_at=NOW, claimed_at=None)
    assert must_be_removed(booting, NOW, MINUTE), "nothing runs there yet that could be saved"
