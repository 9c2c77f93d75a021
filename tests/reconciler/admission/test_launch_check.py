"""Which judgement of a requested launch counts, for how long, and what is judged where none does."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved, Claimed, CommandStarted, Restored
from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.job.jobs import Job
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, Verdict
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.reconciler.admission.launch_check import Objection, Rejudging, Ruling, Validity
from broker.reconciler.admission.records import launch_request
from broker.store import Store
from tests.reconciler.rehearsal import MINUTE, OpenPolicy, Stage

SECOND = timedelta(seconds=1)


@dataclass
class Noting(OpenPolicy):
    judged: list[tuple[Action, Facts]] = field(default_factory=list)

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        self.judged.append((action, facts))
        return super().judge(action, facts)


class AndAnother(OpenPolicy):
    """Has another rule, which allows everything."""

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        return [*super().judge(action, facts), *OpenPolicy().judge(action, facts)]


@pytest.fixture
def stage(store: Store, clock: ManualClock) -> Stage:
    """A job whose launch was requested and judged now, and has not reached the engine."""
    made = Stage(store, clock)
    made.submit()
    return made


def requested(stage: Stage) -> tuple[JobView, AttemptView]:
    return stage.view, stage.view.attempts[0]


def decisions(stage: Stage) -> list[Decision]:
    """Everything that was decided about the job, newest first."""
    with stage.store.reading() as look:
        return list(look.decisions(job_id="j-1"))


def check_of(stage: Stage, validity: Validity | None = None) -> Rejudging:
    return Rejudging(
        stage.store, lambda job: stage._market(), lambda: stage.policy, stage.clock.now, validity or Validity()
    )


@pytest.mark.parametrize(("later", "counts"), [(MINUTE, True), (MINUTE + SECOND, False)])
def test_a_judgement_counts_for_a_minute(stage: Stage, later: timedelta, counts: bool) -> None:
    stage.clock.advance(later)
    assert check_of(stage).holds(*requested(stage)) is counts
    assert check_of(stage)(*requested(stage)) is Ruling.LAUNCH
    assert len(decisions(stage)) == (1 if counts else 2), "judged again only where it does not count"


@pytest.mark.parametrize(
    ("answer", "version"), [(Answer.DENY, "test"), (Answer.ASK, "test"), (Answer.ALLOW, "an earlier one")]
)
def test_a_refusal_or_other_policies_do_not_count_however_new(stage: Stage, answer: Answer, version: str) -> None:
    now = stage.clock.now()
    last = Decision(now, ActionKind.LAUNCH, "ann", "j", answer, version, "", job_id="j-1", attempt=1)
    with stage.store.writing() as tx:
        tx.record(last)
    assert not check_of(stage).holds(*requested(stage))
    assert check_of(stage)(*requested(stage)) is Ruling.LAUNCH
    assert [one.policy_version for one in decisions(stage)] == ["test", version, "test"]
    assert check_of(stage).holds(*requested(stage)), "it was judged again"


def test_what_time_alone_denies_by_now_does_not_count(stage: Stage) -> None:
    view, attempt = requested(stage)
    stage.policy = policy = Noting()
    stage.clock.advance(30 * SECOND)
    assert check_of(stage).holds(view, attempt)
    (action, facts), *rest = policy.judged
    assert rest == []
    assert action == Action(ActionKind.LAUNCH, view.job, "ann", placement=attempt.placement)
    assert facts == Facts(stage.clock.now())
    stage.policy = AndAnother(denied=frozenset({"launch"}))
    assert not check_of(stage).holds(view, attempt), "one rule is enough"


def test_policies_that_change_before_the_transaction_judge_at_the_next_look(stage: Stage) -> None:
    """The look is judged by one version, the transaction would be by the next: nothing is judged by either."""
    versions = iter([OpenPolicy(version="a"), OpenPolicy(version="b")])
    check = Rejudging(stage.store, lambda job: stage._market(), lambda: next(versions), stage.clock.now)
    assert check(*requested(stage)) is Ruling.LOOK_AGAIN
    assert len(decisions(stage)) == 1
    assert stage.money()[0] == Money.usd(100)


def test_a_launch_of_a_job_or_attempt_that_is_not_there_is_not_made(stage: Stage) -> None:
    view, attempt = requested(stage)
    assert not check_of(stage).holds(replace(view, id="j-2"), attempt)
    assert not check_of(stage).holds(view, replace(attempt, number=7))


def test_a_deadline_that_has_passed_keeps_no_launch_back(store: Store, clock: ManualClock) -> None:
    stage = Stage(store, clock)
    stage.submit(Job(name="j", run="x", deadline=timedelta(hours=3)))
    view, attempt = requested(stage)
    stage.clock.advance(4 * timedelta(hours=1))
    check = check_of(stage, Validity(request=5 * timedelta(hours=1)))
    assert check(view, attempt) is Ruling.LAUNCH


def test_machines_that_others_have_meanwhile_are_not_free(stage: Stage) -> None:
    """Of the only one, its own request takes nothing."""
    check = check_of(stage)
    view, attempt = requested(stage)
    stage.offers = [replace(one, slots=1) for one in stage.offers]
    stage.clock.advance(2 * MINUTE)
    assert check(view, attempt) is Ruling.LAUNCH
    with stage.store.writing() as tx:
        other = ev.Submitted(job=view.job, user="bob", max_duration_seconds=36000)
        tx.append("j-9", [(None, other), (1, launch_request("j-9", 1, attempt.placement))], stage.clock.now())
    stage.clock.advance(2 * MINUTE)
    found = check(view, attempt)
    assert isinstance(found, Objection)
    assert found.cause is Cause.REQUEST_EXPIRED
    assert "too_few_machines" in str(found)


def test_only_the_work_that_is_left_is_judged(stage: Stage) -> None:
    """Of two hours, one and a half are in the checkpoint; the first machine is not known to be gone."""
    (first,) = decisions(stage)
    attempt = requested(stage)[1]
    begun = ev.Launched(handle="h"), ev.MachineUp(since=stage.clock.now()), Claimed(host="n")
    ran = Restored(checkpoint=None), CommandStarted()
    with stage.store.writing() as tx:
        tx.append("j-1", [(1, one) for one in (*begun, *ran)], stage.clock.now())
    stage.clock.advance(90 * MINUTE)
    saved = CheckpointSaved(checkpoint="c-1"), ev.AttemptEnded(cause=Cause.PREEMPTED)
    with stage.store.writing() as tx:
        again = launch_request("j-1", 2, attempt.placement)
        tx.append("j-1", [*((1, one) for one in saved), (2, again)], stage.clock.now())
    view = stage.view
    assert check_of(stage)(view, view.attempts[1]) is Ruling.LAUNCH
    last = decisions(stage)[0]
    assert (last.seen["offers_seen"], last.attempt) == (1, 2)
    assert (first.action, last.seen["expected_cost"]) == (ActionKind.LAUNCH, "0.600317"), "half an hour, and a start"


def test_the_money_is_dated_from_the_launch_on(stage: Stage) -> None:
    """$100 at $1 an hour and 24 hours at most: held from now to a day from now, not from the request on."""
    stage.clock.advance(10 * MINUTE)
    assert check_of(stage)(*requested(stage)) is Ruling.LAUNCH
    with stage.store.reading() as look:
        (balance,) = look.balance("j-1").values()
    assert balance.burn is not None
    assert balance.burn.start == stage.clock.now()
    (last, _) = decisions(stage)
    assert (last.attempt, last.job_id, last.at, last.action) == (1, "j-1", stage.clock.now(), ActionKind.RE_PLACE)
    assert last.seen["expected_cost"] == requested(stage)[1].placement.expected_cost.as_json()
