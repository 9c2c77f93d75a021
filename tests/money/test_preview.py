"""A preview of policies predicts what happens: in random lives of jobs, policies are applied and rolled back, and each
time the prediction is compared with the effects of the next tick of a new broker process.
"""

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
from broker.app.policy.rehearsal import Effect, rehearse
from broker.app.policy.trial_documents import changed_outcomes, preview
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import MoneyRefused, MoreMoneyDenied, PolicyDenies, RulesDeny
from broker.core.policy.policy import Answer
from broker.store import Store
from tests.counts import FULL
from tests.money.moves import MOVES, POLICY, POOL_NAMES, Options, terms_of
from tests.money.stores import new_postgres, postgres_store, sqlite_store
from tests.money.world import SECOND, MoneyWorld

BEGINS = datetime(2026, 11, 20, 9, tzinfo=UTC)
# Effects that a tick does not have yet, or has without an event of the job: a grace that began, a recorded warning.
UNTOLD = {Effect.STOPS_LATER, Effect.WARNS}


@contextmanager
def stage_folders(world: MoneyWorld) -> Iterator[None]:
    with mock.patch.object(rehearsal, "run_folders", return_value=world.folders):
        yield


def effect_of(body: ev.EventBody) -> Effect | None:
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
    """The first such effect on each job since then."""
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
    """The effect on a job that waits for an answer, which only the record of a decision shows."""
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
    """Preview, apply, and run one tick of a new broker process, at the same time; returns the effects, after comparing
    them with the prediction.
    """
    world.look()  # all observable states of machines are known
    before = {view.id: view for view in world.views()}
    with stage_folders(world):
        does, would = rehearse(world.broker), rehearse(world.broker, files)
        shown = preview(world.broker, files)
    assert {view.id: view for view in world.views()} == before, "a preview leaves no trace"
    assert [one.job_id for one in shown.jobs] == [one.job_id for one in changed_outcomes(does.outcomes, would.outcomes)]
    world.store.activate_policy(files, by="cat")
    budgets.queue_notices(world.broker)
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
    """Two machines are lost while there is no capacity; then there is capacity again, which no job has tried yet."""
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
                found += applied(world, policies.find_version(world.broker).files).values()
        elif name == "shortage":
            shortage(world)
        else:
            world.do(name, said)
            world.passes(SECOND)
            world.look()
    return found


@settings(max_examples=12 if FULL else 1, deadline=None, suppress_health_check=list(HealthCheck))
@given(SCRIPT)
def test_a_preview_is_what_happens(script: list[tuple[str, dict[str, Any]]]) -> None:
    with sqlite_store() as (store, _):
        play(store, script)


@pytest.mark.system
def test_a_preview_is_what_happens_on_postgresql() -> None:
    with new_postgres() as url, postgres_store(url) as (store, clear):

        @settings(max_examples=10 if FULL else 3, deadline=None, suppress_health_check=list(HealthCheck))
        @given(SCRIPT)
        def tried(script: list[tuple[str, dict[str, Any]]]) -> None:
            clear()
            play(store, script)

        tried()
