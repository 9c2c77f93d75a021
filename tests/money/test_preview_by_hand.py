"""The preview of a policy for jobs in known states, each set up explicitly."""

from typing import Any

import pytest

from broker.app.capacity.findings import warned_rules
from broker.app.policy import policies
from broker.app.policy.rehearsal import Effect, rehearse
from broker.app.policy.trial_documents import preview
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import MoneyRefused
from broker.core.values.units import parse_duration
from broker.store import Store
from tests.money.test_preview import BEGINS, applied, files_of, stage_folders
from tests.money.world import MoneyWorld

CHEAP = {"max_price": "deny $4.5"}
EVERY = "every: 10m, size: 1GB"
GCP = ("submit", {"providers": "gcp", "capacity": "on_demand"})  # $5 an hour
WAIT = ("wait", {"span": "1h", "looks": 6})


def running(world: MoneyWorld, **said: str) -> JobView:
    world.do(GCP[0], {**GCP[1], **said})
    world.look()
    world.do(*WAIT)
    (view,) = world.views()
    assert view.state is JobState.RUNNING
    return view


@pytest.fixture
def world(store: Store) -> MoneyWorld:
    made = MoneyWorld(store, BEGINS)
    store.activate_policy(files_of(made, {}), by="cat")
    made.restart()
    return made


def test_what_a_rule_stops_is_foretold_with_its_place_and_goes_on_after_a_rollback(world: MoneyWorld) -> None:
    view = running(world)
    stricter = files_of(world, CHEAP)
    with stage_folders(world):
        (one,) = preview(world.broker, stricter).jobs
    assert (one.job_id, one.effect) == (view.id, Effect.STOPS)
    assert [rule.name for rule in one.rules] == ["price"]
    assert one.rules[0].source.startswith("stage.yaml:")
    assert applied(world, stricter) == {view.id: Effect.STOPS}
    world.do(*WAIT)
    assert world.views()[0].state is JobState.PAUSED_BUDGET, "stopped, checkpoint first"

    unrelated = files_of(world, {**CHEAP, "amount": "$250"})
    assert applied(world, unrelated) == {}, "the rule that stopped it is still in force"
    world.do(*WAIT)
    assert world.views()[0].state is JobState.PAUSED_BUDGET

    back = policies.find_version(world.broker, 1).files
    assert applied(world, back) == {view.id: Effect.GOES_ON}
    world.do(*WAIT)
    (after,) = world.views()
    assert (after.state, after.attempt_count) == (JobState.RUNNING, 2), "nobody did anything"


def test_what_was_refused_money_goes_on_when_a_budget_grows(world: MoneyWorld) -> None:
    applied(world, files_of(world, {"amount": "$30"}))
    view = running(world, max_duration="5h")
    applied(world, files_of(world, {"amount": "$10"}))
    world.cloud.lose(world.cloud.live()[0])
    for _ in range(20):
        world.passes(parse_duration("3m"))
        world.look()
    paused = world.views()[0]
    assert paused.state is JobState.PAUSED_BUDGET
    assert isinstance(paused.waiting, MoneyRefused)
    assert applied(world, files_of(world, {"amount": "$250"})) == {view.id: Effect.GOES_ON}
    world.do(*WAIT)
    assert world.views()[0].state is JobState.RUNNING


def test_who_waits_for_an_approval_hears_when_none_is_needed_any_more(world: MoneyWorld) -> None:
    applied(world, files_of(world, {"ask_above": "duration: 2h"}))
    world.do(*GCP)
    (view,) = world.views()
    assert view.state is JobState.AWAITING_APPROVAL
    assert applied(world, files_of(world, {"ask_above": "duration: 5h"})) == {view.id: Effect.GRANTED}


def test_a_budget_that_is_exceeded_by_a_new_amount_stops_jobs_after_its_grace(world: MoneyWorld) -> None:
    view = running(world)
    smaller = {"stage.yaml": files_of(world, {"action": "stop"})["stage.yaml"].replace("$100", "$1")}
    with stage_folders(world):
        seen = preview(world.broker, smaller)
    (one,) = seen.jobs
    assert (one.job_id, one.effect) == (view.id, Effect.STOPS_LATER)
    assert one.at == world.clock.now() + parse_duration("15m")
    (change,) = seen.budgets
    assert change.before is not None
    assert change.after is not None
    assert (str(change.before.amount), str(change.after.amount)) == ("$100.00", "$1.00")
    assert change.after.left < change.before.left
    applied(world, smaller)
    world.do("wait", {"span": "20m", "looks": 4})
    stopped = world.views()[0].attempts[0]
    assert stopped.stop_requested is Cause.STOPPED_BY_POLICY
    assert stopped.stop_requested_at is not None
    assert stopped.stop_requested_at >= one.at


def test_a_job_that_only_its_owner_may_wake_sleeps_on(world: MoneyWorld) -> None:
    """Its own limit stopped it, not a rule."""
    running(world, max_duration="2h")
    world.do("wait", {"span": "5h", "looks": 20})
    assert world.views()[0].state is JobState.PAUSED_BUDGET
    assert applied(world, files_of(world, {"amount": "$250"})) == {}


def test_a_rule_that_only_warns_stops_nothing_and_is_on_record(world: MoneyWorld) -> None:
    view = running(world)
    warning = {"stage.yaml": files_of(world, CHEAP)["stage.yaml"].replace("'$4.5'", "'$4.5', action: warn")}
    with stage_folders(world):
        (one,) = preview(world.broker, warning).jobs
    assert (one.job_id, one.effect) == (view.id, Effect.WARNS)
    assert "only warns, would deny" in one.rules[0].message
    assert applied(world, warning) == {}
    world.do(*WAIT)
    world.do(*GCP)
    world.look()
    second = world.views()[-1]
    assert {view.state for view in world.views()} <= {JobState.RUNNING, JobState.LAUNCHING}, "both go on"
    (rule,) = warned_rules(world.broker, BEGINS)
    assert (rule.name, rule.stopped, rule.refused) == ("price", [view.id, second.id], [second.id])
    with world.store.reading() as look:
        kept = [one for one in look.decisions(job_id=view.id) if any(verdict.warns for verdict in one.verdicts)]
    assert len(kept) == 1, "once an attempt, however often it is judged"
    with stage_folders(world):
        assert not preview(world.broker, {"stage.yaml": warning["stage.yaml"] + "#"}).jobs, "that is known"
        stops = preview(world.broker, files_of(world, CHEAP)).jobs
    assert {one.effect for one in stops} <= {Effect.STOPS, Effect.GIVES_UP_LAUNCH}
    assert view.id in {one.job_id for one in stops}


def waiting(world: MoneyWorld) -> JobView:
    """A job that lost its machine, and waits for another one, which has become available."""
    view = running(world)
    world.do("capacity", {"pool": "gcp", "there": False})
    world.do("lose", {})
    world.do("wait", {"span": "10m", "looks": 10})
    assert world.views()[0].state in (JobState.INTERRUPTED, JobState.QUEUED)
    world.do("capacity", {"pool": "gcp", "there": True})
    return view


@pytest.mark.parametrize(
    ("said", "effect"),
    [
        ({"amount": "$250"}, Effect.STARTS),
        (CHEAP, Effect.REFUSED),
        ({"places": "deny gcp"}, Effect.REFUSED),
        ({"max_price": "ask $2"}, Effect.ASKS),
        ({"amount": "$10"}, Effect.REFUSED),
    ],
)
def test_what_becomes_of_a_job_that_waits(world: MoneyWorld, said: dict[str, Any], effect: Effect) -> None:
    view = waiting(world)
    files = files_of(world, said)
    with stage_folders(world):
        shown = preview(world.broker, files).jobs
    assert [one.effect for one in shown] == ([] if effect is Effect.STARTS else [effect]), "it starts anyhow"
    assert applied(world, files) == {view.id: effect}
    if effect in (Effect.REFUSED, Effect.ASKS):
        assert shown[0].rules[0].source.startswith("stage.yaml:")


def test_a_launch_that_is_under_way_is_given_up_where_it_is_not_allowed_any_more(world: MoneyWorld) -> None:
    world.do("engine_fails", {"call": "submit", "error": "retry", "times": 40})
    world.do(*GCP)
    world.look()
    (view,) = world.views()
    assert view.state is JobState.LAUNCHING
    files = files_of(world, CHEAP)
    with stage_folders(world):
        (one,) = preview(world.broker, files).jobs
    assert (one.effect, [rule.name for rule in one.rules]) == (Effect.GIVES_UP_LAUNCH, ["price"])
    assert applied(world, files) == {view.id: Effect.GIVES_UP_LAUNCH}


def test_what_would_have_been_stopped_is_let_go(world: MoneyWorld) -> None:
    view = running(world)
    world.store.activate_policy(files_of(world, CHEAP), by="cat")  # and no reconciler has run yet
    with stage_folders(world):
        (one,) = preview(world.broker, files_of(world, {})).jobs
    assert (one.job_id, one.effect, [rule.name for rule in one.rules]) == (view.id, Effect.LET_GO, ["price"])
    assert applied(world, files_of(world, {})) == {}
    world.do(*WAIT)
    assert world.views()[0].attempts[0].stop_requested is None


def test_a_job_moves_to_a_place_that_is_allowed_now(world: MoneyWorld) -> None:
    without = files_of(world, {"amount": "$1000", "places": "deny aws"})
    applied(world, without)
    world.do("capacity", {"pool": "vast", "there": False})
    wanted = {"work": "30h", "value_of_time": "$1", "max_duration": "3d", "checkpoint": EVERY}
    world.do("submit", {"capacity": "on_demand", "providers": "", **wanted})
    world.look()
    world.do(*WAIT)
    (view,) = world.views()
    assert view.state is JobState.RUNNING
    freer = files_of(world, {"amount": "$1000"})
    with stage_folders(world):
        shown = preview(world.broker, freer).jobs
    assert [(one.job_id, one.effect) for one in shown] == [(view.id, Effect.MOVES)]
    assert applied(world, freer) == {view.id: Effect.MOVES}


def test_a_rehearsal_ends_in_time_and_says_what_it_left_out(world: MoneyWorld) -> None:
    running(world)
    with stage_folders(world):
        seen = rehearse(world.broker, files_of(world, CHEAP), max_seconds=0.0)
    assert (seen.outcomes, seen.looked_at, seen.left_out) == ({}, frozenset(), 1)
