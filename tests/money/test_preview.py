"""A preview of policies is what happens: random lives of jobs on the money stage, with policies applied and rolled
back, and at each change what was foretold is compared with what the next look of a new broker process does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.app.billing import budgets
from broker.app.policy import policies, rehearsal
from broker.app.policy.preview import changed_outcomes, preview
from broker.app.policy.rehearsal import Effect, rehearse
from broker.app.policy.warned import warned
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import MoneyRefused, MoreMoneyDenied, PolicyDenies, RulesDeny
from broker.core.policy.policy import Answer
from broker.core.values.units import parse_duration
from broker.store import Store
from tests.counts import FULL
from tests.money.moves import MOVES, POLICY, POOL_NAMES, Options, terms_of
from tests.money.stores import new_postgres, postgres_store, sqlite_store
from tests.money.world import SECOND, MoneyWorld

BEGINS = datetime(2026, 11, 20, 9, tzinfo=UTC)
# What a look does not do yet, or does without a word to the job: a grace that began, a warning on record.
UNTOLD = {Effect.STOPS_LATER, Effect.WARNS}


@contextmanager
def stage_folders(world: MoneyWorld) -> Iterator[None]:
    with mock.patch.object(rehearsal, "run_folders", return_value=world.folders):
        yield


def effect_of(body: ev.EventBody) -> Effect | None:
    """What an event says that has happened, in the words of a preview."""
    match body:
        case ev.StopRequested(cause=Cause.MOVED):
            return Effect.MOVES
        case ev.StopRequested(reason=RulesDeny() | MoreMoneyDenied()):
            return Effect.STOPS
        case ev.AttemptEnded(cause=Cause.DENIED_BEFORE_LAUNCH):
            return Effect.GIVES_UP_LAUNCH
        case ev.LaunchRequested():
            return Effect.STARTS
        case ev.Extended(by="the policy"):
            return Effect.GOES_ON
        case ev.ApprovalAsked():
            return Effect.ASKS
        case ev.ApprovalGiven(by=""):
            return Effect.GRANTED
        case ev.Paused(reason=MoneyRefused()) | ev.NothingFeasible(reason=PolicyDenies()):
            return Effect.REFUSED
        case _:
            return None


def happened(world: MoneyWorld, before: Mapping[str, JobView]) -> dict[str, Effect]:
    """The first thing of that kind that happened to each job since."""
    found: dict[str, Effect] = {}
    for view in world.views():
        seq = before[view.id].seq if view.id in before else 0
        with world.store.reading() as look:
            told = [effect_of(event.body) for event in look.events(view.id) if event.seq > seq]
        first = next((one for one in told if one is not None), None)
        if first := first or (asked_anew(world, before[view.id]) if view.id in before else None):
            found[view.id] = first
    return found


def asked_anew(world: MoneyWorld, view: JobView) -> Effect | None:
    """What a job that waits for an answer is told by the record of a decision alone."""
    with world.store.reading() as look:
        newest = next(iter(look.decisions(job_id=view.id, limit=1)), None)
    if view.asked is None or newest is None or newest.at != world.clock.now():
        return None
    whom = {name for verdict in newest.verdicts if verdict.answer is Answer.ASK for name in verdict.approvers}
    if newest.answer is Answer.DENY:
        return Effect.CANNOT_BE_APPROVED
    return None if whom == {name for q in view.asked.open for name in q.approvers} else Effect.ASKS


def files_of(world: MoneyWorld, said: Mapping[str, Any]) -> dict[str, str]:
    whole = {key: values[0] for key, values in POLICY.items()} | dict(said)
    return {"stage.yaml": terms_of(whole, world.clock.now()).text}


def applied(world: MoneyWorld, files: Mapping[str, str]) -> dict[str, Effect]:
    """Preview, apply, and let a new broker process look once, at the same moment; what happened, once it was compared
    with what was foretold."""
    world.look()  # everything that can be known of machines is known
    before = {view.id: view for view in world.views()}
    with stage_folders(world):
        does, would = rehearse(world.broker), rehearse(world.broker, files)
        shown = preview(world.broker, files, None)
    assert {view.id: view for view in world.views()} == before, "a preview leaves no trace"
    assert [one.job_id for one in shown.jobs] == [one.job_id for one in changed_outcomes(does.outcomes, would.outcomes)]
    world.store.activate_policy(files, by="cat")
    budgets.check(world.broker)
    world.restart()
    world._tick()
    foretold = {id: one.effect for id, one in would.outcomes.items() if one.effect not in UNTOLD}
    found = happened(world, before)
    assert found == foretold
    return found


def moves(options: Options) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={key: st.sampled_from(list(values)) for key, values in options.items()})


CALM_JOB = {
    "max_cost": ("", "$50", "$10"),
    "max_duration": ("3h", "10h", "1h"),
    "capacity": ("", "on_demand", "spot"),
    "providers": ("", "gcp", "aws", "vast"),
    "work": ("", "2h"),
    "team": ("", "nlp"),
    "user": ("ann", "bob"),
}
APPLY = {**POLICY, "period": ("month", "day"), "zone": ("UTC",), "withdrawn": (False,), "default_max": ("24h",)}
SUBMIT = st.tuples(st.just("submit"), moves(CALM_JOB))
CHANGE: st.SearchStrategy[tuple[str, dict[str, Any]]] = st.one_of(
    st.tuples(st.just("apply"), moves(APPLY)),
    st.tuples(st.just("apply"), moves(APPLY)),
    st.tuples(st.just("apply"), moves(POLICY)),
    st.tuples(st.just("rollback"), st.just({})),
)
RUN: st.SearchStrategy[tuple[str, dict[str, Any]]] = st.one_of(
    st.tuples(st.just("wait"), moves({"span": ("10m", "1h", "5h"), "looks": (2, 6)})),
    st.tuples(st.just("answer"), moves(MOVES["answer"])),
    st.tuples(st.just("price"), moves(MOVES["price"])),
    st.tuples(st.just("capacity"), moves({"pool": ("aws", "gcp", "vast"), "there": (False, True)})),
    st.tuples(st.just("shortage"), st.just({})),
    st.tuples(st.just("shortage"), st.just({})),
    st.tuples(st.just("cancel"), moves(MOVES["cancel"])),
)
ROUND = st.tuples(st.lists(SUBMIT, max_size=2), st.lists(RUN, max_size=3), CHANGE, st.lists(RUN, max_size=2))
SCRIPT = st.lists(ROUND, min_size=1, max_size=4).map(
    lambda rounds: [move for before, runs, change, after in rounds for move in (*before, *runs, change, *after)]
)


def shortage(world: MoneyWorld) -> None:
    """Two machines are lost while none can be had; then there is capacity again, which no job has tried yet."""
    for there in (False, True):
        for pool in POOL_NAMES[:-1]:
            world.do("capacity", {"pool": pool, "there": there})
        if not there:
            world.do("lose", {})
            world.do("lose", {})
            world.do("wait", {"span": "10m", "looks": 6})


def play(store: Store, script: list[tuple[str, dict[str, Any]]]) -> list[Effect]:
    world = MoneyWorld(store, BEGINS)
    world.store.activate_policy(files_of(world, {"amount": "$1000"}), by="cat")
    world.restart()
    found: list[Effect] = []
    for name, said in script:
        if name == "apply":
            found += applied(world, files_of(world, said)).values()
        elif name == "rollback":
            history = world.store.policy_history()
            if len({one.sha256 for one in history}) > 1:
                found += applied(world, policies.version_before(world.broker).files).values()
        elif name == "shortage":
            shortage(world)
        else:
            world.do(name, said)
            world.passes(SECOND)
            world.look()
    return found


@settings(max_examples=40 if FULL else 2, deadline=None, suppress_health_check=list(HealthCheck))
@given(SCRIPT)
def test_a_preview_is_what_happens(script: list[tuple[str, dict[str, Any]]]) -> None:
    with sqlite_store() as (store, _):
        play(store, script)


@pytest.mark.system
def test_a_preview_is_what_happens_on_postgresql() -> None:
    with new_postgres() as url, postgres_store(url) as (store, clear):

        @settings(max_examples=20 if FULL else 3, deadline=None, suppress_health_check=list(HealthCheck))
        @given(SCRIPT)
        def tried(script: list[tuple[str, dict[str, Any]]]) -> None:
            clear()
            play(store, script)

        tried()


CHEAP = {"max_price": "deny $4.5"}
EVERY = "every: 10m, size: 1GB"
GCP = ("submit", {"providers": "gcp", "capacity": "on_demand"})  # $5 an hour
WAIT = ("wait", {"span": "1h", "looks": 6})


def running(world: MoneyWorld, **said: str) -> JobView:
    """A job that has run for a while."""
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
        (one,) = preview(world.broker, stricter, None).jobs
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

    back = policies.version_before(world.broker, 1).files
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
        seen = preview(world.broker, smaller, None)
    (one,) = seen.jobs
    assert (one.job_id, one.effect) == (view.id, Effect.STOPS_LATER)
    assert one.at == world.clock.now() + parse_duration("15m")
    (change,) = seen.budgets
    assert change.before is not None
    assert change.after is not None
    assert (str(change.before.limit), str(change.after.limit)) == ("$100.00", "$1.00")
    assert change.after.left < change.before.left
    applied(world, smaller)
    world.do("wait", {"span": "20m", "looks": 4})
    stopped = world.views()[0].attempts[0]
    assert stopped.stop_requested is Cause.STOPPED_BY_POLICY
    assert stopped.stop_requested_at is not None
    assert stopped.stop_requested_at >= one.at


def test_a_job_that_only_its_owner_may_wake_sleeps_on(world: MoneyWorld) -> None:
    """Its own limit stopped it, no rule."""
    running(world, max_duration="2h")
    world.do("wait", {"span": "5h", "looks": 20})
    assert world.views()[0].state is JobState.PAUSED_BUDGET
    assert applied(world, files_of(world, {"amount": "$250"})) == {}


def test_a_rule_that_only_warns_stops_nothing_and_is_on_record(world: MoneyWorld) -> None:
    view = running(world)
    warning = {"stage.yaml": files_of(world, CHEAP)["stage.yaml"].replace("'$4.5'", "'$4.5', action: warn")}
    with stage_folders(world):
        (one,) = preview(world.broker, warning, None).jobs
    assert (one.job_id, one.effect) == (view.id, Effect.WARNS)
    assert "only warns, would deny" in one.rules[0].message
    assert applied(world, warning) == {}
    world.do(*WAIT)
    world.do(*GCP)
    world.look()
    second = world.views()[-1]
    assert {view.state for view in world.views()} <= {JobState.RUNNING, JobState.LAUNCHING}, "both go on"
    (rule,) = warned(world.broker, BEGINS)
    assert (rule.name, rule.stopped, rule.refused) == ("price", (view.id, second.id), (second.id,))
    with world.store.reading() as look:
        kept = [one for one in look.decisions(job_id=view.id) if any(verdict.warns for verdict in one.verdicts)]
    assert len(kept) == 1, "once an attempt, however often it is judged"
    with stage_folders(world):
        assert not preview(world.broker, {"stage.yaml": warning["stage.yaml"] + "#"}, None).jobs, "that is known"
        stops = preview(world.broker, files_of(world, CHEAP), None).jobs
    assert {one.effect for one in stops} <= {Effect.STOPS, Effect.GIVES_UP_LAUNCH}
    assert view.id in {one.job_id for one in stops}


def waiting(world: MoneyWorld) -> JobView:
    """A job that lost its machine, and waits for another one that can be had by now."""
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
        shown = preview(world.broker, files, None).jobs
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
        (one,) = preview(world.broker, files, None).jobs
    assert (one.effect, [rule.name for rule in one.rules]) == (Effect.GIVES_UP_LAUNCH, ["price"])
    assert applied(world, files) == {view.id: Effect.GIVES_UP_LAUNCH}


def test_what_would_have_been_stopped_is_let_go(world: MoneyWorld) -> None:
    view = running(world)
    world.store.activate_policy(files_of(world, CHEAP), by="cat")  # and nobody has looked yet
    with stage_folders(world):
        (one,) = preview(world.broker, files_of(world, {}), None).jobs
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
        shown = preview(world.broker, freer, None).jobs
    assert [(one.job_id, one.effect) for one in shown] == [(view.id, Effect.MOVES)]
    assert applied(world, freer) == {view.id: Effect.MOVES}


def test_a_job_waits_that_would_have_rented(world: MoneyWorld) -> None:
    world.do("capacity", {"pool": "owned", "there": True})
    world.do("submit", {"capacity": "", "providers": "owned", "work": "10h", "max_duration": "1d"})
    world.look()
    world.do(*WAIT)
    world.do("submit", {"capacity": "", "providers": "", "work": "2h"})
    world.look()
    world.do(*WAIT)
    for pool in POOL_NAMES[:-1]:
        world.do("capacity", {"pool": pool, "there": False})
    world.do("lose", {"machine": 1})
    world.do("wait", {"span": "10m", "looks": 10})
    world.do("capacity", {"pool": "gcp", "there": True})
    second = world.views()[-1]
    text = files_of(world, {})["stage.yaml"]
    patient = {"stage.yaml": text + "capacity: {wait_for_paid: 10h}\n"}
    with stage_folders(world):
        shown = preview(world.broker, patient, None).jobs
    assert [(one.job_id, one.effect) for one in shown] == [(second.id, Effect.WAITS)]
    assert applied(world, patient) == {}


def test_one_budget_for_several_that_wait_is_given_out_in_their_turn(world: MoneyWorld) -> None:
    """Each alone would fit; together they do not, and the preview knows which."""
    for _ in range(3):
        world.do(*GCP)
        world.look()
    world.do(*WAIT)
    world.do("capacity", {"pool": "gcp", "there": False})
    for _ in range(3):
        world.do("lose", {})
    world.do("wait", {"span": "10m", "looks": 10})
    world.do("capacity", {"pool": "gcp", "there": True})
    found = applied(world, files_of(world, {"amount": "$30"}))
    assert sorted(effect.value for effect in found.values()) != ["starts"] * 3


def test_a_rehearsal_ends_in_time_and_says_what_it_left_out(world: MoneyWorld) -> None:
    running(world)
    with stage_folders(world):
        seen = rehearse(world.broker, files_of(world, CHEAP), longest=0.0)
    assert (seen.outcomes, seen.looked_at, seen.left_out) == ({}, frozenset(), 1)
